"""One text being written alone: the loop at batch size 1."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from fsd_core.decoding.batch import Batch
from fsd_core.decoding.beams.beam_batch import BeamBatch
from fsd_core.decoding.composition import Method
from fsd_core.decoding.trace import RoundRecord
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.language_model import LanguageModel


def new_batch(
    method: Method, eos: frozenset[int], capacity: int, rows: int = 1, *, keep_logits: bool = False
) -> Batch | BeamBatch:
    """Return a writer of texts by a method. See :class:`Batch` for the arguments. Raises ``InvalidSetting``."""
    if method.beams is not None:
        return BeamBatch(method, eos, capacity, rows)
    return Batch(method, eos, capacity, rows, keep_logits=keep_logits)


class DecodingSession:
    """A text, written one round at a time. As a context manager it closes itself.

    ``prompt``: token ids. ``seed``: the uniforms' seed. ``eos``: ids that end the text. Raises ``InvalidSetting`` for
    an empty prompt, ``PromptTooLong`` for one that fills the context.
    """

    def __init__(
        self, method: Method, prompt: Sequence[int], seed: int, eos: frozenset[int], *, keep_logits: bool = False
    ) -> None:
        method.check_prompt(len(prompt))
        self._batch = new_batch(method, eos, method.capacity(len(prompt)), keep_logits=keep_logits)
        self._text = self._batch.put(0, prompt, seed)

    def __enter__(self) -> DecodingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the caches, which may serve the next text. The text stays, but cannot be continued."""
        self._batch.close()

    @property
    def model(self) -> LanguageModel:
        """The model that writes: the target, or the draft if it decodes alone."""
        return self._batch.model

    @property
    def cache(self) -> KVCache:
        return self._batch.cache

    @property
    def history(self) -> list[int]:
        """Token ids of the prompt and of the text so far; of beams, as far as they agree."""
        return self._text.history

    @property
    def stop_reason(self) -> str | None:
        return self._text.stop_reason

    def run_round(self) -> RoundRecord:
        """Run one round, which writes 1 to draft length + 1 tokens, or of beams what they have come to agree on, if
        anything. Call this until ``stop_reason`` is set."""
        return self._batch.run_round()[0]

    @property
    def beams(self) -> list[list[int]]:
        """The live beams' token ids, the prompt included; the text itself if it is written alone."""
        return self._batch.live if isinstance(self._batch, BeamBatch) else [self.history]

    def likeliest(self) -> list[int]:
        """Return the target's likeliest token at each position of the last round. Empty if nothing was drafted, or
        without ``keep_logits``."""
        return self._batch.likeliest()[0]
