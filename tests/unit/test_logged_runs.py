"""Figures measured elsewhere, logged through the one door: stored once, shown as what they are, never judged."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest

import fsd_core
from dashboard.compare import export
from dashboard.compare.compared_runs import compare
from dashboard.runs.opened_run import OpenedRun, origin_html, prompts_html, tiles_html
from dashboard.runs.run_list import runs_html
from dashboard.settings import setting_page
from dashboard.ui.templates import joined
from fsd_core.actions.answers import run_record
from fsd_core.cli.output import print_runs, run_json
from fsd_core.config import DecodingConfig
from fsd_core.errors import InvalidSetting, NoEquivalent, NotApplicable, Taken, UnfitEvidence, WrongState
from fsd_core.plots import trade_offs
from fsd_core.review.approvals import setting_of
from fsd_core.review.delivery import FORMS, deliver
from fsd_core.rules import RULES
from fsd_core.settings import Settings
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.repository import Repository
from fsd_core.storage.workspace_import import check_measurements
from fsd_core.worker import run_actions
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.run_views import decoding, metrics, run_view

SECONDS = [0.21, 0.2, 0.22]


def log(home: Path, **changed: Any) -> str:
    given: dict[str, Any] = {
        "name": "ViTTM, 4 process tokens", "family": "ViTTM", "knob": {"process tokens": 4, "memory tokens": 64},
        "prompts": 360, "correct": 350, "seconds": SECONDS, "task": "digits", "model": "trained here",
        "figures": {"MFLOP per image": (7.1, 7, 7.2)}, "origin": {"commit": "abc"}, "home": home, "mlflow": False,
    }  # fmt: skip
    return fsd_core.log_run(**given | changed)


def stored(home: Path) -> Repository:
    return run_actions.open_repository(Settings(home=home))


def test_figures_are_stored_once_with_intervals_where_the_parts_allow_them(tmp_path: Path) -> None:
    id = log(tmp_path, key="a", prompts=np.int64(360), seconds=np.array(SECONDS))
    assert log(tmp_path, key="a") == id
    assert log(tmp_path) != log(tmp_path)
    with pytest.raises(Taken):
        log(tmp_path, key="a", correct=351)
    run = stored(tmp_path).run(id)
    found = run.metrics or {}
    assert (run.status, run.prompts_done, run.decoding_seconds, run.decoding.threshold) == ("finished", 360, 0.63, 4)
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == (350 / 360, *wilson(350, 360))
    assert found["seconds_per_answer"] == pytest.approx(0.63 / 360)
    assert found["seconds_per_answer_low"] < 0.63 / 360 < found["seconds_per_answer_high"]
    assert found["tokens_per_second"] is found["acceptance_rate"] is found["drafted"] is None
    single = stored(tmp_path).run(log(tmp_path, seconds=0.63, tokens=[100, 101, 102], correct=None)).metrics or {}
    assert single["seconds_per_answer_low"] is None
    assert single["tokens_per_second"] == pytest.approx(303 / 0.63)
    assert single["tokens_per_second_low"] < 303 / 0.63
    assert (single["accuracy"], single["unscored"]) == (None, 360)
    parts = {"seconds": [0.28, 0.3, 0.32], "tokens": [100, 100, 100], "correct": 6, "figures": None}
    some = stored(tmp_path).run(log(tmp_path, failed=350, **parts)).metrics or {}
    assert (some["seconds_per_answer"], some["mean_tokens"], some["accuracy"]) == (pytest.approx(0.09), 30, 6 / 360)
    assert some["seconds_per_answer_low"] < 0.09 < some["seconds_per_answer_high"]
    none = stored(tmp_path).run(log(tmp_path, failed=360, **parts | {"correct": None})).metrics or {}
    assert (none["seconds"], none["tokens"], none["failed"]) == (pytest.approx(0.9), 300, 360)
    assert none["seconds_per_answer"] is none["mean_tokens"] is none["tokens_per_second"] is None
    given = stored(tmp_path).run(log(tmp_path, figures={"acceptance_rate": (0.5, 0.4, 0.6)})).metrics or {}
    assert [given[f"acceptance_rate{end}"] for end in ("", "_low", "_high")] == [0.5, 0.4, 0.6]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"seconds": math.nan}, "Seconds is nan: expected a finite number"),
        ({"seconds": -1.0}, r"Seconds is -1\.0: expected at least 0"),
        ({"seconds": 0}, "Seconds is 0: expected the time"),
        ({"seconds": "1"}, "Seconds is '1': expected a"),
        ({"seconds": [1, 2], "tokens": [1, 2, 3]}, "2 numbers of seconds and 3 of tokens do not divide 360 prompts"),
        ({"seconds": [1] * 361}, "361 numbers of seconds"),
        ({"prompts": 0}, "Prompts is 0: expected at least 1"),
        ({"prompts": True}, "Prompts is True: expected a"),
        ({"prompts": 2**31}, "Prompts is 2147483648: expected at most"),
        ({"correct": 361}, "361 correct and 0 failed are more than the 360 prompts"),
        ({"correct": 350, "failed": 11}, "350 correct and 11 failed are more"),
        ({"correct": 1.5}, r"Correct is 1\.5: expected a"),
        ({"correct": None, "seconds": None, "figures": None}, "There is nothing to log"),
        ({"name": "a\nb"}, "name of a measured series 'a"),
        ({"name": "a\x00"}, "name of a measured series"),
        ({"name": " "}, "name of a measured series"),
        ({"family": "x" * 81}, "1 to 80 readable characters"),
        ({"name": 3}, "Name is 3: expected a"),
        ({"knob": math.inf}, "finite number"),
        ({"knob": {"a": 1, " a ": 2}}, "A knob is named twice"),
        ({"knob": {"a\x1b": 1}}, "name of a knob"),
        ({"knob": {str(i): i for i in range(7)}}, "Values"),
        ({"figures": {"accuracy": 0.9}}, "'accuracy' follows from the counts"),
        ({"figures": {"acceptance_rate": 50}}, "'acceptance_rate' is 50: expected a share from 0 to 1"),
        ({"figures": {"a": (1, 2, 3)}}, "'a' is 1, outside of its interval 2 to 3"),
        ({"figures": {"<b>": 1}}, "The figure's name '<b>' cannot be used"),
        ({"figures": {"a": math.nan}}, "finite number"),
        ({"figures": {"a": 1e16}}, r"expected at most 1e\+15"),
        ({"origin": {"commit": "a\nb"}}, "origin's commit"),
        ({"origin": {"parts": [1]}}, "is no text and no number"),
        ({"origin": {"a": math.inf}}, "expected a finite number"),
        ({"task": ""}, "task's name ''"),
        ({"model": "m\x07"}, "model's name"),
        ({"key": "k" * 201}, "The key cannot be used"),
    ],
)  # fmt: skip
def test_nonsense_is_a_sentence_and_nothing_is_kept(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence) as caught:
        log(tmp_path, **changed)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_every_door_says_that_they_were_measured_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    ids = [log(home, name="ViT", family="ViT", knob=None, correct=352), log(home, origin={"note": "<b>loud</b>"})]
    repository = stored(home)
    runs = [repository.run(id) for id in ids]
    assert [run.label for run in runs] == ["Measured elsewhere · ViT", "Measured elsewhere · ViTTM, 4 process tokens"]
    answer = run_record(runs[1])
    assert answer["measured_elsewhere"] is not None
    assert answer["measured_elsewhere"]["knobs"] == {"process tokens": 4, "memory tokens": 64}
    assert answer["measured_elsewhere"]["figures"]["MFLOP per image"]["low"] == 7
    assert json.loads(json.dumps(run_json(runs[1])))["other_figures"] == {"MFLOP per image": [7.1, 7, 7.2]}
    print_runs(runs)
    assert "nothing here has verified these figures (logged with fsd_core.log_run" in capsys.readouterr().out
    prompts = prompts_html(runs[1].id, [], None, False, elsewhere=True)
    page = joined([tiles_html(runs[1]), origin_html(runs[1]), prompts])
    assert all(text in page for text in ("MFLOP per image", "&lt;b&gt;loud&lt;/b&gt;", "no verdict", "No prompts"))
    assert not runs[1].has_more_to_do
    comparison = compare(repository, ids, None)
    assert any("2 runs were measured elsewhere" in warning for warning in comparison.warnings)
    assert all(row.verdict is None and not any(cell.delta for cell in row.cells) for row in comparison.rows)
    rows = list(csv.DictReader(io.StringIO(export.csv_text(comparison))))
    assert [row["figure MFLOP per image"] for row in rows] == ["7.1", "7.1"]
    assert rows[1]["measured_elsewhere"].startswith("logged with fsd_core.log_run")
    assert rows[1]["setting.decoding.acceptance.process tokens"] == "4.0"
    assert "2 runs were measured elsewhere" in export.html(comparison)
    for draw in {**trade_offs.COMPARISON_FIGURES, **trade_offs.MATCHED}.values():
        draw(comparison.runs, comparison.baseline, comparison.prompts)
    with repository._database.session(readonly=True) as session:  # what an import of the workspace would check
        check_measurements(session)


def test_its_pages_open_without_prompts_and_offer_neither_a_resumption_nor_a_proposal(tmp_path: Path) -> None:
    repository = stored(tmp_path)
    run = repository.run(log(tmp_path))

    def build() -> OpenedRun:
        with gr.Blocks(analytics_enabled=False):
            return OpenedRun(repository, None)

    opened = built(build)
    fields = {opened.outcome: "all", opened.search: "", opened.order: ""}
    updates = opened.redraw(asked(dict.fromkeys(opened.panel.fields) | fields), run.id)
    assert "measured elsewhere are kept here" in updates[opened.prompts]
    assert "logged with fsd_core.log_run" in updates[opened.tiles]
    assert "Resume" not in updates[opened.head]
    assert "Measured elsewhere · ViTTM, 4 process tokens" in runs_html([run], filtered=False)
    page = setting_page(repository, run.setting_id)
    assert "there is nothing here to run" in page
    assert "review?propose=" not in page


def test_the_figure_counts_answers_where_nothing_has_tokens_and_never_puts_them_on_the_front(tmp_path: Path) -> None:
    runs = [stored(tmp_path).run(log(tmp_path, knob=knob, correct=300 + knob)) for knob in (2, 4)]
    found = trade_offs.tradeoff_info(runs)
    assert (found.speed, found.front, found.left_out) == (trade_offs.ANSWERS, [], 0)
    (line,) = found.groups
    assert line.name == "Measured elsewhere · ViTTM"
    assert [point.threshold for point in line.points] == [2, 4]
    point = line.points[0]
    assert point.speed == pytest.approx(360 / 0.63)
    assert point.speed_low < point.speed < point.speed_high
    ours = run_view(decoding("speculative"), metrics(acceptance=0.5))
    mixed = trade_offs.tradeoff_info([ours, *runs])
    assert (mixed.speed, mixed.left_out, [p.run_id for p in mixed.front]) == (trade_offs.TOKENS, 2, [ours.id])
    with_tokens = stored(tmp_path).run(log(tmp_path, tokens=1e6))
    assert [p.run_id for p in trade_offs.tradeoff_info([ours, with_tokens]).front] == [ours.id]


def test_nothing_runs_proposes_or_delivers_them(tmp_path: Path) -> None:
    repository = stored(tmp_path)
    first, second = (repository.run(log(tmp_path, knob=knob)) for knob in (2, 4))
    assert {"measured", "imported"}.isdisjoint(RULES)
    with pytest.raises(UnfitEvidence, match="nothing here can verify"):
        setting_of(repository, [first.id], [second.id])
    for form in FORMS:
        with pytest.raises(NoEquivalent):
            deliver(first.config.setting, form)
    with pytest.raises(WrongState):
        repository.reopen_runs([first.id])
    method = DecodingConfig.model_validate(first.decoding.as_json())
    assert (method, method.without_knob()) == (first.decoding, second.decoding.without_knob())
    with pytest.raises(NotApplicable):
        method.acceptance.refuse()
