"""Find the setting of a real vLLM server, whose knob is turned while it runs: ``make test-engines``."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.calibration.running import calibrate
from fsd_core.config.calibration_config import CalibrationConfig, engine_candidates
from fsd_core.config.options import method
from fsd_core.models.loading import LoadedPair
from fsd_core.rules import Served
from fsd_core.storage.records import GenerationView
from fsd_core.storage.repository import Repository
from tests.engines.engine_record import EngineRecord

CHOOSING, LIMIT, MARGIN = 8, 40, 15.0


def no_pair(*_: str) -> LoadedPair:
    raise AssertionError("no pair is loaded for an engine")


def rate(generations: Sequence[GenerationView]) -> float:
    return sum(g.accepted for g in generations) / sum(g.drafted for g in generations)


def test_from_nothing_to_a_threshold_of_a_real_server(
    repository: Repository, server: Served, record: EngineRecord
) -> None:
    repository.add_engine(server, "", "Ann")
    rules = [method({"acceptance": "fsd-reducible", "threshold": js, "max_new_tokens": 64}) for js in (0.0, 0.1, 0.4)]
    config = CalibrationConfig(
        decodings=tuple(engine_candidates(server, rules)), task="arithmetic", choosing=CHOOSING, limit=LIMIT,
        margin=MARGIN, minutes=60.0,
    )  # fmt: skip
    id = repository.create_experiment(config, enqueue=False)
    outcome = calibrate(repository, id, config, no_pair)
    runs = repository.experiment(id).runs
    assert {run.status for run in runs} == {"finished"}
    assert all(g.drafted > 0 for run in runs for g in repository.generations(run.id))
    assert not any((run.metrics or {})["engine"]["other_traffic"] for run in runs)
    first = {run.decoding: repository.generations(run.id) for run in runs if not run.config.first}
    strict, zero, loose, looser = (first[decoding] for decoding in config.decodings)
    assert [g.text for g in strict] == [g.text for g in zero]
    assert rate(zero) < rate(loose) <= rate(looser)
    for finding in [outcome.chosen, *(one for one in outcome.finalists if one != outcome.chosen)]:
        record.add(
            f"`calibrate --endpoint` of a vLLM server, within {MARGIN:g} points, {CHOOSING} prompts to choose and at "
            f"most {LIMIT - CHOOSING} fresh ones, ended as {outcome.reason} (the chosen setting first)",
            {
                "setting": finding.decoding.label, "fresh prompts": f"{finding.prompts}", "keeps the promise":
                "yes" if finding.sure else "undecided", "points": f"{100 * finding.difference:+.1f}",
                "accepted / drafted": f"{finding.acceptance:.2f}", "× exact SD there": f"{finding.over_exact:.2f}",
            },
        )  # fmt: skip
