"""One prompt of one run, and the conditions under which it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fsd_core.conditions import Conditions
from fsd_core.decoding.trace import RoundRecord


@dataclass(frozen=True, kw_only=True)
class _Generation:
    position: int
    """index of the prompt in the task"""
    example_id: str
    prompt: str
    """the question, without earlier turns"""
    turn: int = 0
    """how many turns of its conversation stand before it, at the positions right before its own"""
    group: str = ""
    """the group of prompts that it belongs to, which depend on each other; empty for a prompt that stands alone, and
    before revision 0033"""
    prompt_hash: str | None = None
    """of the token ids that were fed, as rendered; ``None`` for prompts of before revision 0012, and for those that
    could not be rendered"""
    reference: str | None
    text: str
    answer: str | None
    """extracted from the text"""
    outcome: str
    """correct, wrong, truncated, failed or unscored"""
    stop_reason: str
    """eos, length, context or error"""
    error: str | None
    tokens: int
    thought_tokens: int = 0
    """those of them that belong to thoughts, with their marks; 0 for texts of before revision 0011"""
    rounds: int
    drafted: int
    accepted: int
    fuzzy: int
    """lenient tokens: drafted, and accepted although the strict test would have rejected them"""
    negative_log_likelihood: float
    """of the emitted tokens under the target, in nats"""
    seconds: float
    time_to_first_token: float
    """seconds"""
    cpu_seconds: float | None = None
    """processor time of the process meanwhile; ``None`` if another device computed, and before revision 0018"""
    latency: float | None = None
    """wall seconds from its request to its end, whatever else was decoded meanwhile; ``seconds`` are its share of them.
    ``None`` before revision 0025"""
    energy: float | None = None
    """joules that the GPU took for it; ``None`` where none says, and before revision 0031"""
    device_memory: int | None = None
    """bytes of the GPU's memory in use at its end; ``None`` as above"""

    @property
    def timed(self) -> bool:
        """Whether its times count in metrics."""
        return True

    @property
    def unread(self) -> bool:
        """Whether it was not cut off, and no answer could be read in it."""
        return self.outcome == "wrong" and self.answer is None

    @property
    def only_thought(self) -> bool:
        """Whether all of it belongs to a thought, as of a text that was cut off inside of one."""
        return 0 < self.thought_tokens == self.tokens


@dataclass(frozen=True, kw_only=True)
class GenerationRecord(_Generation):
    """One prompt of one run as it is recorded, with its trace."""

    records: list[RoundRecord] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class GenerationView(_Generation):
    """One prompt of one run as it is read back, without its trace."""

    id: int
    run_id: str
    sitting_id: int | None
    """``None`` if it was measured before measurement sessions were recorded, or not at all"""
    created_at: datetime


@dataclass(frozen=True)
class MeasurementSession:
    """Prompts of a run that were measured under the same conditions."""

    id: int
    conditions: Conditions
    """empty if not recorded"""
    started_at: datetime | None
    """when the first of its prompts was recorded"""


class PromptCounts(NamedTuple):
    """Counts of one prompt of one run, from which all metrics are computed."""

    outcome: str
    stop_reason: str
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    fuzzy: int
    negative_log_likelihood: float
    seconds: float
    time_to_first_token: float
    thought_tokens: int = 0
    prompt_hash: str | None = None
    turn: int = 0
    cpu_seconds: float | None = None
    latency: float | None = None
    group: str = ""
    energy: float | None = None
    device_memory: int | None = None
    unread: bool = False
    text: str = ""
    """read only if a metric of another package may need it"""
    timed: bool = True
    """whether its times count: false where its setting was timed again on other prompts"""


Prompts = Mapping[str, Mapping[int, PromptCounts]]
"""by run and position of the prompt"""
