"""Two to four settings on one prompt, side by side: their rounds take turns, each on its own clock.

What a job has written lies in its stream of chunks. A job that a lost worker left half-way is generated again from
the start, which gives the same tokens, and only what is not in the stream yet is added to it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import ValidationError
from tokenizers.decoders import DecodeStream

from fsd_core.config import DecodingConfig, sentence
from fsd_core.decoding.decoder import Decoder
from fsd_core.decoding.session import Session
from fsd_core.decoding.trace import StepRecord
from fsd_core.errors import FsdError
from fsd_core.models.loading import LoadedPair

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
WARM_UP_ROUNDS = 2  # the first rounds of a process are slow and would be charged to the first setting

Chunk = dict[str, Any]


class IncrementalText:
    """Token ids in, their texts out; joined, the texts are the decoded text.

    A token that ends inside a character has no text; the one that completes the character has it all.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._length = 0  # characters given out

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self._ids.append(token)
        text = self._stream.step(self._tokenizer.backend_tokenizer, token) or ""
        self._length += len(text)
        return text

    def rest(self) -> str:
        """What the last tokens began and nothing completed, with U+FFFD for its bytes."""
        return self._tokenizer.decode(self._ids, skip_special_tokens=True)[self._length :]


@dataclass
class Lane:
    """One setting of a job: its session, its clock, and what it has written since the last flush."""

    index: int
    pair: LoadedPair
    sent: int = 0
    """tokens that are in the stream already"""
    session: Session | None = None
    error: str | None = None
    pending: list[Chunk] = field(default_factory=list)
    told: bool = False
    """whether the stream has its end"""
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._text = IncrementalText(self.pair.tokenizer)

    @property
    def done(self) -> bool:
        return self.session is None or self.session.stop_reason is not None

    def begin(self, config: Any, prompt: str, seed: int) -> None:
        """Opens the session, or notes why that cannot be."""
        try:
            decoder = Decoder(self.pair, DecodingConfig.model_validate(config))
            ids = decoder.prompt_ids(prompt)
            list(islice(decoder.stream(ids, seed), WARM_UP_ROUNDS))
            begun = time.perf_counter()
            self.session = decoder.session(ids, seed)
            self.seconds = time.perf_counter() - begun
        except ValidationError as error:
            self.error = sentence(error)
        except (FsdError, RuntimeError) as error:
            self._fail(error)

    def step(self) -> None:
        """One round."""
        assert self.session is not None
        begun = time.perf_counter()
        try:
            record = self.session.step()
        except (FsdError, RuntimeError) as error:
            self._fail(error)
            return
        self.seconds += time.perf_counter() - begun
        self.rounds += 1
        self.drafted += len(record.drafted)
        self.accepted += record.accepted
        self.pending += self._shown(record)
        if self.done and self.pending and (rest := self._text.rest()):
            self.pending[-1]["text"] += rest

    def _fail(self, error: Exception) -> None:
        self.session = None
        self.error = str(error) if isinstance(error, FsdError) else f"{type(error).__name__}: {error}"
        logger.warning("Setting %d of a playground job failed: %s", self.index, self.error)

    def _shown(self, record: StepRecord) -> Iterable[Chunk]:
        """The round's tokens as the page shows them, those left out that it has."""
        judged = len(record.divergence)
        for i, token in enumerate(record.emitted):
            text = self._text.add(token)
            self.tokens += 1
            if self.tokens <= self.sent:
                continue
            shown = {
                "text": text,
                "id": token,
                "kind": record.kinds[i],
                "divergence": _finite(record.divergence[i]) if i < judged else None,
                "p": record.target_probability[i] if i < judged else None,
                "q": record.draft_probability[i] if i < judged else None,
                "probability": record.emitted_probability[i],
            }
            if record.kinds[i] == "correction" and i < len(record.drafted):
                shown["rejected"] = self.pair.tokenizer.decode([record.drafted[i]])
            yield shown

    def chunk(self) -> Chunk:
        """Everything since the last chunk."""
        tokens, self.pending = self.pending, []
        self.told = self.done
        return {
            "setting": self.index,
            "tokens": tokens,
            "stats": {
                "tokens": self.tokens,
                "seconds": self.seconds,
                "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
                "acceptance_rate": self.accepted / self.drafted if self.drafted else None,
                "mean_acceptance_length": self.tokens / self.rounds if self.rounds else 0.0,
                "rounds": self.rounds,
            },
            "done": self.done,
            "stop_reason": self.session.stop_reason if self.session else None,
            "error": self.error,
        }


def generate(
    payload: dict[str, Any],
    pair: LoadedPair,
    written: Iterable[Chunk],
    write: Callable[[list[Chunk]], None],
    check: Callable[[], None],
) -> None:
    """Does a playground job.

    ``payload``: prompt, seed, settings (``DecodingConfig`` as JSON). ``written``: the chunks that its stream has
    already. ``write`` appends chunks; ``check`` is called about every 100 ms and stops the work by raising. What is
    wrong with one setting is told in its chunk, and the others go on.
    """
    sent: Counter[int] = Counter()
    told = set()
    for chunk in written:
        sent[chunk["setting"]] += len(chunk["tokens"])
        if chunk["done"]:
            told.add(chunk["setting"])
    lanes = [Lane(i, pair, sent[i]) for i in range(len(payload["settings"])) if i not in told]
    check()
    for lane in lanes:
        lane.begin(payload["settings"][lane.index], payload["prompt"], payload["seed"])
    flushed = -math.inf  # the first tokens do not wait
    while any(not lane.done for lane in lanes):
        for lane in lanes:
            if not lane.done:
                lane.step()
        if time.monotonic() - flushed >= FLUSH_SECONDS:
            _flush(lanes, write)
            check()
            flushed = time.monotonic()
    _flush(lanes, write)


def _flush(lanes: list[Lane], write: Callable[[list[Chunk]], None]) -> None:
    chunks = [lane.chunk() for lane in lanes if lane.pending or (lane.done and not lane.told)]
    if chunks:
        write(chunks)


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, which is what some divergences come to where one model gives a token no probability."""
    return value if value is not None and math.isfinite(value) else None
