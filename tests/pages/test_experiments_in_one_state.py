"""The page of experiments shows one state, starts each experiment once, and keeps what was typed."""

from __future__ import annotations

import base64
import json
import re
import shutil
from typing import Any

import pytest

from dashboard.ui.fields import UNCALIBRATED, pair_defaults
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.models.model_pairs import pair_title
from fsd_core.roles import Person
from fsd_core.storage.records import Edit, ExperimentView
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair
from tests.tools.plausible import sweep
from tests.tools.shown_page import Application, ShownPage

ANN = Person("Ann", "author")
OTHER = "SmolLM2 135M with our draft · to fetch, 92.9 MB"
LENGTHS = "Draft lengths γ"


@pytest.fixture
def page(application: Application, empty: Repository) -> ShownPage:
    """The page over an empty database."""
    return application.open("experiments", ANN)


def named(repository: Repository, name: str) -> list[ExperimentView]:
    return [view for view in repository.experiments() if view.name == name]


def card(page: ShownPage, name: str) -> str:
    return " ".join(one.text for one in page.elements("article") if name in one.text)


def cancelled(repository: Repository, name: str) -> str:
    """The id of a new cancelled experiment."""
    id = repository.create_experiment(sweep(name))
    repository.request_cancel(id)
    return id


@pytest.mark.parametrize("lost", [False, True])
def test_an_experiment_is_started_once(page: ShownPage, empty: Repository, lost: bool) -> None:
    page.type("Name", "First")
    page.press("Start experiment", lost=lost)
    assert "Added: " in page.text
    assert page.field("Name") == ""
    page.again()
    assert "queued" in card(page, "First")
    assert len(named(empty, "First")) == 1


def test_the_same_models_in_two_folders_are_one_setting(application: Application, empty: Repository) -> None:
    """The page starts experiments of both, and shows them under the first name that was given."""
    own = application.settings.home / "own-models"
    save_toy_pair(own / "one")
    shutil.copytree(own / "one", own / "two")
    for folder in ("one", "two"):
        models = name_of_models({role: f"{own}/{folder}/{role}" for role in ("target", "draft")})
        empty.add_pair(f"pair-{folder}", models, "Ann")
        page = application.open("experiments", ANN)
        page.type("Name", folder)
        page.type("Model pair", models)
        page.press("Start experiment")
        assert "Added: " in page.text
    one, two = named(empty, "one")[0].runs, named(empty, "two")[0].runs
    assert [run.setting_id for run in one] == [run.setting_id for run in two]
    assert {pair_title(run.pair) for run in (*one, *two)} == {"pair-one"}
    page = application.open("experiments", ANN)
    assert all("pair-one" in card(page, f"{name} ") for name in ("one", "two"))
    assert {setting.runs for setting in empty.settings()} == {2}


@pytest.mark.parametrize("lost", [False, True])
def test_a_setting_is_looked_for_once(page: ShownPage, empty: Repository, lost: bool) -> None:
    page.type("Name", "Found")
    page.press("Find the setting", lost=lost)
    page.again()
    assert [type(view.config) for view in named(empty, "Found")] == [CalibrationConfig]
    assert "Wanted: within 2 points of the target's accuracy" in card(page, "Found")


def test_what_is_looked_through_is_counted_alike_at_the_button_and_on_the_card(page: ShownPage) -> None:
    page.type("Choose draft lengths by replay", False)
    page.press("Find the setting", Name="Found")
    (settings,) = re.findall(r"Added: (\d+ settings) to choose from", page.text)
    page.look()
    assert f"The target and {settings} on prompts 1 to 8" in card(page, "Found")


def test_an_act_whose_answer_is_lost_archives_its_card_and_no_other(page: ShownPage, empty: Repository) -> None:
    ids = [cancelled(empty, name) for name in ("One", "Two")]
    page.look()
    page.click("Archive", ids[1])
    page.again()
    assert (card(page, "Two"), bool(card(page, "One"))) == ("", True)
    assert "Two is archived" in page.text
    assert [empty.experiment(id).archived for id in ids] == [False, True]


def test_what_a_button_of_the_list_says_stands_with_it_until_the_state_changes(
    page: ShownPage, empty: Repository
) -> None:
    id = cancelled(empty, "One")
    page.look()
    page.click("Resume", id)
    for _ in range(2):
        assert page.part("list-answer") == "One continues at its next prompt."
        page.look()
    assert empty.claim(("experiment",), 60) is not None
    empty.start_run(empty.experiment(id).runs[0].id, {})
    page.look()
    assert "running" in card(page, "One")
    assert page.part("list-answer") == ""


