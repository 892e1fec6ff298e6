"""Verification of drafts: as a chain, as a tree, or as several drafts per position."""

from __future__ import annotations

from collections.abc import Callable

from fsd_core.config import VERIFIERS, AcceptanceConfig, SamplingConfig, Verifier
from fsd_core.decoding.verification.base import Feed, Verification
from fsd_core.decoding.verification.chain import ChainVerification
from fsd_core.decoding.verification.nodes import MultiDraftNode, SingleDraftNode
from fsd_core.decoding.verification.plain import write_one
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.decoding.verification.tree import TreeVerification
from fsd_core.errors import IncompatibleOptions
from fsd_core.rules.base import CHAIN, SEVERAL, TREE

__all__ = ["Feed", "RoundResult", "Verification", "make_verification", "write_one"]


def _tree(acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    return TreeVerification(SingleDraftNode(acceptance, sampling), sampling)


def _several_drafts(acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    if not isinstance(acceptance, Verifier):
        raise IncompatibleOptions(
            f"'{acceptance.kind}' is no verifier of several drafts: choose one of {', '.join(VERIFIERS)}."
        )
    return TreeVerification(MultiDraftNode(acceptance, sampling), sampling)


_VERIFICATIONS: dict[str, Callable[[AcceptanceConfig, SamplingConfig], Verification]] = {
    CHAIN: ChainVerification,
    TREE: _tree,
    SEVERAL: _several_drafts,
}


def make_verification(judged_as: str, acceptance: AcceptanceConfig, sampling: SamplingConfig) -> Verification:
    """Return the verification of a topology's drafts, by a rule or a multi-draft verifier. ``judged_as``: from the
    topology's settings.

    Raises ``InvalidSetting`` for several drafts per position with a rule that cannot verify them.
    """
    return _VERIFICATIONS[judged_as](acceptance, sampling)
