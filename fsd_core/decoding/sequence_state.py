"""The host's state of one text being written."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.config import RecentAcceptance
from fsd_core.decoding.text_marks import TextMarks
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.ops.sampling import UniformStream


class SequenceState:
    """Prompt and continuation, its limit, and the uniforms that decide it.

    ``limit``: maximum number of tokens to write; ``limited_by``: its reason. ``marks``: what is looked for in it.
    ``stop_reason``: ``None`` until the end.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        limit: int,
        limited_by: str,
        uniforms: UniformStream,
        marks: TextMarks | None = None,
    ) -> None:
        self.history = list(prompt)
        self.uniforms = uniforms
        self.stop_reason: str | None = None
        self.acceptance = RecentAcceptance()
        self._marks = marks
        self._thought = None if marks is None else marks.opened(prompt)
        self._prompt_length, self._limit, self._limited_by = len(prompt), limit, limited_by

    @property
    def written_tokens(self) -> int:
        """Number of answer tokens so far."""
        return len(self.history) - self._prompt_length

    @property
    def is_thinking(self) -> bool:
        """Whether the text is inside of a thought. Known only if thoughts are looked for."""
        return self._thought is not None

    @property
    def remaining_tokens(self) -> int:
        """Number of tokens that may still be written."""
        return self._limit - self.written_tokens

    def take(
        self, values: Sequence[float], drafted: Sequence[int], judged: int, width: int, eos: frozenset[int]
    ) -> RoundRecord:
        """Apply a round's result and return its record, untimed.

        ``values``: read from the device: the number of accepted drafted tokens, ``width`` emitted tokens, their
        probabilities, and four figures for each judged position (see ``RoundResult``). ``drafted``: the tokens that the
        target was fed for this text. ``judged``: how many of its positions were judged.
        """
        fed, count = len(drafted), int(values[0])
        emitted = [int(value) for value in values[1 : 1 + width]][: min(count, fed) + 1]
        probability = values[1 + width : 1 + 2 * width]
        figures = values[1 + 2 * width :]
        positions = len(figures) // 4
        strict, divergence, p, q = (figures[i * positions : (i + 1) * positions] for i in range(4))
        accepted = min(count, fed)
        self.acceptance = self.acceptance.after(accepted, fed)
        end = next((i + 1 for i, token in enumerate(emitted) if token in eos), None)
        if end is not None:
            self.stop_reason = "eos"
        marks = self._marks
        if marks is not None and (mark := marks.first(self.history, emitted[:end], self._thought)):
            end, self._thought = mark.tokens, marks.after(mark.text)
            self.stop_reason = "eos" if mark.text in marks.stops or emitted[end - 1] in eos else None
        if end is not None:  # drafts after it were neither accepted nor rejected
            emitted, drafted, accepted = emitted[:end], drafted[:end], min(accepted, end)
        self.history += emitted
        if self.stop_reason is None and self.remaining_tokens <= 0:
            self.stop_reason = self._limited_by
        recorded = min(judged, len(emitted))
        return RoundRecord(
            drafted=tuple(drafted),
            accepted=accepted,
            emitted=tuple(emitted),
            kinds=tuple(_kind(i, count, fed, strict) for i in range(len(emitted))),
            divergence=tuple(divergence[:recorded]),
            target_probability=tuple(p[:recorded]),
            draft_probability=tuple(q[:recorded]),
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