def test_what_is_chosen_for_the_list_outlasts_the_next_looks(page: ShownPage, empty: Repository) -> None:
    first = cancelled(empty, "One")
    page.look()
    page.click("Archive", first)
    empty.create_experiment(sweep("Two"))
    page.type("Show archived", True)
    assert card(page, "One")
    assert card(page, "Two")
    assert page.look() == set()
    page.type("Show archived", False)
    assert card(page, "One") == ""


def test_two_experiments_are_cancelled_in_one_question(page: ShownPage, empty: Repository) -> None:
    ids = [empty.create_experiment(sweep(name)) for name in ("One", "Two")]
    page.look()
    page.do_all(("cancel", {"kind": "experiment", "id": id}) for id in ids)
    assert "cancelled" in card(page, "One")
    assert "cancelled" in card(page, "Two")
    assert [empty.experiment(id).status for id in ids] == ["cancelled"] * 2


def test_the_name_of_the_next_experiment_stays(page: ShownPage, empty: Repository) -> None:
    page.type("Name", "The next one")
    page.press("Start experiment", Name="First")
    assert (page.field("Name"), len(named(empty, "First"))) == ("The next one", 1)
    page.look()
    assert page.field("Name") == "The next one"


def test_choosing_a_pair_brings_what_suits_it_and_nothing_of_the_former(page: ShownPage) -> None:
    first, other = pair_defaults("bundled"), pair_defaults("smollm2-135m")
    assert (page.field("Task"), page.field("Thresholds")) == ("arithmetic", first.thresholds)
    page.choose("Model pair", OTHER)
    assert (page.field("Task"), page.field(LENGTHS)) == ("everyday", other.lengths)
    assert page.offers("Task")[:3] == ["Everyday prompts", "Short word problems", "Arithmetic word problems"]
    page.choose("Task", "Short word problems")
    page.choose("Model pair", "Bundled arithmetic pair")
    assert (page.field("Task"), page.field("Thresholds"), page.field(LENGTHS)) == (
        "arithmetic", first.thresholds, first.lengths
    )  # fmt: skip


def test_what_is_typed_stays_while_the_page_looks_again(page: ShownPage) -> None:
    page.choose("Model pair", OTHER)
    page.type("Thresholds", "0.07")
    page.type("Prompts", 3)
    page.look()
    assert (page.field("Thresholds"), page.field("Prompts"), page.field("Task")) == ("0.07", 3, "everyday")
    assert "× 3 prompts" in page.text


def test_a_bound_stays_while_another_goal_is_chosen(page: ShownPage) -> None:
    page.type("Accuracy margin", 12.5)
    page.choose("Goal", "At least so many percent of drafted tokens accepted")
    assert page.field("Percent") == 90
    with pytest.raises(AssertionError, match="0 fields 'Accuracy margin'"):
        page.field("Accuracy margin")
    page.choose("Goal", "Accuracy within so many points of the target")
    assert page.field("Accuracy margin") == 12.5


def test_the_form_says_how_much_it_asks_for_or_what_is_wrong_and_then_does_not_start(page: ShownPage) -> None:
    page.type(LENGTHS, "5")
    assert "9 settings × 1 seed × 150 prompts = 1,350 generations" in page.text
    page.type("Thresholds", "0:0.6:7")
    page.type("Seeds", "0, 1")
    assert "11 settings × 2 seeds × 150 prompts = 3,300 generations" in page.text
    page.type("Thresholds", "0.9")
    assert "beyond the range of the divergence 'js'" in page.text
    assert "generations" not in page.answered
    assert not page.can_press("Start experiment")
    page.type("Thresholds", "0.1")
    page.type("Prompts", 12.5)
    assert "12.5: expected a whole number" in page.text
    assert page.field("Prompts") == 12.5


def test_a_link_fills_the_form_in_and_what_is_changed_stays(application: Application, empty: Repository) -> None:
    run = empty.experiment(empty.create_experiment(sweep("Like it", seeds=(3,)))).runs[1].id
    page = application.open(f"experiments?like={run}", ANN)
    assert page.field("Seeds") == "3"
    page.type("Seeds", "4, 5")
    page.type("Prompts", 5)
    assert "2 seeds × 5 prompts" in page.text
    page.look()
    assert page.field("Seeds") == "4, 5"


def test_older_experiments_are_one_click_away(page: ShownPage, empty: Repository) -> None:
    for number in range(11):
        empty.create_experiment(sweep(f"Number {number:02d}"))
    page.look()
    assert (len(page.elements("article")), card(page, "Number 00")) == (10, "")
    page.press("Show older experiments")
    assert card(page, "Number 00")


