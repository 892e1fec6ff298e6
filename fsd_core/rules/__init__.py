"""What is kept of a draft: the acceptance rules, one file and one line each. Nothing here imports torch."""

from __future__ import annotations

from fsd_core.plugins import installed
from fsd_core.rules.base import CHAIN, SEVERAL, TREE, Knob, Rule, Verdict, kinds
from fsd_core.rules.baselines import Autoregressive, DraftOnly
from fsd_core.rules.divergences import (
    DIVERGENCES,
    INFINITE_WITHOUT_Q,
    OVER_TOP_K,
    TOP_K,
    DivergenceName,
    divergence_upper_bound,
)
from fsd_core.rules.fuzzy import Fuzzy, FuzzyOfficial, FuzzyReducible
from fsd_core.rules.several import (
    DraftSampling,
    FirstDraft,
    GreedyOptimal,
    KSeq,
    NaiveSampling,
    RecursiveRejection,
    RecursiveRejectionWithout,
    SpecHub,
    Verifier,
)
from fsd_core.rules.speculative import Speculative
from fsd_core.rules.synthetic import Synthetic

__all__ = [
    "ACCEPTANCES",
    "BASELINES",
    "CHAIN",
    "DIVERGENCES",
    "EVERY_RULE",
    "INFINITE_WITHOUT_Q",
    "LOSSLESS",
    "OVER_TOP_K",
    "RULES",
    "SEVERAL",
    "TOP_K",
    "TREE",
    "VERIFIERS",
    "Autoregressive",
    "DivergenceName",
    "DraftOnly",
    "DraftSampling",
    "Fuzzy",
    "FuzzyOfficial",
    "FuzzyReducible",
    "Knob",
    "Rule",
    "Speculative",
    "Synthetic",
    "Verdict",
    "Verifier",
    "divergence_upper_bound",
]

EVERY_RULE: dict[str, type[Rule]] = kinds(
    (
        Autoregressive,
        DraftOnly,
        Speculative,
        FuzzyReducible,
        Fuzzy,
        FuzzyOfficial,
        RecursiveRejection,
        RecursiveRejectionWithout,
        KSeq,
        NaiveSampling,
        FirstDraft,
        SpecHub,
        GreedyOptimal,
        Synthetic,
        *installed(Rule),
    )
)
"""by their ``kind``, in the order in which they are offered"""
RULES = {kind: rule for kind, rule in EVERY_RULE.items() if not rule.timing_only}
"""those that a user may choose"""
VERIFIERS: dict[str, type[Verifier]] = {kind: rule for kind, rule in RULES.items() if issubclass(rule, Verifier)}
"""those of several drafts per position"""
ACCEPTANCES = tuple(RULES)
BASELINES = tuple(kind for kind, rule in RULES.items() if rule.baseline)
LOSSLESS = tuple(kind for kind, rule in RULES.items() if rule.lossless)
