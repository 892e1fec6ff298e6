"""The list in which runs are chosen: by experiment, each called by what tells it from its neighbours."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboard.compare.compare_page import WITHOUT_EXPERIMENT, picker_html, short_names
from fsd_core.storage.records import RunName

MOMENT = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
HOSTILE = "<img src=x>${alert(1)}"


def name(
    id: str, label: str, seed: int = 0, experiment: str | None = "Knee", task: str = "arithmetic", pair: str = "bundled"
) -> RunName:
    return RunName(id * 32, label, seed, experiment, task, MOMENT, pair)


def test_a_run_is_called_by_what_tells_it_from_its_neighbours() -> None:
    runs = [name("a", "SD"), name("b", "FSD", 0), name("c", "FSD", 1), name("d", "FSD", 1)]
    assert list(short_names(runs, tasks=False).values()) == [
        "SD", "FSD · seed 0", "FSD · seed 1 · 04 Mar 05:06 · cccccc", "FSD · seed 1 · 04 Mar 05:06 · dddddd",
    ]  # fmt: skip
    assert short_names(runs[:1], tasks=True) == {"a" * 32: "SD · arithmetic"}


def test_runs_stand_under_their_experiment_and_the_chosen_ones_are_ticked() -> None:
    html = picker_html([name("a", "SD"), name("b", HOSTILE), name("c", "SD", experiment=None)], ["b" * 32])
    assert html.count("<fieldset") == 2
    assert WITHOUT_EXPERIMENT in html
    assert f'value="{"b" * 32}" checked' in html
    assert html.count(" checked") == 1
    assert "1 run chosen" in html
    assert '<details class="pick" data-list="" data-chosen' in html
    assert "open" not in html.partition(">")[0]
    assert " open>" in picker_html([name("a", "SD")], [])
    assert "<img" not in html
    assert "${" not in html
    assert picker_html([], []) == ""


def test_the_pair_stands_once_above_a_group_or_beside_each_run_where_they_differ() -> None:
    alike = picker_html([name("a", "SD"), name("b", "FSD")], [])
    assert alike.count("Bundled arithmetic pair") == 2  # on the heading, and in what the search reads of it
    assert "04 Mar 05:06 · Bundled arithmetic pair</span>" in alike
    mixed = [name("a", "SD", experiment=None), name("b", "SD", experiment=None, pair="path:elsewhere")]
    assert list(short_names(mixed, tasks=False).values()) == ["SD · Bundled arithmetic pair", "SD · path:elsewhere"]