def test_an_experiment_that_somebody_deleted_is_told_at_its_button(page: ShownPage, empty: Repository) -> None:
    id = cancelled(empty, "One")
    page.look()
    empty.delete_experiment(id)
    page.click("Archive", id)
    assert "There is no experiment" in page.text
    assert card(page, "One") == ""


def test_what_was_measured_of_one_pair_is_not_shown_beside_another(application: Application, empty: Repository) -> None:
    """Not beside one that nobody has measured, and not beside a name of which nothing is known."""
    told, own = pair_defaults("bundled").sentence, name_of_models({"target": "farm/Hen-7B", "draft": "farm/Egg-1B"})
    page = application.open("experiments", ANN)
    for pair, shown in ((own, UNCALIBRATED), ("bundled", told), ("nobody", ""), ("bundled", told), (own, UNCALIBRATED)):
        page.type("Model pair", pair)
        assert [sentence for sentence in (told, UNCALIBRATED) if sentence in page.text] == [shown][: bool(shown)]


@pytest.mark.parametrize(("form", "told"), [("Question: {} + 1 = ?\nAnswer:", False), ("{} + 1 = ?", True)])
def test_a_dropped_file_is_told_for_how_much_it_does_and_whether_the_pair_knows_its_form(
    page: ShownPage, form: str, told: bool
) -> None:
    lines = [json.dumps({"question": form.format(i), "answer": f"So, all in all: #### {i + 1}"}) for i in range(200)]
    content = "\n".join(lines).encode()
    file = {"file": "sums.jsonl", "size": len(content), "data": base64.b64encode(content).decode()}
    page.do("dropped file", {"action": "check", **file, "task": "arithmetic", "limit": 100})
    assert "Scorer: Number" in page.text
    assert "these are 200: they do for 4 points or more" in page.text
    assert ("This pair knows only problems of the form" in page.text) is told
    assert ("200 prompts of this file have another" in page.text) is told
    page.choose("Model pair", OTHER)
    assert "This pair knows only" not in page.text
    page.choose("Model pair", "Bundled arithmetic pair")
    assert ("200 prompts of this file have another" in page.text) is told


def dropped(page: ShownPage, rows: list[dict[str, str]], action: str = "check", **more: Any) -> None:
    content = "\n".join(json.dumps(row) for row in rows).encode()
    file = {"file": "own.jsonl", "size": len(content), "data": base64.b64encode(content).decode()}
    page.do("dropped file", {"action": action, **file, **more, "values": page.beside("dropped file")})


def begins(page: ShownPage) -> dict[str, tuple[str | None, str | None]]:
    """What the page offers to begin on the dropped file: act and margin by the button's text."""
    buttons = [one for one in page.elements("button") if one.attributes.get("data-file") == "own-drop"]
    return {one.text: (one.attributes["data-act"], one.attributes.get("data-margin")) for one in buttons}


SUMS = [{"question": f"Question: {i} + 1 = ?\nAnswer:", "answer": str(i + 1)} for i in range(320)]


@pytest.mark.parametrize(
    ("prompts", "typed", "offered"),
    [
        (320, 2, "Find the setting within 2 points"), (320, None, "Find the setting within 2 points"),
        (200, 2, "Find the setting within 4 points"), (320, 6.5, "Find the setting within 6.5 points"),
    ],
)  # fmt: skip
def test_one_click_looks_for_the_setting_on_a_dropped_file(
    page: ShownPage, empty: Repository, prompts: int, typed: float | None, offered: str
) -> None:
    page.type("Accuracy margin", typed)
    page.type("Choose draft lengths by replay", False)
    dropped(page, SUMS[:prompts])
    margin = offered.split()[-2]
    assert begins(page) == {offered: ("find", margin)}
    assert not empty.task_versions()
    dropped(page, SUMS[:prompts], "find", margin=margin)
    page.again()
    (kept,), (view,) = empty.task_versions(), empty.experiments()
    assert isinstance(view.config, CalibrationConfig)
    assert (view.config.task, view.config.margin, view.config.limit) == (kept.full_name, float(margin), prompts)
    assert f"{kept.full_name} is in the list of tasks, with {prompts} prompts. Added: " in page.part("drop-answer")
    assert (page.field("Task"), page.field("Accuracy margin")) == (kept.full_name, float(margin))


