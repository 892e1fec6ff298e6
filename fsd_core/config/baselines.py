"""What stands beside the rules of a comparison: the target alone, exact SD, block verification, the draft alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.drafting import ChainTopology, DrafterConfig, TopologyConfig
from fsd_core.rules import SEVERAL, Autoregressive, Block, DraftOnly, Rule, Speculative

USUAL_BASELINES = (Autoregressive().kind, Speculative().kind)
"""kinds of the rules that a setting is held against, the target alone first"""


def with_baselines(decodings: Sequence[DecodingConfig], *, everything: bool = False) -> list[DecodingConfig]:
    """The same settings behind the target alone and exact SD: with each drafter in each shape that a rule of single
    drafts judges among them, and a chain where there is none. ``everything``: behind all of :func:`beside`."""
    wanted = beside(decodings)
    if not everything:
        wanted = [
            one for one in wanted if one.acceptance.kind in USUAL_BASELINES and one.sampling == decodings[0].sampling
        ]
    return list(dict.fromkeys([*wanted, *decodings]))


def beside(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """What a comparison at matched points needs beside these settings: the target alone, exact SD in each shape, block
    verification of each chain whose drafter has a distribution, the draft alone, and for rules that truncate the target
    alone with the same truncation, where sampling can be truncated so."""
    first = decodings[0]
    shared = {"sampling": first.sampling, "max_new_tokens": first.max_new_tokens}
    shapes = _shapes(decodings)

    def drafted(rule: Rule, drafter: DrafterConfig, topology: TopologyConfig) -> DecodingConfig:
        return DecodingConfig(acceptance=rule, drafter=drafter, topology=topology, **shared)

    exact = [drafted(Speculative(), *shape) for shape in shapes]
    block = [
        drafted(Block(), drafter, topology)
        for drafter, topology in shapes
        if topology.judged_as in Block.shapes and drafter.has_distribution
    ]
    alone = [DecodingConfig(acceptance=rule, **shared) for rule in (Autoregressive(), DraftOnly())]
    return list(dict.fromkeys([alone[0], *truncated(decodings), *exact, *block, alone[1]]))


def exact_beside(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """The same settings behind exact SD and block verification of their drafts: what a calibration chooses from."""
    exact = (one for one in beside(decodings) if one.acceptance.lossless and not one.acceptance.baseline)
    return list(dict.fromkeys([*exact, *decodings]))


def truncated(decodings: Iterable[DecodingConfig]) -> list[DecodingConfig]:
    """The target alone, sampled with the truncation of each setting that truncates and whose truncation sampling has.
    At temperature 0 the target alone is that already."""
    found: dict[DecodingConfig, None] = {}
    for one in decodings:
        confined = one.sampling.confined(one.acceptance.truncation)
        if confined not in (None, one.sampling):
            alone = {"sampling": confined, "max_new_tokens": one.max_new_tokens}
            found[DecodingConfig(acceptance=Autoregressive(), **alone)] = None
    return list(found)


def missing(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Those of :func:`beside` that are not among the settings."""
    return [one for one in beside(decodings) if one not in decodings] if decodings else []


def _shapes(decodings: Iterable[DecodingConfig]) -> list[tuple[DrafterConfig, TopologyConfig]]:
    """Every drafter with every structure of single drafts among the settings; a chain in place of several drafts."""
    return list(
        dict.fromkeys(
            (
                one.drafter,
                one.topology if one.topology.judged_as != SEVERAL else ChainTopology(length=one.topology.length),
            )
            for one in decodings
            if one.drafter is not None and one.topology is not None
        )
    )
