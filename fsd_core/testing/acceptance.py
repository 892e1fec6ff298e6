"""The contract of an acceptance rule. A new rule joins with one line in ``CASES``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.stats import chisquare
from torch import Tensor

from fsd_core.acceptance import AcceptanceRule, make_rule
from fsd_core.config import AcceptanceConfig, Fuzzy, FuzzyOfficial, FuzzyReducible, Speculative
from fsd_core.ops.rows import Rows
from fsd_core.ops.sampling import draw

CASES: tuple[AcceptanceConfig, ...] = (
    Speculative(),
    Fuzzy(threshold=None),
    Fuzzy(divergence="js", threshold=0.1),
    Fuzzy(divergence="kl", threshold=0.3),
    Fuzzy(divergence="random", threshold=0.5),
    FuzzyReducible(threshold=None),
    FuzzyReducible(divergence="js", threshold=0.1),
    FuzzyReducible(divergence="tv", threshold=0.3),
    FuzzyReducible(divergence="top-k-reverse-kl", threshold=0.3, divergence_top_k=3),
    FuzzyOfficial(threshold=0.4),
)

P = torch.tensor([0.30, 0.25, 0.15, 0.12, 0.08, 0.05, 0.05, 0.00])
Q_NEAR = torch.tensor([0.25, 0.30, 0.17, 0.10, 0.08, 0.05, 0.05, 0.00])
Q_FAR = torch.tensor([0.05, 0.05, 0.10, 0.10, 0.20, 0.20, 0.00, 0.30])


@dataclass(frozen=True)
class Trial:
    """What a rule wrote at one position, many times over. emitted int64 [N]; accepted, strict: bool [N]."""

    emitted: Tensor
    accepted: Tensor
    strict: Tensor


def is_lossless(config: AcceptanceConfig) -> bool:
    """Whether this very configuration promises the target's distribution."""
    rule = make_rule(config)
    return rule.lossless or getattr(config, "threshold", 0.0) is None


def try_position(
    rule: AcceptanceRule, p: Tensor, q: Tensor, count: int, seed: int, allowed: Tensor | None = None
) -> Trial:
    """Drafts from q and judges against p, ``count`` times at once. p, q: [V]; allowed: bool [V]."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(4, count, 1, generator=generator, dtype=torch.float64)
    wide = [x.expand(count, 1, -1) for x in (p, q)]
    greedy = torch.zeros_like(q).index_fill(0, q.argmax(), 1) if rule.greedy_draft else q
    drafted = draw(greedy.expand(count, 1, -1), u[0])
    mask = None if allowed is None else allowed.expand(count, 1, -1)
    rows = Rows(drafted, wide[0], greedy.expand(count, 1, -1), wide[0], wide[1], mask)
    verdict = rule.judge(rows, u[1], u[2])
    correction = draw(rule.correction(rows, verdict.divergence), u[3])
    emitted = torch.where(verdict.accepted, drafted, correction)
    return Trial(emitted[:, 0], verdict.accepted[:, 0], verdict.strict[:, 0])


def fit(emitted: Tensor, law: Tensor) -> float:
    """p-value of a χ² test that ``emitted`` [N] was drawn from ``law`` [V]; 0 if something impossible was drawn."""
    counts = torch.bincount(emitted, minlength=law.numel()).double()
    possible = law > 0
    if counts[~possible].any():
        return 0.0
    expected = law[possible].double() / law.double().sum() * counts.sum()
    return float(chisquare(counts[possible].numpy(), expected.numpy()).pvalue)
