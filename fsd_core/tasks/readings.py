"""What every reading of an answer has in common: where the answer ends, and which characters are the same to people."""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import normalize

READING_VERSION = 2
"""version of how answers are read from texts; it grows when a text may be read differently"""

# A further question, another turn, or a token that ends one.
_RUN_ON = re.compile(
    r"(?:\n[^\S\n]*|(?<=[.!?)}\]*]) {1,4})(?:#{1,6} ?)?(?:\*\*)?(?:Question|Q|Human)(?:\*\*)?:"
    r"|\n(?:User:|### Instruction)|<\|(?:im_start|im_end|endoftext|end_of_text|eot_id|start_header_id|user|end)\|>|</s>"
    r"|\[INST\]|<(?:start|end)_of_turn>|<｜(?:User|end▁of▁sentence)｜>"
)
_WRAPPERS = [
    (
        re.compile(f"<{name}>", re.IGNORECASE),
        re.compile(rf"</{name}>|</CONCLUSION>|\[END FINAL RESPONSE\]", re.IGNORECASE),
    )
    for name in ("response", "answer")
]
_SAME = str.maketrans(
    {character: ascii for ascii, others in {"'": "’‘ʼ", '"': "“”„", "-": "‐‑", " ": "\u00a0\u2007\u2009\u202f"}.items()
     for character in others}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff")
)  # fmt: skip
_PLAIN = str.maketrans(
    {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)} | {"。": ".", "、": ",", "٫": ".", "٬": ","}
    | {chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)}
)  # fmt: skip


class Ended(NamedTuple):
    """A text up to where it goes on as another turn or with a further question, and whether it does."""

    text: str
    goes_on: bool


def own_turn(text: str) -> Ended:
    """Return what a model says before it invents a further question or another turn."""
    started = len(text) - len(text.lstrip())
    match = _RUN_ON.search(text, started + 1)
    return Ended(text[: match.start()], True) if match else Ended(text, False)


def unwrapped(text: str) -> str:
    """Return what stands last in ``<response>`` and ``<answer>``, without the end mark of a conclusion."""
    for begin, end in _WRAPPERS:
        text = end.split(begin.split(text)[-1], maxsplit=1)[0]
    return text


def plain(text: str) -> str:
    """Return a text whose wide letters, digits and punctuation are those of ASCII, as are Arabic and Hindi digits."""
    return text.translate(_PLAIN)


def folded(text: str) -> str:
    """Return a text with one form of each apostrophe, quotation mark, hyphen, space and accent."""
    return normalize("NFC", text.translate(_SAME))
