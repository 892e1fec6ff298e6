"""Verification of several drafts per position; rules for single drafts are in :mod:`fsd_core.rules`."""

from fsd_core.rules import Rule as AcceptanceRule
from fsd_core.rules import Verdict

__all__ = ["AcceptanceRule", "Verdict", "make_rule"]


def make_rule(config: AcceptanceRule) -> AcceptanceRule:
    return config
