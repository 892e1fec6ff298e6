"""Conversion of trace rounds into the tokens displayed by the playground and a run's page; no torch."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tokenizers import Tokenizer

from fsd_core.decoding.trace import RoundRecord
from fsd_core.storage.messages import EmittedToken

_BYTE = re.compile("<0x[0-9A-F]{2}>")


class IncrementalText:
    """Converts token ids into text pieces whose concatenation is the decoded text.

    A token that ends inside a character has no text. The token that completes the character has all of it. Bytes of a
    vocabulary with byte fallback become text with the first other token, since a run of them is read as a whole.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._ids: list[int] = []
        self._start = self._read = 0  # of the tokens decoded together, and of those that have no text yet
        self._length = 0  # characters returned so far

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        if token in self._special:
            return ""
        self._ids.append(token)
        if _BYTE.fullmatch(self._tokenizer.id_to_token(token) or ""):
            return ""
        text = self._decoded(self._start)
        if text.endswith("\ufffd"):
            return ""
        text = text[len(self._decoded(self._start, self._read)) :]
        if self._decoded(self._read):  # what a decoder does to the beginning of a text is done to other tokens
            self._start = self._read
        self._read = len(self._ids)
        self._length += len(text)
        return text

    def _decoded(self, start: int, end: int | None = None) -> str:
        return self._tokenizer.decode(self._ids[start:end], skip_special_tokens=True)

    def remaining_text(self) -> str:
        """Return the text of incomplete characters in the last tokens, with U+FFFD for their bytes."""
        return self._decoded(0)[self._length :]


class TokenBuilder:
    """Builds the tokens of one generation round by round."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = IncrementalText(tokenizer)

    def add(self, record: RoundRecord, *, last: bool, likeliest: Sequence[int] = ()) -> list[EmittedToken]:
        """Return the tokens of the next round. With ``last``, the final token includes all remaining text.

        ``likeliest``: the target's likeliest token at each position, if known.
        """
        tokens = [self._token(record, i, likeliest) for i in range(len(record.emitted))]
        if last and tokens:
            tokens[-1] = tokens[-1]._replace(text=tokens[-1].text + self._text.remaining_text())
        return tokens

    def _token(self, record: RoundRecord, i: int, likeliest: Sequence[int]) -> EmittedToken:
        id, kind, is_judged = record.emitted[i], record.kinds[i], i < len(record.divergence)
        # With beams, the emitted tokens are not those of the round's drafts.
        replaces = kind == "correction" and i < len(record.drafted) and not record.widths
        differs = is_judged and i < len(likeliest) and likeliest[i] != id
        return EmittedToken(
            text=self._text.add(id),
            id=id,
            kind=kind,
            divergence=_finite(record.divergence[i]) if is_judged else None,
            p=_finite(record.target_probability[i]) if is_judged else None,
            q=_finite(record.draft_probability[i]) if is_judged else None,
            probability=_finite(record.emitted_probability[i]),
            rejected=self._text_of(record.drafted[i]) if replaces else None,
            likeliest=self._text_of(likeliest[i]) if differs else None,
        )

    def _text_of(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)


def _finite(value: float | None) -> float | None:
    """Return the value, or ``None`` for infinity, which JSON lacks. Some divergences are infinite where one model gives
    a token no probability."""
    return value if value is not None and math.isfinite(value) else None
