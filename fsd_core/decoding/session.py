"""One text being written alone: the loop at batch 1."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.config import DecodingConfig
from fsd_core.decoding.batch import Batch
from fsd_core.decoding.room import capacity_for
from fsd_core.decoding.trace import StepRecord
from fsd_core.models.eagle import EagleHead
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.language_model import LanguageModel


class Session:
    """A text, a round at a time.

    ``prompt``: token ids. ``draft``, ``head``: ``None`` where nothing needs it. ``eos``: ids that end the text.
    ``seed``: the uniforms' seed. Raises ``InvalidSetting`` for an empty prompt or a missing draft or head,
    ``PromptTooLong`` for a prompt that fills the context.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        config: DecodingConfig,
        prompt: Sequence[int],
        seed: int,
        eos: frozenset[int],
        head: EagleHead | None = None,
    ) -> None:
        capacity = capacity_for(target, draft, config, len(prompt))
        self._batch = Batch(target, draft, config, eos, capacity, head=head)
        self._text = self._batch.put(0, prompt, seed)

    @property
    def model(self) -> LanguageModel:
        """The one that writes: the target, or the draft where it decodes alone."""
        return self._batch.model

    @property
    def cache(self) -> KVCache:
        return self._batch.cache

    @property
    def history(self) -> list[int]:
        """Token ids of the prompt and of what has been written."""
        return self._text.history

    @property
    def stop_reason(self) -> str | None:
        return self._text.stop_reason

    def step(self) -> StepRecord:
        """One round. Writes 1 to draft length + 1 tokens; call until ``stop_reason`` is set."""
        return self._batch.step()[0]
