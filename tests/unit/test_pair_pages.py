"""Pairs on pages and for programs: where their models are, who may fetch them, and folders that may not be named."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import psutil
import pytest
from starlette.requests import Request

from dashboard.experiments.experiment_form import ExperimentForm
from dashboard.experiments.find_panel import FindPanel
from dashboard.experiments.own_models_panel import OwnModelsPanel, drafts_html, found_html, pair_lists
from dashboard.ui.fields import pair_badges, pair_choices, pair_defaults
from dashboard.ui.view import Asked, Question, Values
from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.actions.action import Ask
from fsd_core.actions.pairs import fetch_pair
from fsd_core.config.model_names import name_of_models
from fsd_core.errors import FsdError, OutOfRange, Refused, UnknownName, WrongState
from fsd_core.models.hub_files import FoundModel
from fsd_core.models.model_pairs import MODEL_PAIRS, SMOLLM2
from fsd_core.models.pair_check import HERE, TO_FETCH, TOO_LARGE, DraftOffers
from fsd_core.roles import Person
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair
from fsd_core.worker.pair_names import device_memory, pair_fetches
from tests.tools.built import built
from tests.tools.stand_in_hub import Repo, stand_in_hub, use_hub


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    save_toy_pair(folder)
    return folder


@pytest.fixture(autouse=True)
def own_home(home: Path) -> Iterator[Path]:
    get_settings.cache_clear()
    yield home
    get_settings.cache_clear()


def request(role: str = "author") -> Request:
    return Request({"type": "http", "state": {}, KEY: Person("Ann", role)})


def question(values: dict[Any, Any]) -> Asked:
    return Asked(Question(), values, request())  # pyright: ignore[reportArgumentType]


def endpoints(repository: Repository, settings: Settings) -> dict[str, Callable[..., Any]]:
    return {one.__name__: one for one in calls_of(repository, settings)}


def test_the_setting_is_not_looked_for_in_folders_that_may_not_be_named(repository: Repository, folder: Path) -> None:
    """Whether the folder exists is not told either."""
    settings = Settings(access="password")

    def build() -> tuple[ExperimentForm, FindPanel]:
        with gr.Blocks(analytics_enabled=False):
            form = ExperimentForm(repository, settings)
            return form, FindPanel(repository, settings, form, lambda: None)

    form, panel = built(build)
    fields = [*form.fields.values(), *panel.fields]
    values = Values({field: field.value for field in fields})
    values.key = "0" * 32
    models = name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft"})
    values[form.fields["pair"]] = models
    with pytest.raises(Refused):
        panel.queue_calibration(values, question(values))
    assert repository.experiments() == []
    panel.settings = Settings(access="password", model_roots=str(folder))
    panel.queue_calibration(values, question(values))
    assert repository.experiments()[0].config.pair == models


def test_a_small_task_takes_the_number_of_prompts_down_to_what_it_has(repository: Repository) -> None:
    def build() -> ExperimentForm:
        with gr.Blocks(analytics_enabled=False):
            return ExperimentForm(repository, Settings())

    form = built(build)
    task, limit = form.fields["task"], form.fields["limit"]
    values = {field: field.value for field in form.fields.values()} | {task: "everyday", limit: 100_000}
    chosen = question(values)
    form.clamp_prompts(chosen)
    assert chosen.filled == {limit: form.task("everyday").size}
    typed = Asked(Question(shown=chosen.shown), values, request())  # pyright: ignore[reportArgumentType]
    form.clamp_prompts(typed)
    assert typed.filled == {}  # what a person types is told of, and stays
    with pytest.raises(OutOfRange, match="Prompts"):
        form.sweep(values)


def test_each_pair_says_where_its_models_are(repository: Repository, folder: Path) -> None:
    here = name_of_models({"target": f"{folder}/target"})
    away = name_of_models({"target": "farm/Hen-7B", "dtype": "bfloat16"})
    repository.add_pair("here", here, "Ann")
    repository.add_pair("hens", away, "Ann")
    repository.add_pair("half", name_of_models({"target": "farm/Hen-7B", "draft": SMOLLM2.repo}), "Ann")
    repository.report_worker(1, "host", "cuda", "idle", 24_000_000_000)
    badges = pair_badges(repository)
    choices = {name: title for title, name in pair_choices(repository, badges)}
    assert (choices[here], choices[away]) == ("here", "hens · to fetch")
    assert choices["bundled"] == "Bundled arithmetic pair"
    assert "half · to fetch" in choices.values()  # and not the size of one of them
    assert choices["qwen2.5-7b"] == "Qwen 2.5 7B with 0.5B · to fetch, 16.2 GB"
    assert choices["llama3.1-70b"] == "Llama 3.1 70B with 8B · too large for this machine"
    assert [name for name in MODEL_PAIRS if badges[name] == TO_FETCH] == []
    lists = pair_lists(repository, None, badges)
    assert "to fetch · target farm/Hen-7B, bfloat16 · Ann" in lists.own
    assert "Qwen 2.5 7B with 0.5B" in lists.presets
    assert "Bundled" not in lists.presets
    fetch_pair(Ask(get_settings(), repository=repository), away)
    assert "Waiting: nothing fetches now." in pair_lists(repository, None, badges).own
    job = repository.claim(("fetch-pair",), 60)
    assert job is not None
    assert repository.report_bytes(job.id, str(job.claim_token), 1_200_000_000, 5_900_000_000)
    under_way = pair_lists(repository, None, badges).own
    assert '<progress value="1200000000" max="5900000000"' in under_way
    assert "1.2 GB of 5.9 GB" in under_way
    repository.finish_job(job.id, str(job.claim_token), "cancelled")
    assert "It was stopped at 1.2 GB, which are kept." in pair_lists(repository, None, badges).own
    assert "Go on fetching" in pair_lists(repository, None, badges).own


def test_what_a_hub_says_is_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    assert evil not in found_html([FoundModel(evil, None, 1, True)])
    assert evil not in drafts_html(evil, DraftOffers([], 2, evil))


def test_programs_name_check_and_fetch_pairs(
    repository: Repository, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = endpoints(repository, Settings(home=tmp_path))
    added = calls["add_pair"]("mine", f"{folder}/target", request(), draft=f"{folder}/draft", dtype="float32")
    assert (added["name"], added["state"], added["models"]["dtype"]) == ("mine", "here", "float32")
    assert repository.own_pairs()[0].added_by == "Ann"
    assert {pair["pair"]: pair["state"] for pair in calls["list_choices"]()["own_pairs"]} == {"mine": "here"}
    with pytest.raises(WrongState):
        calls["fetch_pair"]("mine", request())
    with stand_in_hub() as hub:
        use_hub(hub.url, monkeypatch)
        hub.repos["farm/Hen-7B"] = Repo(folder / "target")
        calls["add_pair"]("hens", "farm/Hen-7B", request())
        assert [found["id"] for found in calls["search_models"]("hen", request())] == ["farm/Hen-7B"]
        suggested = calls["suggest_drafts"]("farm/Hen-7B", request())
        assert (suggested["drafts"], suggested["note"]) == ([], "")
    assert calls["fetch_pair"]("hens", request())["fetch"]["status"] == "queued"
    assert calls["cancel_fetch"]("hens", request())["fetch"]["status"] == "cancelled"
    with pytest.raises(UnknownName, match="of hens is"):
        calls["cancel_fetch"]("hens", request())
    read = calls["read_pair"]("hens")
    assert (read["state"], read["problems"]) == ("to fetch, 0.1 MB", [])
    assert "no longer offered" in calls["remove_pair"]("hens", request())
    with pytest.raises(UnknownName, match="hens"):
        calls["read_pair"]("hens")


def test_only_authors_name_and_fetch_and_only_from_folders_that_may_be_named(
    repository: Repository, folder: Path, tmp_path: Path
) -> None:
    calls = endpoints(repository, Settings(home=tmp_path, access="password"))
    writing: dict[str, tuple[str, ...]] = {
        "add_pair": ("mine", "a/b"), "fetch_pair": ("qwen2.5-7b",), "cancel_fetch": ("qwen2.5-7b",),
        "remove_pair": ("mine",), "search_models": ("hen",), "suggest_drafts": ("a/b",),
    }  # fmt: skip
    for name, arguments in writing.items():
        with pytest.raises(Refused, match="author"):
            calls[name](*arguments, request("viewer"))
    for name, arguments in (("add_pair", ("mine", f"{folder}/target")), ("suggest_drafts", (f"{folder}/target",))):
        with pytest.raises(Refused):
            calls[name](*arguments, request())
    with pytest.raises(Refused):
        calls["read_pair"](f"path:{folder}")
    assert (repository.own_pairs(), pair_fetches(repository)) == ([], {})


def without_weights(folder: Path) -> None:
    (folder / "draft" / "model.safetensors").unlink()


def with_pickles(folder: Path) -> None:
    (folder / "draft" / "model.safetensors").rename(folder / "draft" / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("models", "harm", "told"),
    [
        ({}, without_weights, "has no weights: expected files of safetensors"),
        ({}, with_pickles, "a pickle, which may run any program: convert them to safetensors"),
        ({"draft": "farm/nothing"}, None, "The draft: The hub has no model farm/nothing, or it is private"),
        ({"draft": "farm/gated"}, None, "The draft: farm/gated is gated: accept its licence"),
        ({"draft": "farm/Hen@v9"}, None, "The draft: The hub has no model farm/Hen at revision v9"),
        ({"draft": "{}/other"}, None, "do not share a tokenizer: 2 tokens differ"),
        ({"name": "bundled"}, None, "The name 'bundled' is that of a pair of the program: choose another one."),
        ({"target": "{}/nowhere"}, None, "holds no target: config.json is missing"),
        ({"dtype": "int4"}, None, "The dtype 'int4' is unknown"),
    ],
)
def test_bad_models_are_one_sentence_and_nothing_is_kept(
    repository: Repository, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    models: dict[str, str], harm: Callable[[Path], None] | None, told: str,
) -> None:  # fmt: skip
    own = shutil.copytree(folder, tmp_path / "p")
    other = shutil.copytree(own / "draft", own / "other") / "tokenizer.json"
    content = json.loads(other.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
    other.write_text(json.dumps(content))
    if harm is not None:
        harm(own)
    given = {"name": "mine", "target": f"{own}/target", "draft": f"{own}/draft", "dtype": "auto"}
    given |= {part: value.format(own) for part, value in models.items()}

    def build() -> OwnModelsPanel:
        with gr.Blocks(analytics_enabled=False):
            form = ExperimentForm(repository, Settings())
            return OwnModelsPanel(repository, Settings(home=tmp_path), form, lambda: None)

    panel = built(build)
    values = Values({panel.name: given["name"]} | {panel.models[role]: given.get(role, "") for role in panel.models})
    values.key = "0" * 32
    with stand_in_hub() as hub:
        use_hub(hub.url, monkeypatch)
        hub.repos |= {"farm/gated": Repo(folder / "draft", gated=True), "farm/Hen": Repo(folder / "draft")}
        shown = [answered(panel, act, values) for act in (panel.check_models, panel.add_models)]
        with pytest.raises(FsdError) as refused:
            endpoints(repository, Settings(home=tmp_path))["add_pair"](**given, request=request())
    assert shown[0] == shown[1]
    assert told in html.unescape(shown[0])
    assert told in str(refused.value)
    assert repository.own_pairs() == []


def answered(panel: OwnModelsPanel, act: Callable[..., dict[Any, Any]], values: Values) -> str:
    """What a button of the panel shows."""
    try:
        return str(act(values, question(values))[panel.answer])
    except FsdError as error:
        return str(error)


def test_models_are_checked_before_they_have_a_name(repository: Repository, folder: Path, tmp_path: Path) -> None:
    def build() -> OwnModelsPanel:
        with gr.Blocks(analytics_enabled=False):
            form = ExperimentForm(repository, Settings())
            return OwnModelsPanel(repository, Settings(home=tmp_path), form, lambda: None)

    panel = built(build)
    values = Values(dict.fromkeys(panel.fields, "") | {panel.models["target"]: f"{folder}/target"})
    values.key = "0" * 32
    assert "The models are here." in answered(panel, panel.check_models, values)
    assert "The pair's name '' cannot be used" in answered(panel, panel.add_models, values)


def test_a_form_that_keeps_its_pair_has_the_pair_s_defaults(repository: Repository) -> None:
    """What somebody changed is kept beside it, and stays."""

    def build() -> ExperimentForm:
        with gr.Blocks(analytics_enabled=False):
            return ExperimentForm(repository, Settings())

    form, other = built(build), pair_defaults("smollm2-135m")
    pair, lengths, thresholds = (form.fields[name] for name in ("pair", "draft_length", "threshold"))
    assert lengths.value != other.lengths
    values = {field: field.value for field in form.fields.values()} | {pair: "smollm2-135m"}
    kept = Asked(Question(kept={"0": "smollm2-135m"}), values, request())  # pyright: ignore[reportArgumentType]
    kept.filled = {pair: "smollm2-135m", thresholds: thresholds.value}
    form.redraw(kept)
    assert kept.filled[lengths] == other.lengths
    assert kept.filled[thresholds] == thresholds.value


def test_code_of_a_model_is_never_run(repository: Repository, folder: Path, tmp_path: Path) -> None:
    """It is told, and the pair can be used without it."""
    own = shutil.copytree(folder, tmp_path / "p")
    config = own / "target" / "config.json"
    config.write_text(config.read_text().replace("{", '{"auto_map": {"AutoModel": "mine.Model"},', 1))
    (own / "target" / "mine.py").write_text("raise SystemExit('it ran')")
    added = endpoints(repository, Settings(home=tmp_path))["add_pair"]("mine", f"{own}/target", request())
    assert "The target names code of its own, which is never run here." in added["notes"]
    assert added["state"] == "here"


def test_a_pair_of_the_same_name_is_another_version_and_the_first_one_stays(
    repository: Repository, folder: Path, tmp_path: Path
) -> None:
    calls = endpoints(repository, Settings(home=tmp_path))
    first = calls["add_pair"]("mine", f"{folder}/target", request())["pair"]
    second = calls["add_pair"]("mine", f"{folder}/target", request(), dtype="bfloat16")["pair"]
    assert calls["read_pair"]("mine")["pair"] == second
    assert calls["read_pair"](first)["pair"] == first


def test_a_pair_is_held_against_the_memory_of_the_workers_device(repository: Repository, folder: Path) -> None:
    name = name_of_models({"target": f"{folder}/target"})
    repository.add_pair("here", name, "Ann")
    repository.report_worker(1, "host", "cuda", "idle", 400_000_000)  # a device smaller than the margin
    assert pair_badges(repository)[name] == TOO_LARGE
    assert "too large for this machine · target" in pair_lists(repository, None, pair_badges(repository)).own
    repository.report_worker(1, "host", "cuda", "idle", 24_000_000_000)
    assert pair_badges(repository)[name] == HERE
    repository.report_worker(1, "host", "ZeroGPU", "idle")  # which does not tell
    assert device_memory(repository) == ("cpu", psutil.virtual_memory().total) == device_memory(None)
