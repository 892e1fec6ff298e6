"""One experiment at every place: each figure of the table in docs/figures.md is the same number wherever it stands."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fsd_core
from dashboard.compare.compare_page import compare_runs
from dashboard.compare.compared_runs import ComparedRuns, compare
from dashboard.compare.comparison_html import comparison_html
from dashboard.compare.export import csv_text
from dashboard.review.opened_proposal import evidence_html, proposal_html
from dashboard.runs.opened_run import further_tiles_html, tiles_html
from dashboard.runs.run_list import RUNS
from dashboard.settings import setting_page
from fsd_core.actions.action import Ask
from fsd_core.calibration.findings import Measurements
from fsd_core.calibration.findings import speedup as calibrated_speedup
from fsd_core.cli.output import run_json
from fsd_core.library.measuring import Comparison
from fsd_core.metrics import METRICS
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.tracking import MlflowMirror, prepare_store

PROMPTS = 8
TABLE = Path(__file__).parents[2] / "docs" / "figures.md"
LENIENT = 3
"""row of the run that is held against the target alone"""
TITLES = {
    "speedup": "Time per answer", "mean_tokens_ratio": "Answer length", "accuracy_difference": "Accuracy",
    "lenient_tokens": "Lenient tokens", "taken_share": "Taken by other programs",
}  # fmt: skip


class Cells(HTMLParser):
    """The texts of a page's tables, row by row, and of its tiles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tiles: dict[str, str] = {}
        self._open: list[str] | None = None
        self._name = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th", "dt", "dd"):
            self._open = []
        elif self._open is not None:
            self._open.append(" ")

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("td", "th", "dt", "dd") or self._open is None:
            return
        text, self._open = " ".join("".join(self._open).split()), None
        if tag == "dt":
            self._name = text
        elif tag == "dd":
            self.tiles[self._name] = text
        elif self.rows:
            self.rows[-1].append(text)


class Places:
    """One measured experiment, and what each place says of its lenient run."""

    def __init__(self, repository: Repository, swept: Comparison, store: str) -> None:
        self.repository, self.swept, self.store = repository, swept, store
        self.runs = [repository.run(run.id) for run in swept.runs]
        self.run, self.target = self.runs[LENIENT], self.runs[0]
        self.comparison: ComparedRuns = compare(repository, [run.id for run in self.runs], self.target.id)
        self.readers: dict[str, Callable[[str], Any]] = {
            "Compare": self.compare_page, "Run": self.run_page, "Runs": self.list_page, "Settings": self.setting_page,
            "Review": self.review_tiles, "requirement": self.requirement, "calibration": self.calibration,
            "CSV": self.csv, "API": self.api, "CLI": self.cli, "library": self.library, "MLflow": self.mlflow,
            "MLflow's duration": self.duration,
        }  # fmt: skip

    def exact(self, key: str) -> float:
        """The number itself, as it is stored or follows from the prompts."""
        if key in ("speedup", "mean_tokens_ratio", "accuracy_difference"):
            return float(self.csv(key))
        return float((self.run.metrics or {})[key])

    def compare_page(self, key: str) -> str:
        rows = Cells(comparison_html(self.comparison)).rows
        title = TITLES.get(key) or METRICS[key].title
        column = next(i for i, name in enumerate(rows[0]) if name.startswith(title))
        cell = next(row for row in rows if row[0].startswith(self.comparison.rows[LENIENT].name))[column]
        if key in ("speedup", "mean_tokens_ratio"):
            return re.findall(r"[\d.]+×", cell)[0]
        if key == "accuracy_difference":
            return "0" if "no prompt differs" in cell else re.findall(r"[+−]?[\d.]+ pts", cell)[0]
        return cell

    def run_page(self, key: str) -> str:
        tiles = Cells(tiles_html(self.run) + further_tiles_html(self.run)).tiles
        tile = tiles[TITLES.get(key) or METRICS[key].title]
        if key in ("speedup", "mean_tokens_ratio"):
            return re.findall(r"[\d.]+×", tile)[0]
        return tile

    def list_page(self, key: str) -> str:
        header, row = Cells(RUNS.html([self.run])).rows[:2]
        titles = [title.rstrip(" ↕↑↓") for title in header]  # a button sorts by each
        return row[titles.index(METRICS[key].listed)]

    def setting_page(self, key: str) -> str:
        header, row = Cells(setting_page(self.repository, self.run.setting_id)).rows[:2]
        return row[header.index("× target" if key == "speedup" else METRICS[key].title)]

    def _proposal(self) -> str:
        service, ann = ReviewService(self.repository), Person("Ann", "admin")
        use = next(iter(service.uses()), None) or service.describe(
            ann, "One", requirements=Requirements(margin=20.0, least_speedup=0.01)
        )
        found = next(iter(use.proposals), None) or service.propose(ann, use.id, [self.run.id], [self.target.id])
        return proposal_html(service.review(found), self.run.label) + evidence_html(service.review(found))

    def review_tiles(self, key: str) -> str:
        return Cells(self._proposal()).tiles["Times as fast" if key == "speedup" else TITLES[key]]

    def requirement(self, key: str) -> str:
        row = {"speedup": "Speed", "accuracy_difference": "Accuracy"}[key]
        return next(cells[2] for cells in Cells(self._proposal()).rows if cells and cells[0] == row)

    def calibration(self, key: str) -> float:
        assert key == "speedup"
        prompts = self.repository.prompts([self.run.id, self.target.id])
        counts = {run.decoding: prompts[run.id] for run in (self.run, self.target)}
        found = calibrated_speedup(Measurements(range(PROMPTS), counts), self.run.decoding, self.target.decoding, 0, 99)
        assert found is not None
        return found.value

    def csv(self, key: str) -> float:
        frame = pd.read_csv(io.StringIO(csv_text(self.comparison)))
        return frame.iloc[LENIENT][key]

    def api(self, key: str) -> float:
        ask = Ask(Settings(), repository=self.repository)
        rows = compare_runs(ask, [run.id for run in self.runs], "", self.target.id)["rows"]
        return rows[LENIENT][key]

    def cli(self, key: str) -> float:
        told = json.loads(json.dumps(run_json(self.run)))
        return told["speedup_versus_target" if key == "speedup" else key]

    def library(self, key: str) -> float:
        return self.swept.to_frame().iloc[LENIENT][key]

    def _copy(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.store).get_run(
            MlflowMirror(self.store).sync(self.repository, self.run.id)
        )

    def mlflow(self, key: str) -> float:
        return self._copy().data.metrics["speedup_versus_target" if key == "speedup" else key]

    def duration(self, key: str) -> str:
        assert key == "seconds"
        info = self._copy().info
        return f"{(info.end_time - info.start_time) / 1000:.3f}"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    home = tmp_path_factory.mktemp("one")
    swept = fsd_core.sweep(limit=PROMPTS, threshold=[0.02, 0.3], draft_length=8, home=home, name="One")
    settings = Settings(home=home)
    prepare_store(settings)
    database = open_database(sqlite_url(home / "fsd.db"))
    yield Places(Repository(database), swept, settings.resolved_mlflow_uri)
    database.close()


