"""Lossless verifiers of several drafts per position: couplings, computed in :mod:`fsd_core.acceptance.multi_draft`."""

from __future__ import annotations

from typing import ClassVar, Literal

from fsd_core.rules.base import SEVERAL, Rule

DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts are drawn: each from q; one after the other from what is left of q; or the
likeliest of q, and one drawn from the rest."""


class Verifier(Rule):
    """A lossless verifier of several drafts per position."""

    lossless, shapes = True, (SEVERAL,)
    note = (
        "Meant for sampling: at temperature 0 the text is that of SD, with more to check. More drafts pay off where a "
        "forward over many tokens costs little more than one over a few."
    )
    sampling: ClassVar[DraftSampling] = "with_replacement"
    optimal: ClassVar[bool] = False
    """whether no verifier accepts drafts of its kind more often"""


class RecursiveRejection(Verifier):
    """Tests each draft in turn against the residual of p."""

    title, long_title = "RRS", "RRS · several drafts in turn"
    explanation = "Tests each draft in turn. After a rejection, the next one is tested against the target's residual."
    kind: Literal["rrs"] = "rrs"


class RecursiveRejectionWithout(Verifier):
    """The same as RRS, for drafts that are all different."""

    title, sampling = "RRS without replacement", "without_replacement"
    long_title = "RRS without replacement · several different drafts"
    explanation = "As RRS, with drafts that all begin with different tokens."
    kind: Literal["rrs-without-replacement"] = "rrs-without-replacement"


class KSeq(Verifier):
    """Tests each draft against the same lowered p."""

    title, long_title = "K-SEQ", "K-SEQ · several drafts, one test"
    explanation = "Gives every draft the same test: the target's probability over the draft's, lowered by one factor."
    kind: Literal["k-seq"] = "k-seq"


class NaiveSampling(Verifier):
    """Writes a sample of p, and accepts a draft that equals it."""

    title, long_title = "NSS", "NSS · several drafts, the target's sample"
    explanation = "Samples from the target, and keeps a draft that happens to equal the sample."
    kind: Literal["nss"] = "nss"


class FirstDraft(Verifier):
    """Speculative decoding on the first draft. Its recovered token may be another of the drafts."""

    title, long_title = "Naive", "Naive · several drafts, the first judged"
    explanation = "SD on the first draft. If it is rejected, the recovered token may be another of the drafts."
    kind: Literal["naive"] = "naive"


class GreedyOptimal(Verifier):
    """The optimal verifier of greedy drafts."""

    title, sampling, optimal = "Greedy, optimal", "greedy", True
    long_title = "Greedy, optimal · likeliest drafts and one sampled"
    explanation = "Drafts the likeliest tokens and a sampled one. No other verifier accepts such drafts more often."
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class SpecHub(Verifier):
    """The draft's likeliest token as a hub, and one other: the optimal verifier of two greedy drafts."""

    title, long_title, sampling, drafts = "SpecHub", "SpecHub · two drafts", "greedy", 2
    explanation = "Drafts the likeliest token and a sampled one. No other verifier accepts two such drafts more often."
    kind: Literal["spec-hub"] = "spec-hub"
