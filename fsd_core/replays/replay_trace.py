"""What a strict run leaves for replay, as values. docs/replay.md documents the same as it is written to a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from fsd_core.config import SamplingConfig
from fsd_core.frozen import Frozen

TRACE_VERSION = 1
TRACED_DIVERGENCES = ("kl", "reverse-kl", "js", "tv", "ag")
"""those of the raw rows that are kept exactly"""
ENTROPIES = ("target", "draft")
SCALARS = (
    "uniform", "log_sum", "max_p", *TRACED_DIVERGENCES, *(f"entropy_{name}" for name in ENTROPIES),
    "entropy_sampled", "variation",
)  # fmt: skip
"""one number for each position, beside whole numbers"""
WHOLE = ("token", "place", "best", "strict", "rank", "ties")
RAW, SAMPLED = ("target", "draft"), ("target_sampled", "draft_sampled")


class Costs(Frozen):
    """What a pair's passes take on the machine that recorded, in milliseconds; medians.

    ``target_alone``: a round that drafts nothing. ``rounds``: a round of strict decoding, by draft length.
    ``draft_pass``: one token more by the draft. ``rules``: what a rule's arithmetic takes beyond the strict rule's, at
    the longest of these lengths.
    """

    target_alone: float = Field(gt=0)
    rounds: dict[int, float] = Field(min_length=1)
    draft_pass: float = Field(ge=0)
    rules: dict[str, float] = Field(default_factory=dict)


class TraceInfo(Frozen):
    """What a trace is of: all that its positions share."""

    version: int = TRACE_VERSION
    pair: str
    task: str
    seed: int
    prompts: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    """logits of the target"""
    tokenizer: str
    """first 16 hex digits of the SHA-256 of the tokenizer's vocabulary"""
    sampling: SamplingConfig
    draft_length: int = Field(ge=1)
    """γ; a round judges one position more, that of the bonus"""
    max_new_tokens: int = Field(ge=1)
    top: int = Field(ge=3)
    """tokens that are told apart at a position: so many of the likeliest of either model"""
    costs: Costs | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_restricted(self) -> bool:
        """Whether top-k, top-p or min-p exclude tokens."""
        return bool(self.sampling.cut)

    @property
    def rows_kept(self) -> tuple[str, ...]:
        """The distributions that are written down. What is sampled is written where it follows from no other."""
        is_raw = self.sampling.greedy or (self.sampling.temperature == 1 and not self.is_restricted)
        return RAW if is_raw else (*RAW, *SAMPLED)


@dataclass(frozen=True, eq=False)
class PromptTrace:
    """The judged positions of one prompt, n of them in R rounds, in order.

    Columns, [n] each, are named in ``WHOLE`` and ``SCALARS``: token: drafted there. place, best: where that token, and
    the target's likeliest, are among the kept tokens. strict: whether the strict test keeps it with ``uniform``. rank:
    tokens that the target finds likelier. ties: tokens that it finds likeliest. log_sum: of the target's logits.
    entropy_sampled: of p as it is sampled, greedily of the raw p. variation: of what is sampled.
    """

    prompt: int
    """its position in the task"""
    tokens: int
    """of the strict answer"""
    limit: int
    """tokens that the answer could have had"""
    seconds: float
    """of the strict answer, recording included"""
    rounds: np.ndarray
    """int [R,3]: where it begins in the answer, positions judged (0 where nothing was drafted), tokens written"""
    columns: dict[str, np.ndarray]
    kept: list[list[int]]
    """tokens that are told apart, rising, [n][own]"""
    rows: dict[str, list[list[float]]]
    """probabilities of ``kept``, by the names of ``TraceInfo.rows_kept``, [n][own]"""
    rest: dict[str, list[list[float]]]
    """probability of all other tokens, and where top-k or top-p exclude some, of those it leaves and of those it
    excludes, [n][1 or 2]"""
    allowed: list[list[int]] | None
    """which of ``kept`` top-k and top-p leave, [n][own]; ``None`` where all are"""

    @property
    def size(self) -> int:
        """Judged positions."""
        return len(self.kept)


@dataclass(frozen=True, eq=False)
class Trace:
    """One strict run as replay needs it."""

    info: TraceInfo
    prompts: tuple[PromptTrace, ...]

    @property
    def positions(self) -> int:
        """Judged positions of all prompts."""
        return sum(prompt.size for prompt in self.prompts)
