"""Lossless verifiers of several drafts per position: couplings, computed in :mod:`fsd_core.acceptance.multi_draft`."""

from __future__ import annotations

from typing import ClassVar, Literal

from fsd_core.rules.base import SEVERAL, Rule

DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts come about: each drawn from q; one after the other from what is left of q; or
the likeliest of q, and one drawn from the rest."""


class Verifier(Rule):
    """A lossless verifier of several drafts per position."""

    lossless, shapes = True, (SEVERAL,)
    note = (
        "Meant for sampling: at temperature 0 the text is that of SD, with more to check. Every draft costs, so more "
        "of them pay where a forward of many tokens costs little more than one of a few."
    )
    sampling: ClassVar[DraftSampling] = "with_replacement"
    optimal: ClassVar[bool] = False
    """whether it accepts as often as drafts of its kind can be"""


class RecursiveRejection(Verifier):
    """Each draft in turn against what is left of p."""

    title, long_title = "RRS", "RRS · several drafts in turn"
    explanation = "Each draft is tested against what the drafts before it have left of the target's distribution."
    kind: Literal["rrs"] = "rrs"


class RecursiveRejectionWithout(Verifier):
    """The same for drafts that are all different."""

    title, sampling = "RRS without replacement", "without_replacement"
    long_title = "RRS without replacement · several different drafts"
    explanation = "As RRS, with drafts that all begin with another token."
    kind: Literal["rrs-without-replacement"] = "rrs-without-replacement"


class KSeq(Verifier):
    """Each draft against the same lowered p."""

    title, long_title = "K-SEQ", "K-SEQ · several drafts, one test"
    explanation = "Every draft passes the same test: the target's probability over the draft's, lowered by one factor."
    kind: Literal["k-seq"] = "k-seq"


class NaiveSampling(Verifier):
    """A sample of p, kept where it happens to be drafted."""

    title, long_title = "NSS", "NSS · several drafts, the target's sample"
    explanation = "The target's own sample is written, and kept as drafted where a draft happens to be it."
    kind: Literal["nss"] = "nss"


class FirstDraft(Verifier):
    """Speculative decoding on the first draft, whose correction may hit another."""

    title, long_title = "Naive", "Naive · several drafts, the first judged"
    explanation = "SD on the first draft; where it is refused, the correction may be another of the drafts."
    kind: Literal["naive"] = "naive"


class GreedyOptimal(Verifier):
    """The optimal verifier of greedy drafts."""

    title, sampling, optimal = "Greedy, optimal", "greedy", True
    long_title = "Greedy, optimal · likeliest drafts and one sampled"
    explanation = (
        "The draft's likeliest tokens and one that is sampled; accepted as often as drafts of this kind can be."
    )
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class SpecHub(Verifier):
    """The draft's likeliest token as a hub, and one other: the optimal verifier of two greedy drafts."""

    title, long_title, sampling, drafts = "SpecHub", "SpecHub · two drafts", "greedy", 2
    explanation = "The draft's likeliest token and one other; accepted as often as two such drafts can be."
    kind: Literal["spec-hub"] = "spec-hub"
