"""Words around an answer, in languages other than English. The patterns take linear time and are read without regard
to capitals."""

from __future__ import annotations

# What an answer is called; what stands between that and the answer; what stands before a conclusion or a choice; what
# is said of a letter that is right.
_LANGUAGES = {
    "Chinese": ("答案|选项|選項", "应该是|是|为|為|选|選", "所以|因此|故|选择|選擇|选|選", "正确|正確|对的"),
    "Japanese": ("答え|正解|解答|回答", "は|が", "よって|したがって|ゆえに|だから", "正解|正しい|正答|答え"),
    "Korean": ("정답|답변|답", "은|는|이|가", "따라서|그러므로|그래서", "정답|답|맞|옳"),
    "Spanish": ("respuesta|opción|solución", "es|sería", "por (?:lo )?tanto|así que|elijo", "correct[ao]|la respuesta"),
    "French": ("réponse|choix", "est|serait", "donc|ainsi|je choisis", "est correct|correcte|bonne|la réponse"),
    "German": ("antwort|lösung|richtig", "ist|lautet|wäre", "daher|somit|folglich|ich wähle", "richtig|korrekt"),
    "Portuguese": ("resposta|opção|alternativa", "é|seria", "portanto|logo|escolho", "corret[ao]|cert[ao]|a resposta"),
    "Russian": ("ответ|вариант", "будет|является", "поэтому|следовательно|значит|выбираю", r"верн\w+|правильн\w+"),
    "Arabic": ("الإجابة|الجواب|الخيار", "هي|هو", "لذلك|إذن|وبالتالي|أختار", "الصحيح|صحيح|الإجابة|الجواب"),
    "Hindi": ("सही विकल्प|उत्तर|जवाब", "है", "इसलिए|अतः", "सही"),
}
_COMMA = [_LANGUAGES[name][0] for name in ("Spanish", "French", "German", "Portuguese", "Russian")]
_NAMES, _VERBS, _BEFORE, _RIGHT = ("|".join(column) for column in zip(*_LANGUAGES.values(), strict=True))
_STARTS, _ENDS = r"(?<![a-zà-ÿа-я])", r"(?![a-zà-ÿа-я])"
_WORD = r"(?: (?!no\b|n['’]|pas\b|nicht\b|não\b|не\b|ليس|नहीं|不|没)[^\s:=,.;()]{1,15})"
_ARTICLE = r"(?: ?\b(?:la|el|le|a|o|die|l['’]))?"
_KIND = r"(?: ?(?:opción|letra|option|lettre|opção|вариант|ответ|буква|الخيار|选项|選項|選択肢|विकल्प|उत्तर)(?= ))?"

ANSWER = rf"{_STARTS}(?:{_NAMES}){_WORD}{{0,2}}?(?: ?(?:{_VERBS}){_ENDS}| ?[:=—–-]|(?<=[가-힣ऀ-ॿ])(?= ))"
"""what calls the next thing the answer"""
CONCLUSION = rf"{_STARTS}(?:{_BEFORE}){_ENDS}[,:]?"
"""what concludes or chooses the next letter"""
ARTICLE = _ARTICLE + _KIND
"""what may stand before a letter: an article, and what letters are called"""
IS_RIGHT = rf"(?: ?(?:{_VERBS}){_ENDS})?{_WORD}{{0,2}}? ?{_STARTS}(?:{_RIGHT}){_ENDS}"
"""what says of the letter before it that it is right"""
NOT, BUT = rf"{_STARTS}(?:not|no es|pas|nicht|não é|не|不是)", "(?:but|sino|mais|sondern|mas|а|而是)"
"""what stands before a letter that is put aside, and between that and the one that is chosen"""
DECIMAL_COMMA = rf"{_STARTS}(?:{'|'.join(_COMMA)})\b"
"""words of languages that write 12,5"""
