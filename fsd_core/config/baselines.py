"""Baselines of a comparison: the target alone, exact SD, block verification, the draft alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.drafting import BeamsTopology, ChainTopology, DrafterConfig, TopologyConfig
from fsd_core.rules import Autoregressive, BeamSampling, Block, DraftOnly, Rule, Speculative, SpeculativeBeams

USUAL_BASELINES = (Autoregressive().kind, Speculative().kind)
"""kinds of the rules that a setting is compared with, the target alone first"""


def with_baselines(decodings: Sequence[DecodingConfig], *, everything: bool = False) -> list[DecodingConfig]:
    """Return the settings, preceded by the target alone and by exact SD.

    Exact SD runs with each drafter and each topology of the settings; a chain replaces several drafts. ``everything``:
    all of :func:`baselines_of` come first.
    """
    baselines = baselines_of(decodings)
    if not everything:
        baselines = [
            decoding
            for decoding in baselines
            if decoding.acceptance.kind in (*USUAL_BASELINES, BeamSampling().kind)
            and decoding.sampling == decodings[0].sampling
        ]
    return list(dict.fromkeys([*baselines, *decodings]))


def baselines_of(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the baselines that a comparison at matched points needs.

    They are the target alone, exact SD with each drafter and topology, block verification of each chain whose drafter
    has a distribution, and the draft alone. A rule that truncates the target adds the target alone with the same
    truncation, if sampling options express it.
    """
    first = decodings[0]
    shapes = _shapes(decodings)

    def drafted(rule: Rule, drafter: DrafterConfig, topology: TopologyConfig) -> DecodingConfig:
        return DecodingConfig(acceptance=rule, drafter=drafter, topology=topology, **first.shared)

    exact = [drafted(Speculative(), *shape) for shape in shapes]
    block = [
        drafted(Block(), drafter, topology)
        for drafter, topology in shapes
        if topology.judged_as in Block.shapes and drafter.has_distribution
    ]
    single_models = [DecodingConfig(acceptance=rule, **first.shared) for rule in (Autoregressive(), DraftOnly())]
    alone = [single_models[0], *truncated(decodings), *beam_samplings(decodings)]
    return list(dict.fromkeys([*alone, *exact, *block, single_models[1]]))


def beam_samplings(decodings: Iterable[DecodingConfig]) -> list[DecodingConfig]:
    """Return beam sampling with as many beams as each setting of speculative beams may have, which is their law."""
    return list(
        dict.fromkeys(
            DecodingConfig(
                acceptance=BeamSampling(beams=decoding.acceptance.widest(decoding.topology.drafts)), **decoding.shared
            )
            for decoding in decodings
            if isinstance(decoding.acceptance, SpeculativeBeams) and isinstance(decoding.topology, BeamsTopology)
        )
    )


def with_exact_baselines(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the candidates of a calibration: the settings, preceded by exact SD and block verification of their
    drafts."""
    exact = (
        decoding
        for decoding in baselines_of(decodings)
        if decoding.acceptance.lossless and not decoding.acceptance.baseline
    )
    return list(dict.fromkeys([*exact, *decodings]))


def truncated(decodings: Iterable[DecodingConfig]) -> list[DecodingConfig]:
    """Return the target alone with the truncation of each rule that truncates, if sampling options express it.

    At temperature 0 the target alone already equals that.
    """
    baselines: dict[DecodingConfig, None] = {}
    for decoding in decodings:
        confined = decoding.sampling.confined(decoding.acceptance.truncation)
        if confined not in (None, decoding.sampling):
            baselines[DecodingConfig(**decoding.shared | {"acceptance": Autoregressive(), "sampling": confined})] = None
    return list(baselines)


def missing(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return those of :func:`baselines_of` that are not among the settings."""
    return [decoding for decoding in baselines_of(decodings) if decoding not in decodings] if decodings else []


def _shapes(decodings: Iterable[DecodingConfig]) -> list[tuple[DrafterConfig, TopologyConfig]]:
    """Return every drafter with every topology among the settings; a chain replaces several drafts and beams."""
    return list(
        dict.fromkeys(
            (
                decoding.drafter,
                decoding.topology
                if decoding.topology.judged_as in Speculative.shapes
                else ChainTopology(length=decoding.topology.length),
            )
            for decoding in decodings
            if decoding.drafter is not None and decoding.topology is not None
        )
    )
