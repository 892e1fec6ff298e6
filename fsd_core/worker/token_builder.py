"""Conversion of trace rounds into the tokens displayed by the playground and a run's page; no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from fsd_core.decoding.trace import RoundRecord
from fsd_core.storage.playground_chunks import EmittedToken


class IncrementalText:
    """Converts token ids into text pieces whose concatenation is the decoded text.

    A token that ends inside a character has no text. The token that completes the character has all of it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._length = 0  # characters returned so far

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        self._ids.append(token)
        text = self._stream.step(self._tokenizer, token) or ""
        self._length += len(text)
        return text

    def remaining_text(self) -> str:
        """Return the text of incomplete characters in the last tokens, with U+FFFD for their bytes."""
        return self._tokenizer.decode(self._ids, skip_special_tokens=True)[self._length :]


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
