"""Whether the knob of a running engine does anything, by what it wrote at the strict value and at the loosest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError
from fsd_core.rules import Rule, Served

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import GenerationView, RunView


def check_knob(repository: Repository, config: CalibrationConfig, runs: Sequence[RunView]) -> None:
    """Raise ``FsdError`` if the knob of an engine does nothing, or if it counts no drafted tokens although a share of
    them is the goal.

    A knob does nothing if the engine wrote the same texts at its strict value and at the loosest of each rule, and
    drafted and accepted as many tokens. Nothing is checked for our own loop, before the first prompts are done, and
    where drafted tokens are not counted.
    """
    if config.endpoint is None:
        return
    first = {run.decoding: run for run in runs if not run.config.first and run.status == "finished"}
    strict = first.get(config.target)
    if strict is None:
        return
    texts = repository.generations(strict.id)
    accepted, drafted = sum(g.accepted for g in texts), sum(g.drafted for g in texts)
    if not drafted:
        if config.goal == "acceptance":
            raise FsdError(
                f"The endpoint '{config.endpoint.endpoint}' counts no drafted tokens, or wrote for others too, so no "
                "share of them can be promised: choose another goal."
            )
        return
    loosest = [first[decoding] for decoding in _loosest(config.decodings) if decoding in first]
    if loosest and all(_same(texts, repository.generations(run.id)) for run in loosest):
        labels = " and at ".join(run.decoding.label for run in loosest)
        raise FsdError(
            f"The knob of the endpoint '{config.endpoint.endpoint}' does nothing: at its strict value and at {labels} "
            f"it wrote the same {len(texts)} texts, and accepted {accepted} of {drafted} drafted tokens each time. "
            "Expected a server that is told its rule as docs/engines.md says, or wider values of the knob."
        )


def _loosest(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the setting of each kind of rule whose knob is the most lenient."""
    kinds: dict[str, dict[float, DecodingConfig]] = {}
    knobs: dict[str, Rule] = {}
    for decoding in decodings:
        rule = decoding.acceptance.rule if isinstance(decoding.acceptance, Served) else None
        if rule is not None and rule.knob is not None and rule.knob_value is not None:
            kinds.setdefault(rule.kind, {})[rule.knob_value] = decoding
            knobs[rule.kind] = rule
    loosest = []
    for kind, settings in kinds.items():
        knob = knobs[kind].knob
        assert knob is not None
        loosest.append(settings[knob.by_leniency(settings)[-1]])
    return loosest


def _same(texts: Sequence[GenerationView], others: Sequence[GenerationView]) -> bool:
    def written(generations: Sequence[GenerationView]) -> list[tuple[int, str, int, int]]:
        return [(g.position, g.text, g.drafted, g.accepted) for g in generations]

    return written(texts) == written(others)
