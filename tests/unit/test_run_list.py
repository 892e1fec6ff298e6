"""Every run says of which pair it is, and its recorded rounds become the tokens of its page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard.compare.compared_runs import compare
from dashboard.compare.comparison_html import comparison_html
from dashboard.compare.export import csv_text, latex, markdown, matched_csv
from dashboard.experiments.experiments_page import experiments_html
from dashboard.playground.job_panels import OutputPanel, output_panel_html
from dashboard.runs.opened_run import displayed_tokens
from dashboard.runs.opened_run import header_html as run_header_html
from dashboard.runs.run_list import ALL, RUNS, RunFilterValues
from dashboard.settings import SETTINGS, MeasuredSetting
from dashboard.settings import header_html as setting_header_html
from fsd_core.analysis.cells import run_names
from fsd_core.config import DecodingConfig, RunConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.errors import ModelUnavailable
from fsd_core.models.model_pairs import pair_title
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished, finish, new_repository, sweep
from tests.tools.real_tokens import HOSTILE, save_tokenizer

TITLE, OTHER = "Bundled arithmetic pair", "path:elsewhere"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """An experiment of the bundled pair, and one of a pair in a folder on a task that is gone."""
    repository = new_repository(tmp_path_factory.mktemp("home"))
    add_finished(repository, "First", limit=3)
    elsewhere = sweep("Second", limit=3).model_copy(update={"pair": OTHER})
    for run in repository.experiment(repository.create_experiment(elsewhere, enqueue=False)).runs:
        finish(repository, run)
    repository.create_run(RunConfig(task="gone@0123456789abcdef"))
    return repository


def test_a_pair_without_a_title_is_called_by_its_name() -> None:
    assert pair_title("bundled") == TITLE
    assert pair_title(OTHER) == OTHER


def test_filters_offer_the_values_that_occur_and_the_one_that_an_address_asks_for(repository: Repository) -> None:
    values = RunFilterValues.of(repository)
    assert values.choices("pair", ALL) == [(TITLE, "bundled"), (OTHER, OTHER)]
    assert [name for _, name in values.choices("task", ALL)] == ["arithmetic", "gone"]
    assert {"speculative", "autoregressive"} < {name for _, name in values.choices("algorithm", ALL)}
    assert "block" not in {name for _, name in values.choices("algorithm", ALL)}
    assert ("Qwen 2.5 7B with 0.5B", "qwen2.5-7b") in values.choices("pair", "qwen2.5-7b")
    assert values.knows("pair", OTHER)
    assert values.knows("task", "gsm8k")
    assert not values.knows("pair", "<b>")


def test_the_lists_and_the_playground_name_the_pair(repository: Repository) -> None:
    runs, experiments = RUNS.html(repository.runs(limit=50)), repository.experiments()
    cards = experiments_html(experiments, {})
    for name in (TITLE, OTHER):
        assert f">{name}</td>" in runs
        assert f"<p>{name} · arithmetic · " in cards
    assert {view.pair for view in repository.experiment_names(9)} == {"bundled", OTHER}
    assert {view.pair for view in repository.run_names(50)} == {"bundled", OTHER}
    assert f">{TITLE}</p>" in output_panel_html(1, OutputPanel(DecodingConfig()), "bundled")


def test_the_list_has_the_columns_that_are_chosen(repository: Repository) -> None:
    runs = repository.runs(limit=50)
    assert RUNS.html(runs) == RUNS.html(runs, columns="nonsense,")
    assert ">Tokens/s" not in RUNS.html(runs)
    few = RUNS.html(runs, "newest", "throughput,accuracy,<b>")
    sorted_by = re.findall(r'class="fsd-sort".*?data-keep="(\w+)"', few)
    assert sorted_by == ["label", "accuracy", "tokens_per_second"]  # as they stand in the list
    assert TITLE not in few
    assert RUNS.columns_of("nonsense,") == RUNS.columns_of("")
    assert (RUNS.names_of(RUNS.columns_of("")), RUNS.names_of([])) == ("", "setting")
    assert RUNS.columns_of(RUNS.names_of([])) == ("setting",)


def test_a_comparison_and_its_exports_name_the_pairs(repository: Repository) -> None:
    mixed = compare(repository, [run.id for run in repository.runs(limit=50)], None)
    table = comparison_html(mixed)
    assert f">{TITLE}, arithmetic, 3 of 3 prompts" in table
    assert f">{OTHER}, arithmetic, 3 of 3 prompts" in table
    assert {row["setting.pair"] for row in _rows(csv_text(mixed))} == {"bundled", OTHER}

    experiment = next(view for view in repository.experiments() if view.config.pair == OTHER)
    alike = compare(repository, [run.id for run in experiment.runs], None)
    assert f"\\caption{{{OTHER}, arithmetic, n = 3 prompts. Intervals" in latex(alike)
    assert {row["pair"] for row in _rows(matched_csv(alike))} == {OTHER}


def test_a_named_pair_is_called_so_at_every_door(home: Path, call: Callable[..., Any]) -> None:
    """Settings keep their ids. Without a name the pair is called by its models again."""
    repository = new_repository(home)
    models = name_of_models({"target": "/m/target", "draft": "/m/draft"})
    repository.add_pair("support-7b", models, "Ann")
    asked = sweep("", limit=3).model_copy(update={"pair": models})
    ids = [run.setting.id for run in asked.runs()]
    experiment = repository.experiment(repository.create_experiment(asked, enqueue=False))
    other = sweep("Other", limit=3).model_copy(update={"pair": name_of_models({"target": "/n/target"})})
    for run in experiment.runs + repository.experiment(repository.create_experiment(other, enqueue=False)).runs:
        finish(repository, run)
    experiment = repository.experiment(experiment.id)
    assert [run.setting_id for run in experiment.runs] == ids
    assert experiment.runs[0].pair == models
    assert experiment.name == "arithmetic on support-7b"

    def doors() -> dict[str, str]:
        mine = repository.runs(experiment_id=experiment.id, limit=None)
        alike, mixed = (compare(repository, [run.id for run in runs], None) for runs in (mine, repository.runs()))
        setting = repository.setting(mine[0].setting_id)
        return {
            "list of runs": str(RUNS.html(mine)),
            "run": str(run_header_html(mine[0], None)),
            "filter": str(RunFilterValues.of(repository).choices("pair", ALL)),
            "experiments": str(experiments_html([experiment], {})),
            "playground": str(output_panel_html(1, OutputPanel(DecodingConfig()), models)),
            "comparison": str(comparison_html(alike)),
            "figure": str(run_names(repository.runs())),
            "warning": str(mixed.warnings),
            "Markdown": markdown(alike, "Mine"),
            "LaTeX": latex(alike),
            "setting": str(setting_header_html(setting, mine, [])),
            "settings": str(SETTINGS.html([MeasuredSetting(one) for one in repository.settings()])),
        }

    for door, shown in doors().items():
        assert "support-7b" in shown, door
        assert "target with draft" not in shown, door
    assert {run.pair for run in repository.runs(search="support-7b")} == {models}
    assert {setting.pair for setting in repository.settings(search="support-7b")} == {models}

    repository.add_pair("again", models, "Bob")
    repository.add_pair("support-7b", models, "Bob")  # says nothing new
    assert pair_title(models) == "support-7b"
    repository.add_pair("support-7b", name_of_models({"target": "/else/where"}), "Ann")
    assert pair_title(models) == "again"
    repository.remove_pair("again")
    assert pair_title(models) == "target with draft"
    new_repository(home / "other")  # is gone at once
    repository.add_pair("named", models, "Ann")
    assert pair_title(models) == "named"
    assert " named " in call("runs")[1]


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def one_round(ids: list[int], rejected: int) -> RoundRecord:
    """All of ``ids`` but the last were accepted, and that one stands in place of ``rejected``."""
    n = len(ids)
    strict: list[Kind] = ["strict"] * (n - 1)
    return RoundRecord(
        drafted=(*ids[:-1], rejected), accepted=n - 1, emitted=tuple(ids), kinds=(*strict, "correction"),
        divergence=tuple(i / 10 for i in range(n)), target_probability=(0.5,) * n, draft_probability=(0.4,) * n,
        emitted_probability=(0.3,) * n, seconds=0.1,
    )  # fmt: skip


def test_the_texts_joined_are_the_decoded_text_also_inside_characters(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    ids = tokenizer.encode(HOSTILE).ids
    shown = displayed_tokens(f"path:{tmp_path}", [one_round([i], 5) for i in ids])
    assert "".join(token.text for token in shown) == HOSTILE
    assert [token.id for token in shown] == ids
    assert displayed_tokens(f"path:{tmp_path}", []) == []


def test_a_text_that_ends_inside_a_character_is_told_with_what_is_left(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    ids = tokenizer.encode("a🙂").ids[:-1]
    texts = [token.text for token in displayed_tokens(f"path:{tmp_path}", [one_round(ids, 5)])]
    assert "".join(texts) == tokenizer.decode(ids) != "a"


def test_numbers_belong_to_judged_tokens_and_a_correction_names_what_it_replaces(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    a, b, c = tokenizer.encode("abc").ids
    first, last = displayed_tokens(f"path:{tmp_path}", [one_round([a, b], c)])
    assert (first.divergence, first.p, first.q) == (0.0, 0.5, 0.4)
    assert first.rejected is None
    assert (last.kind, last.divergence, last.rejected, last.probability) == ("correction", 0.1, "c", 0.3)

    bonus = RoundRecord((a,), 1, (a, b), ("strict", "bonus"), (0.2,), (0.5,), (0.5,), (0.5, 0.6), 0.1)
    assert displayed_tokens(f"path:{tmp_path}", [bonus])[1].p is None


def test_a_damaged_tokenizer_is_told_in_a_sentence(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "target" / "tokenizer.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="tokenizer of the pair"):
        displayed_tokens(f"path:{tmp_path}", [])


def test_marks_of_the_runs_model_are_shown_where_they_are_special_tokens(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    tokenizer.add_special_tokens(["[MUSE]", "[/MUSE]"])
    tokenizer.save(str(tmp_path / "target" / "tokenizer.json"))
    ids = tokenizer.encode("[MUSE]a[/MUSE]b").ids
    texts = [
        "".join(token.text for token in displayed_tokens(f"path:{tmp_path}", [one_round(ids, 5)], marks))
        for marks in ("", "[MUSE] … [/MUSE]")
    ]
    assert texts == ["ab", "[MUSE]a[/MUSE]b"]
