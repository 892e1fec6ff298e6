"""Strings that are searched for in a text while it is written: marks of thoughts, and strings that end it.

Both are strings, which a tokenizer may cut into any tokens, so they are looked for in the text of the last tokens. A
round ends with the token that completes one: whatever was drafted after it has been judged as if it had not been
written. That changes no distribution, because the tokens before it alone decide that the others are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fsd_core.models.thoughts import CHANNELS, MARKS

_ENDS = dict((*MARKS, *CHANNELS))
"""end marks of thoughts, by their begin marks"""
_SLACK = 8
"""tokens looked at beyond the longest string, for some have no character of their own"""


class Mark(NamedTuple):
    """A string that was completed: the number of new tokens up to there, and the string."""

    tokens: int
    text: str


class TextMarks:
    """Looks for strings in texts. ``decode``: token ids to text, special tokens included. ``stops``: strings that end a
    text. ``thoughts``: whether marks of thoughts are looked for, those of the model's ``own`` template among them."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], stops: Sequence[str], *, thoughts: bool,
        own: Iterable[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self._decode, self.stops, self._ends = decode, tuple(stops), _ENDS | dict(own) if thoughts else {}
        self._window = _SLACK + max(map(len, (*stops, *self._ends, *self._ends.values())))

    def opened(self, prompt: Sequence[int]) -> str | None:
        """Return the end mark of the thought that a prompt leaves open, if any. Some templates open one."""
        text = self._decode(prompt[-self._window :]).rstrip()
        return next((end for begin, end in self._ends.items() if text.endswith(begin)), None)

    def first(self, history: Sequence[int], emitted: Sequence[int], thought: str | None) -> Mark | None:
        """Return the first string that new tokens complete. ``history``: the tokens before them. ``thought``: the end
        mark of the text's open thought."""
        wanted = (*self.stops, *((thought,) if thought is not None else self._ends))
        window = list(history[-self._window :])
        before = len(self._decode(window))

        def completed(count: int) -> str | None:
            text = self._decode([*window, *emitted[:count]])
            return next((mark for mark in wanted if text.find(mark, max(0, before - len(mark) + 1)) >= 0), None)

        if completed(len(emitted)) is None:
            return None
        return next(Mark(count, mark) for count in range(1, len(emitted) + 1) if (mark := completed(count)))

    def after(self, mark: str) -> str | None:
        """Return the end mark of the thought that ``mark`` opens; ``None`` if it opens none."""
        return self._ends.get(mark)
