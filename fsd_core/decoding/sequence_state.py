"""One text being written, as the host knows it."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.ops.sampling import UniformStream


class SequenceState:
    """Prompt and continuation, how far it may go, and the uniforms that decide it.

    ``limit``: tokens to write at most, ``limited_by`` why. ``stop_reason``: ``None`` while it is being written.
    """

    def __init__(self, prompt: Sequence[int], limit: int, limited_by: str, uniforms: UniformStream) -> None:
        self.history = list(prompt)
        self.uniforms = uniforms
        self.stop_reason: str | None = None
        self._prompt_length, self._limit, self._limited_by = len(prompt), limit, limited_by

    @property
    def written_tokens(self) -> int:
        """Tokens of the answer that are there."""
        return len(self.history) - self._prompt_length

    @property
    def remaining_tokens(self) -> int:
        """Tokens that may still be written."""
        return self._limit - self.written_tokens

    def take(
        self, values: Sequence[float], drafted: Sequence[int], judged: int, width: int, eos: frozenset[int]
    ) -> RoundRecord:
        """Writes what a round came to, without its times.

        ``values``: what was read from the device: how many drafted tokens are kept, ``width`` emitted tokens, as many
        probabilities of them, and four figures of each judged position (see ``batch.Outcome``). ``drafted``: the tokens
        that the target was fed for this text. ``judged``: how many positions of it were judged.
        """
        fed, count = len(drafted), int(values[0])
        emitted = [int(value) for value in values[1 : 1 + width]][: min(count, fed) + 1]
        probability = values[1 + width : 1 + 2 * width]
        rest = values[1 + 2 * width :]
        positions = len(rest) // 4
        strict, divergence, p, q = (rest[i * positions : (i + 1) * positions] for i in range(4))
        accepted = min(count, fed)
        ended = next((i + 1 for i, token in enumerate(emitted) if token in eos), None)
        if ended is not None:  # what was drafted behind the end was neither kept nor refused
            emitted, drafted, accepted = emitted[:ended], drafted[:ended], min(accepted, ended)
            self.stop_reason = "eos"
        self.history += emitted
        if self.stop_reason is None and self.remaining_tokens <= 0:
            self.stop_reason = self._limited_by
        shown = min(judged, len(emitted))
        return RoundRecord(
            drafted=tuple(drafted),
            accepted=accepted,
            emitted=tuple(emitted),
            kinds=tuple(_kind(i, count, fed, strict) for i in range(len(emitted))),
            divergence=tuple(divergence[:shown]),
            target_probability=tuple(p[:shown]),
            draft_probability=tuple(q[:shown]),
            emitted_probability=tuple(probability[: len(emitted)]),
            seconds=0.0,
        )


def _kind(position: int, count: int, fed: int, strict: Sequence[float]) -> Kind:
    if fed == 0:
        return "plain"
    if position < count and not strict[position]:
        return "lenient"
    if position == fed:
        return "bonus"
    return "strict" if position < count else "correction"
