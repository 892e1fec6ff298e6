"""The acceptance rules, one file and one line each. They say which drafted tokens are kept. Nothing imports torch."""

from __future__ import annotations

from typing import cast

from fsd_core.plugins import Registry, classes_of
from fsd_core.rules.base import (
    CHAIN,
    SEVERAL,
    TREE,
    AcceptanceResult,
    Knob,
    MissingRule,
    Rule,
    passes,
    residual,
)
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
from fsd_core.rules.k_seq import KSeq
from fsd_core.rules.one_judged import FirstDraft, GreedyOptimal, NaiveSampling, SpecHub
from fsd_core.rules.recursive import RecursiveRejection, RecursiveRejectionWithout
from fsd_core.rules.several import Coupled, Drafts, DraftSampling, Verifier
from fsd_core.rules.speculative import Speculative
from fsd_core.rules.synthetic import Synthetic
from fsd_core.values import kind_of

__all__ = [
    "CHAIN",
    "DIVERGENCES",
    "EVERY_RULE",
    "INFINITE_WITHOUT_Q",
    "OVER_TOP_K",
    "RULES",
    "SEVERAL",
    "TOP_K",
    "TREE",
    "VERIFIERS",
    "AcceptanceResult",
    "Autoregressive",
    "Coupled",
    "DivergenceName",
    "DraftOnly",
    "DraftSampling",
    "Drafts",
    "FirstDraft",
    "Fuzzy",
    "FuzzyOfficial",
    "FuzzyReducible",
    "GreedyOptimal",
    "KSeq",
    "Knob",
    "MissingRule",
    "NaiveSampling",
    "RecursiveRejection",
    "RecursiveRejectionWithout",
    "Rule",
    "SpecHub",
    "Speculative",
    "Synthetic",
    "Verifier",
    "divergence_upper_bound",
    "passes",
    "residual",
]

_BUILT_IN: tuple[type[Rule], ...] = (
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
)


EVERY_RULE: Registry[type[Rule]] = Registry(lambda: _BUILT_IN, kind_of, classes_of(Rule))
"""by their ``kind``, in the order in which they are offered"""
RULES = EVERY_RULE.where(lambda rule: not rule.timing_only)
"""those that a user may choose"""
VERIFIERS = cast("Registry[type[Verifier]]", RULES.where(lambda rule: issubclass(rule, Verifier)))
"""those of several drafts per position"""