def table() -> list[tuple[str, str]]:
    """Each figure's key with each of its places."""
    rows = re.findall(r"^\|[^|]+\| `(\w+)` \|[^|]+\|([^|]+)\|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(key, place.strip()) for key, places in rows for place in places.split(",")]


def test_the_table_names_figures_and_places() -> None:
    assert len({key for key, _ in table()}) == 13
    assert len(table()) > 80


@pytest.mark.parametrize(("key", "place"), table())
def test_a_figure_is_the_same_wherever_it_stands(places: Places, key: str, place: str) -> None:
    said, exact = places.readers[place](key), places.exact(key)
    if not isinstance(said, str):
        assert float(said) == pytest.approx(exact, rel=1e-9, abs=1e-12)
        return
    number = re.search(r"[+−-]?[\d,]*\.?\d+", said)
    assert number is not None, said
    shown = float(number[0].replace(",", "").replace("−", "-"))
    unit = said[number.end() :].strip()
    in_header = place == "Compare" and key in METRICS and METRICS[key].is_share
    scale = 100.0 if unit.startswith(("%", "pts", "points")) or in_header else 1.0
    scale = 1000.0 if unit.startswith("ms") else scale
    digits = len(number[0].partition(".")[2])
    assert abs(shown - scale * exact) <= 0.5001 * 10.0**-digits, (said, exact)


def test_the_lenient_run_was_lenient_and_its_time_was_measured(places: Places) -> None:
    """So that the numbers above are none of them zero by chance."""
    metrics = places.run.metrics or {}
    assert metrics["lenient_tokens"] == metrics["fuzzy_tokens"] > 0
    assert math.isfinite(metrics["taken_share"])
    assert 0 <= metrics["taken_share"] < 1
    assert metrics["seconds_per_answer"] * PROMPTS == pytest.approx(metrics["seconds"])


def test_a_verdict_is_one_sentence_on_the_page_in_files_and_for_programs(places: Places) -> None:
    sentences = {row.verdict.sentence(2.0) for row in places.comparison.rows if row.verdict}
    text = comparison_html(places.comparison)
    frame = pd.read_csv(io.StringIO(csv_text(places.comparison)))
    assert set(frame["verdict"].dropna()) == sentences
    assert all(sentence in text for sentence in sentences)
    exact: RunView = places.runs[1]
    assert exact.decoding.acceptance.lossless
    assert frame["verdict"][1] == f"Texts identical on all {PROMPTS} prompts"
