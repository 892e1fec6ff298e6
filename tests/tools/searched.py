"""Calibrations that have ended, in which settings solve what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.summary import calibration_status
from fsd_core.config import DecodingConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.evaluation.aggregate import summarise
from fsd_core.review.evidence import fresh_rounds
from fsd_core.storage.repository import Repository
from fsd_plugins.training import generators
from tests.tools.plausible import PROVENANCE, generation, record

CHOOSING, FRESH, MARGIN = 16, 112, 5.0
FOUND = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1, 0.2, 0.4", "draft_length": [5]})
LOSSY = [one for one in FOUND if not one.acceptance.lossless]
SOLVED: Callable[[int], bool] = lambda place: place % 10 > 0  # noqa: E731
"""by the place of a prompt in the order of its use: what the target solves"""
ONE_LOST: Callable[[int], bool] = lambda place: SOLVED(place) and place != 61  # noqa: E731


class Searched(NamedTuple):
    """A calibration that has ended."""

    repository: Repository
    id: str
    config: CalibrationConfig
    outcome: Outcome

    def runs(self, decoding: DecodingConfig) -> list[str]:
        setting = SettingConfig(pair=self.config.pair, decoding=decoding).id
        return [run.id for run in fresh_rounds(self.repository, self.id, setting)]


def search(
    repository: Repository, solved: Mapping[DecodingConfig, Callable[[int], bool]],
    target: Callable[[int], bool] = SOLVED, margin: float = MARGIN,
) -> Searched:  # fmt: skip
    """A calibration in which the lossy settings solve these prompts, and everything exact what the target does."""
    config = CalibrationConfig(
        name="Sums", decodings=tuple(FOUND), margin=margin, limit=CHOOSING + FRESH, choosing=CHOOSING, minutes=1000
    )  # fmt: skip
    id, problems = repository.create_experiment(config, enqueue=False), generators.held_out_long(600)
    places = {position: place for place, position in enumerate(config.round_runs(FOUND, 0, 600)[0].positions(600))}
    while isinstance(at := calibration_status(repository, config, repository.experiment(id).runs), CalibrationStep):
        for run in repository.runs(repository.extend_experiment(id, config.round_runs(at.decodings, at.start, at.end))):
            repository.start_run(run.id, PROVENANCE)
            speed = 4.0 if run.decoding == config.target else 2.0 if run.decoding.acceptance.lossless else 1.0
            texts = []
            for position in run.config.positions(600):
                right = solved.get(run.decoding, target)(places[position])
                text = generation(run, position, problems[position])
                seconds = speed * (
                    1 + 0.01 * (position % (5 + FOUND.index(run.decoding) if run.decoding in FOUND else 7))
                )
                texts.append(
                    replace(text, outcome="correct" if right else "wrong", seconds=seconds, cpu_seconds=seconds)
                )
            record(repository, run.id, texts)
            repository.finish_run(run.id, summarise(texts, (text.records for text in texts)))
    return Searched(repository, id, config, at)
