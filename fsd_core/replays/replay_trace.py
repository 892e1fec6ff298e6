"""The data that a strict run records for replay. docs/replay.md documents their file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from fsd_core.config import SamplingConfig, TemplateConfig
from fsd_core.config.template_config import TemplateField
from fsd_core.frozen import Frozen

TRACE_VERSION = 1
TRACED_DIVERGENCES = ("kl", "reverse-kl", "js", "tv", "ag")
"""divergences between raw rows that are stored exactly"""
ENTROPIES = ("target", "draft")
SCALARS = (
    "uniform", "log_sum", "max_p", *TRACED_DIVERGENCES, *(f"entropy_{name}" for name in ENTROPIES),
    "entropy_sampled", "variation",
)  # fmt: skip
"""columns of one number per position, besides those of whole numbers"""
WHOLE = ("token", "place", "best", "strict", "rank", "ties")
RAW, SAMPLED = ("target", "draft"), ("target_sampled", "draft_sampled")


class Costs(Frozen):
    """Milliseconds of a pair's passes on the machine that recorded; medians.

    ``target_alone``: a round that drafts nothing. ``rounds``: a round of strict decoding, by draft length.
    ``draft_pass``: one more token by the draft. ``rules``: a rule's arithmetic beyond the strict rule's, at the longest
    of these lengths.
    """

    target_alone: float = Field(gt=0)
    rounds: dict[int, float] = Field(min_length=1)
    draft_pass: float = Field(ge=0)
    rules: dict[str, float] = Field(default_factory=dict)


class TraceInfo(Frozen):
    """Metadata that all positions of a trace share."""

    version: int = TRACE_VERSION
    pair: str
    task: str
    seed: int
    prompts: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    """number of the target's logits"""
    tokenizer: str
    """first 16 hex digits of the SHA-256 of the tokenizer's vocabulary"""
    sampling: SamplingConfig
    template: TemplateField = TemplateConfig()
    draft_length: int = Field(ge=1)
    """γ; a round also judges the position of the bonus"""
    max_new_tokens: int = Field(ge=1)
    top: int = Field(ge=3)
    """how many of the likeliest tokens of either model are stored individually at a position"""
    costs: Costs | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_restricted(self) -> bool:
        """Whether top-k, top-p or min-p exclude tokens."""
        return bool(self.sampling.cut)

    @property
    def rows_kept(self) -> tuple[str, ...]:
        """The distributions that are stored. Sampled ones are stored only if they do not follow from raw ones."""
        is_raw = self.sampling.greedy or (self.sampling.temperature == 1 and not self.is_restricted)
        return RAW if is_raw else (*RAW, *SAMPLED)


@dataclass(frozen=True, eq=False)
class PromptTrace:
    """The n judged positions of one prompt in R rounds, in order.

    Columns, [n] each, are named in ``WHOLE`` and ``SCALARS``. token: the drafted token. place, best: index of that
    token, and of the target's likeliest, among the kept tokens. strict: whether the strict test accepts it with
    ``uniform``. rank: how many tokens the target finds likelier. ties: how many tokens the target finds likeliest.
    log_sum: log-sum-exp of the target's logits. entropy_sampled: entropy of p as sampled, or of the raw p if greedy.
    variation: total variation of the sampled distributions.
    """

    prompt: int
    """position in the task"""
    prompt_hash: str | None
    """of the token ids that were fed; ``None`` in traces that are older"""
    tokens: int
    """length of the strict answer"""
    limit: int
    """maximum length of the answer"""
    seconds: float
    """time of the strict answer, recording included"""
    rounds: np.ndarray
    """int [R,3]: start in the answer, positions judged (0 if nothing was drafted), tokens written"""
    columns: dict[str, np.ndarray]
    kept: list[list[int]]
    """tokens that are stored individually, ascending, [n][own]"""
    rows: dict[str, list[list[float]]]
    """probabilities of ``kept``, by the names of ``TraceInfo.rows_kept``, [n][own]"""
    rest: dict[str, list[list[float]]]
    """probability of all other tokens, [n][1 or 2]; if top-k or top-p exclude some, of those allowed and of those
    excluded"""
    allowed: list[list[int]] | None
    """which of ``kept`` top-k and top-p allow, [n][own]; ``None`` if all are allowed"""

    @property
    def size(self) -> int:
        """Number of judged positions."""
        return len(self.kept)


@dataclass(frozen=True, eq=False)
class Trace:
    """One strict run as replay needs it."""

    info: TraceInfo
    prompts: tuple[PromptTrace, ...]

    @property
    def positions(self) -> int:
        """Number of judged positions over all prompts."""
        return sum(prompt.size for prompt in self.prompts)