def test_a_dropped_file_that_nothing_scores_is_compared_or_gets_a_scorer(page: ShownPage, empty: Repository) -> None:
    rows = [{"question": f"Name {i} things.", "remarks": f"All {i} of them"} for i in range(9)]
    dropped(page, rows)
    assert "Nothing says what is right, so texts are held against the target's own." in page.part("drop-answer")
    assert begins(page) == {"Compare with the target's own answers": ("measure", None)}
    assert {"number", "choice", "contains"} < {one.attributes["value"] for one in page.elements("option")}
    dropped(page, rows, scorer="exact", fields={"question": "prompt", "remarks": "reference"})
    assert "Scorer: Exact." in page.part("drop-answer")
    assert begins(page) == {"Measure my own list on it": ("measure", None)}  # too few for any margin
    dropped(page, rows, scorer="number")
    assert "so it cannot be added yet" in page.part("drop-answer")
    assert begins(page) == {}
    assert not empty.task_versions()
    dropped(page, rows, "measure")
    (kept,), (view,) = empty.task_versions(), empty.experiments()
    assert (kept.scorer, view.config.task, view.config.limit) == ("none", kept.full_name, 9)
    assert "own@" in page.part("drop-answer")


def test_a_dropped_file_stays_where_nothing_can_be_begun_on_it(page: ShownPage, empty: Repository) -> None:
    page.type("Minutes", None)
    dropped(page, SUMS, "find", margin="2")
    assert "is in the list of tasks, with 320 prompts. Minutes is empty: expected a number." in page.part("drop-answer")
    assert len(empty.task_versions()) == 1
    assert not empty.experiments()


@pytest.mark.parametrize(
    ("act", "remedy"),
    [
        ("dropped file", "add the file under “Your own tasks” with “Group near-duplicates” ticked."),
        ("custom task", "tick “Group near-duplicates”."),
    ],
)
def test_a_file_of_near_duplicates_is_told_where_to_group_them(page: ShownPage, act: str, remedy: str) -> None:
    asked = "A customer asks whether the order {} of last week can still be changed before it leaves the shop."
    lines = [json.dumps({"question": asked.format(i), "answer": str(i)}) for i in (11, 25, 73)]
    content = "\n".join(lines).encode()
    file = {"file": "shop.jsonl", "size": len(content), "data": base64.b64encode(content).decode()}
    fields = {"scorer": "number"}
    page.do(act, {"action": "check", **file, **fields, "task": "arithmetic", "limit": 100})
    assert f"give the lines of a family one group, or {remedy}" in page.text
    assert "*" not in page.part("drop-answer" if act == "dropped file" else "own-answer")


@pytest.mark.parametrize("act", ["dropped file", "custom task"])
def test_the_preview_shows_what_fields_are_taken_for_and_takes_another_choice(
    page: ShownPage, empty: Repository, act: str
) -> None:
    content = b"Frage;Quelle;Antwort\nWas ist 7 / 2?;Ulm;3,5\nWas ist 1 + 1?;Bonn;2\n"
    file = {"file": "halves.csv", "size": len(content), "data": base64.b64encode(content).decode()}
    file |= {"task": "arithmetic", "limit": 100}
    page.do(act, {"action": "check", **file})
    assert "Numbers have a decimal comma: 3,5 is read as 3.5." in page.text
    assert "Fields that are not used: 'Quelle' (2 rows)." in page.text
    assert taken(page) == {"Frage": "Prompt", "Quelle": "Left out", "Antwort": "Reference"}
    fields = {"Frage": "prompt", "Quelle": "reference", "Antwort": "category"}
    page.do(act, {"action": "check", **file, "fields": fields})
    assert taken(page) == {"Frage": "Prompt", "Quelle": "Reference", "Antwort": "Category"}
    assert "Reference: Ulm" in page.text
    page.do(act, {"action": "add", **file, "fields": fields})
    (kept,) = empty.task_versions()
    assert empty.task_content(kept.name, kept.version).splitlines() == [
        '{"scorer": "contains"}',
        '{"prompt": "Was ist 7 / 2?", "reference": "Ulm", "category": "3.5"}',
        '{"prompt": "Was ist 1 + 1?", "reference": "Bonn", "category": "2"}',
    ]


def taken(page: ShownPage) -> dict[str, str]:
    """What each field of the shown file is taken for."""
    chosen = r'data-field="([^"]*)".*?<option[^>]* selected[^>]*>([^<]*)<'
    return dict(re.findall(chosen, page.html, re.DOTALL))


def test_where_every_experiment_is_archived_none_is_said_to_be_missing(page: ShownPage, empty: Repository) -> None:
    assert "No experiment yet" in page.text
    empty.annotate("experiment", cancelled(empty, "Put away"), Edit(archived=True), ANN)
    page.look()
    assert "Every experiment is archived" in page.text
    assert "No experiment yet" not in page.text
