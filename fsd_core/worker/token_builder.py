"""Rounds of the trace as the tokens that a page shows, in the playground as on a run's page; no torch."""

from __future__ import annotations

import math

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from fsd_core.decoding.trace import RoundRecord
from fsd_core.storage.messages import EmittedToken


class IncrementalText:
    """Token ids in, their texts out; joined, the texts are the decoded text.

    A token that ends inside a character has no text; the one that completes the character has it all.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._length = 0  # characters given out

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self._ids.append(token)
        text = self._stream.step(self._tokenizer, token) or ""
        self._length += len(text)
        return text

    def rest(self) -> str:
        """What the last tokens began and nothing completed, with U+FFFD for its bytes."""
        return self._tokenizer.decode(self._ids, skip_special_tokens=True)[self._length :]


class TokenBuilder:
    """The tokens of one generation, built round by round."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = IncrementalText(tokenizer)

    def add(self, record: RoundRecord, *, last: bool) -> list[EmittedToken]:
        """The tokens of the next round; the ``last`` one's final token has all text that is left."""
        tokens = [self._token(record, i) for i in range(len(record.emitted))]
        if last and tokens:
            tokens[-1] = tokens[-1]._replace(text=tokens[-1].text + self._text.rest())
        return tokens

    def _token(self, record: RoundRecord, i: int) -> EmittedToken:
        id, kind, judged = record.emitted[i], record.kinds[i], i < len(record.divergence)
        replaces = kind == "correction" and i < len(record.drafted)
        return EmittedToken(
            text=self._text.add(id),
            id=id,
            kind=kind,
            divergence=_finite(record.divergence[i]) if judged else None,
            p=_finite(record.target_probability[i]) if judged else None,
            q=_finite(record.draft_probability[i]) if judged else None,
            probability=_finite(record.emitted_probability[i]),
            rejected=self._tokenizer.decode([record.drafted[i]], skip_special_tokens=False) if replaces else None,
        )


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, which is what some divergences come to where one model gives a token no probability."""
    return value if value is not None and math.isfinite(value) else None
