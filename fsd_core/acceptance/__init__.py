"""What is kept: one class per rule, made from its configuration by :func:`make_rule`."""

from __future__ import annotations

from fsd_core.acceptance.base import AcceptanceRule, Verdict
from fsd_core.acceptance.fuzzy import FuzzyOfficialRule, FuzzyReducibleRule, FuzzyRule
from fsd_core.acceptance.speculative import SpeculativeRule
from fsd_core.acceptance.synthetic import SyntheticRule
from fsd_core.config import AcceptanceConfig, Fuzzy, FuzzyOfficial, FuzzyReducible, Speculative, Synthetic, Verifier
from fsd_core.errors import InvalidSetting

__all__ = ["AcceptanceRule", "Verdict", "make_rule"]


def make_rule(config: AcceptanceConfig) -> AcceptanceRule:
    """The rule that a configuration names. Raises ``InvalidSetting`` for the baselines, which judge nothing."""
    match config:
        case Speculative():
            return SpeculativeRule()
        case Fuzzy():
            return FuzzyRule(config)
        case FuzzyReducible():
            return FuzzyReducibleRule(config)
        case FuzzyOfficial():
            return FuzzyOfficialRule(config)
        case Synthetic():
            return SyntheticRule(config)
        case Verifier():
            raise InvalidSetting(f"'{config.kind}' judges several drafts of a position: see acceptance.couplings.")
        case _:
            raise InvalidSetting(f"'{config.kind}' drafts nothing, so it has no acceptance rule.")
