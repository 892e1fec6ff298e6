"""Acceptance rules, one file and one line each. They decide which drafted tokens are accepted. No torch is imported."""

from __future__ import annotations

from typing import cast

from fsd_core.frozen import kind_of
from fsd_core.plugins import Registry, classes_of
from fsd_core.rules.base import (
    BEAMS,
    CHAIN,
    SEVERAL,
    TREE,
    AcceptanceResult,
    Knob,
    MissingRule,
    Rule,
    Truncation,
    passes,
    residual,
    strictly,
)
from fsd_core.rules.baseline_rules import Autoregressive, DraftOnly
from fsd_core.rules.beams import BeamSampling, SpeculativeBeams
from fsd_core.rules.block import Block
from fsd_core.rules.cactus import Cactus
from fsd_core.rules.cascade import Cascade
from fsd_core.rules.divergence_choice import (
    DIVERGENCES,
    INFINITE_WITHOUT_Q,
    OVER_TOP_K,
    TOP_K,
    DivergenceName,
    divergence_upper_bound,
)
from fsd_core.rules.ears import Ears
from fsd_core.rules.ensemble import Ensemble
from fsd_core.rules.fuzzy import Fuzzy, FuzzyOfficial
from fsd_core.rules.general import GeneralForm
from fsd_core.rules.head import Head, HeadStrict
from fsd_core.rules.k_seq import KSeq
from fsd_core.rules.lenience import Lenience
from fsd_core.rules.lookahead import Lookahead
from fsd_core.rules.margin import Margin
from fsd_core.rules.measured_series import ImportedSeries, MeasuredSeries
from fsd_core.rules.mentored import Mentored
from fsd_core.rules.one_judged import FirstDraft, GreedyOptimal, NaiveSampling, SpecHub
from fsd_core.rules.recursive import RecursiveRejection, RecursiveRejectionWithout
from fsd_core.rules.reducible import FuzzyHead, FuzzyReducible
from fsd_core.rules.served import ENGINE_TITLES, EngineName, Served
from fsd_core.rules.several import CouplingResult, Drafts, DraftSampling, Verifier
from fsd_core.rules.speculative import Speculative
from fsd_core.rules.synthetic import Synthetic
from fsd_core.rules.threshold_accept import ThresholdAccept
from fsd_core.rules.top_n_delta import TopNDelta
from fsd_core.rules.typical import Typical

__all__ = [
    "BEAMS",
    "CHAIN",
    "DIVERGENCES",
    "ENGINE_TITLES",
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
    "BeamSampling",
    "Block",
    "Cactus",
    "Cascade",
    "CouplingResult",
    "DivergenceName",
    "DraftOnly",
    "DraftSampling",
    "Drafts",
    "Ears",
    "EngineName",
    "Ensemble",
    "FirstDraft",
    "Fuzzy",
    "FuzzyHead",
    "FuzzyOfficial",
    "FuzzyReducible",
    "GeneralForm",
    "GreedyOptimal",
    "Head",
    "HeadStrict",
    "ImportedSeries",
    "KSeq",
    "Knob",
    "Lenience",
    "Lookahead",
    "Margin",
    "MeasuredSeries",
    "Mentored",
    "MissingRule",
    "NaiveSampling",
    "RecursiveRejection",
    "RecursiveRejectionWithout",
    "Rule",
    "Served",
    "SpecHub",
    "Speculative",
    "SpeculativeBeams",
    "Synthetic",
    "ThresholdAccept",
    "TopNDelta",
    "Truncation",
    "Typical",
    "Verifier",
    "divergence_upper_bound",
    "passes",
    "residual",
    "strictly",
]

_BUILT_IN: tuple[type[Rule], ...] = (
    Autoregressive,
    DraftOnly,
    Speculative,
    Block,
    FuzzyReducible,
    Fuzzy,
    FuzzyHead,
    FuzzyOfficial,
    Ensemble,
    Mentored,
    Lenience,
    Cascade,
    Head,
    HeadStrict,
    Cactus,
    Ears,
    ThresholdAccept,
    Typical,
    TopNDelta,
    Margin,
    Lookahead,
    RecursiveRejection,
    RecursiveRejectionWithout,
    KSeq,
    NaiveSampling,
    FirstDraft,
    SpecHub,
    GreedyOptimal,
    BeamSampling,
    SpeculativeBeams,
    Synthetic,
    Served,
    MeasuredSeries,
    ImportedSeries,
)


EVERY_RULE: Registry[type[Rule]] = Registry(lambda: _BUILT_IN, kind_of, classes_of(Rule))
"""all rules by ``kind``, in display order"""
RULES = EVERY_RULE.where(lambda rule: not (rule.timing_only or rule.by_endpoint or rule.logged))
"""rules that a user may select"""
VERIFIERS = cast("Registry[type[Verifier]]", RULES.where(lambda rule: issubclass(rule, Verifier)))
"""rules that verify several drafts per position"""
