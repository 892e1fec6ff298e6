"""A pair that names its models is those models, with adapters or without a draft, wherever they are."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from weakref import WeakMethod

import pytest
import torch
from peft import LoraConfig, get_peft_model
from starlette.requests import Request as WebRequest

import fsd_core
from dashboard.compare.compared_runs import compare
from dashboard.compare.comparison_html import comparison_html
from dashboard.experiments.experiments_page import experiments_html
from dashboard.runs.opened_run import header_html, notes_html
from dashboard.settings import SETTINGS, MeasuredSetting, setting_page
from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    PromptLookupDrafter,
    RunConfig,
    SettingConfig,
    Speculative,
    TemplateConfig,
)
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.model_names import name_of_models, take_names
from fsd_core.config.options import method
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import InvalidSetting
from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.pair_check import fingerprint, identity_of
from fsd_core.roles import Person
from fsd_core.settings import Settings, get_settings, sqlite_url
from fsd_core.storage.records import same_model
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair, toy_model, toy_pair
from fsd_core.worker.device import PairCache
from fsd_core.worker.pair_names import add_checked, identified
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.plausible import new_repository

Call = Callable[..., tuple[int, str, str]]
SD = {"acceptance": "speculative", "max_new_tokens": 4}


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")


@pytest.fixture
def at(tmp_path: Path) -> str:
    """A toy pair in a folder."""
    return save_toy_pair(tmp_path / "first")


@pytest.fixture
def copied(at: str, tmp_path: Path) -> str:
    """The same pair in another folder."""
    return f"path:{shutil.copytree(tmp_path / 'first', tmp_path / 'second')}"


def run_of(pair: str, **changed: Any) -> RunConfig:
    return RunConfig(setting=SettingConfig(pair=pair, decoding=method(SD)), limit=2, device="cpu", **changed)


def measured(repository: Repository, pair: str, **changed: Any) -> str:
    """Measure a run and return its id."""
    id = repository.create_run(identified(repository, run_of(pair, **changed)))
    execute_runs(repository, [id], load_pair)
    return id


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def retrain(pair: str, role: str = "draft") -> None:
    toy_model(257, seed=99).save_pretrained(Path(pair.removeprefix("path:")) / role)


def ids(repository: Repository) -> list[str]:
    return sorted({run.setting_id for run in repository.runs(limit=None)})


@pytest.mark.usefixtures("without_mlflow")
def test_ids_that_are_stored_rest_on_the_name_and_stay(at: str) -> None:
    """Those of golden databases are held in ``test_golden.py``."""
    assert SettingConfig(pair="path:/models/mine").id == "e6203eb20ec5f89e"
    assert SettingConfig(pair="models:target=/models/mine;draft=a/b").id == "167f4d7b17ee4f8e"
    assert (identity_of("bundled"), identity_of("hub:a/b+a/c"), identity_of("path:/nowhere")) == ("", "", "")
    assert "identity" not in SettingConfig(pair="bundled").as_json()
    known = SettingConfig(pair=at, identity=identity_of(at))
    assert SettingConfig.model_validate(known.as_json()) == known
    assert known.at("path:/else/where").id == known.id != SettingConfig(pair=at).id


@pytest.mark.usefixtures("without_mlflow")
def test_the_same_models_are_the_same_by_any_name_and_folder(at: str, copied: str) -> None:
    first, second = (Path(name.removeprefix("path:")) for name in (at, copied))
    each = {name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft"}) for folder in (first, second)}
    assert (
        {identity_of(name) for name in each} == {identity_of(at)} == {identity_of(copied)} == {load_pair(at).identity}
    )
    assert "path" not in identity_of(at)
    assert str(first) not in identity_of(at)
    one = name_of_models({"target": f"{first}/target", "draft": f"{first}/draft", "dtype": "bfloat16"})
    hub = [name_of_models({"target": f"{folder}/target", "draft": "a/b"}) for folder in (first, second)]
    assert len({identity_of(name) for name in (at, one, hub[0])}) == 3
    assert identity_of(hub[0]) == identity_of(hub[1])


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.parametrize("file", ["tokenizer_config.json", "generation_config.json", "model.safetensors"])
def test_other_models_in_the_same_folder_are_another_setting(at: str, repository: Repository, file: str) -> None:
    first = repository.run(measured(repository, at))
    before = Path(at.removeprefix("path:")) / "draft"
    if file.endswith(".json"):
        change(before / file, trial=1)
    else:
        retrain(at)
    second = repository.run(measured(repository, at))
    assert (first.status, second.status, second.error) == ("finished", "finished", None)
    assert len(ids(repository)) == 2
    assert first.weights != second.weights


@pytest.mark.usefixtures("without_mlflow")
def test_every_door_gives_the_same_models_one_setting(
    at: str, copied: str, call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library, the command line and programs; what was measured first names the pair, and a name that is given."""
    repository = new_repository(home)
    fsd_core.compare([SD], "arithmetic", 2, pair=at, home=home)
    (setting,) = ids(repository)
    fsd_core.compare([SD], "arithmetic", 2, pair=load_pair(copied), home=home)
    options = ("--task", "arithmetic", "--limit", "2", "--acceptance", "speculative", "--max-new-tokens", "4")
    for command in ("run", "sweep"):
        assert call(command, "--pair", copied, *options, *["--no-baselines"][: command == "sweep"])[0] == 0
    request = WebRequest({"type": "http", "state": {}, KEY: Person("Ann", "admin")})
    calls = {one.__name__: one for one in calls_of(repository, Settings(home=home))}
    calls["start_experiment"]([SD], request, pair=copied, task="arithmetic", limit=2, name="Once more")
    assert ids(repository) == [setting]
    assert len(repository.runs()) == 5
    assert {run.pair for run in repository.runs()} == {run.config.setting.pair for run in repository.runs()} == {at}
    assert {experiment.config.pair for experiment in repository.experiments()} == {at}

    folder = copied.removeprefix("path:")
    named = name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft"})
    take_names(WeakMethod(repository.given_names))  # those of commands that ended are up to a second old
    add_checked(repository, "support-7b", named, "Ann")
    runs = repository.runs(status="finished")
    (summary,) = repository.settings()
    assert summary.runs == 5
    for shown in (
        SETTINGS.html([MeasuredSetting(summary)]), setting_page(repository, setting),
        comparison_html(compare(repository, [run.id for run in runs], None)),
        experiments_html(repository.experiments(), {}),
    ):  # fmt: skip
        assert "support-7b" in str(shown)
        assert at.removeprefix("path:") not in str(shown)
    shutil.rmtree(folder)
    measured(repository, at)  # the named folder is gone: the settings are known where the models are
    assert {run.pair for run in repository.runs()} == {at}


@pytest.mark.usefixtures("without_mlflow")
def test_a_calibration_and_what_is_concluded_from_it_name_one_setting(
    at: str, copied: str, repository: Repository
) -> None:
    config = CalibrationConfig(pair=at, decodings=(method(SD),), limit=600, goal="speed")
    (first,), (second,) = (
        identified(repository, config.model_copy(update={"pair": pair})).round_runs([config.target], 0, 8)
        for pair in (at, copied)
    )
    assert first.setting.id == second.setting.id != config.round_runs([config.target], 0, 8)[0].setting.id
    id = repository.create_experiment(identified(repository, config), enqueue=False)
    stored = repository.experiment(id).config
    assert isinstance(stored, CalibrationConfig)
    assert stored.setting_of(config.target).id == first.setting.id
    assert stored.asks_as(identified(repository, config))
    assert config.asks_as(identified(repository, config))  # it began before identities were recorded


@pytest.mark.usefixtures("without_mlflow")
def test_models_that_changed_before_their_turn_are_told_and_measured_by_another_setting(
    at: str, repository: Repository
) -> None:
    """The worker does not go on with those that it had in memory."""
    pairs = PairCache("cpu")
    old = pairs(at)
    id = repository.create_run(identified(repository, run_of(at)))
    retrain(at)
    execute_runs(repository, [id], pairs)
    run = repository.run(id)
    assert run.status == "failed"
    assert run.error == (f"The models of '{at}' have changed since the run was created: start a new one.")
    again = repository.create_run(identified(repository, run_of(at)))
    execute_runs(repository, [again], pairs)
    assert repository.run(again).status == "finished"
    assert pairs(at).target is not old.target
    assert len(ids(repository)) == 2


@pytest.mark.usefixtures("without_mlflow")
def test_a_home_that_moves_takes_its_pairs_along(home: Path, call: Call, tmp_path: Path, monkeypatch: Any) -> None:
    get_settings.cache_clear()
    repository = new_repository(home)
    name = save_toy_pair(home / "own-models" / "mine")
    id = repository.create_run(identified(repository, run_of(name, task="arithmetic")))
    repository._database.close()
    monkeypatch.setenv("FSD_HOME", str(home.rename(tmp_path / "another")))
    status, _, err = call("resume", id[:8])
    assert status == 0, err


@pytest.mark.usefixtures("without_mlflow")
def test_an_imported_setting_is_the_one_that_was_measured_here(
    at: str, copied: str, home: Path, tmp_path: Path
) -> None:
    here, there = new_repository(tmp_path / "here"), new_repository(tmp_path / "there")
    measured(there, at)
    left = there.create_run(identified(there, run_of(at, seed=1)))
    file = tmp_path / "workspace.zip"
    export(sqlite_url(tmp_path / "there" / "fsd.db"), file, tmp_path)
    shutil.rmtree(at.removeprefix("path:"))

    measured(here, copied)
    import_file(here._database, file, tmp_path)
    assert ids(here) == ids(there)
    assert {run.pair for run in here.runs()} == {copied}
    assert len(here.runs()) == 3
    here.reopen_runs([left], enqueue=False)
    execute_runs(here, [left], load_pair)
    assert here.run(left).status == "finished"
    measurements = here.settings()
    assert [summary.runs for summary in measurements] == [3]
    import_file(here._database, file, tmp_path)
    assert {run.pair for run in here.runs()} == {copied}

    late = new_repository(tmp_path / "late")  # which learns where the models are once they have a name
    import_file(late._database, file, tmp_path)
    folder = copied.removeprefix("path:")
    named = name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft"})
    add_checked(late, "mine", named, "Ann")
    assert {run.pair for run in late.runs()} == {named}
    assert ids(late) == ids(here)


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.wide
def test_a_command_goes_on_with_what_began_in_another_folder(at: str, copied: str, home: Path, call: Call) -> None:
    repository = new_repository(home)
    options = ("--task", "arithmetic", "--limit", "2", "--acceptance", "speculative", "--max-new-tokens", "4")
    status, _, err = call("run", "--pair", at, *options)
    assert status == 0, err
    (run,) = repository.runs()
    left = repository.create_run(run.config)
    assert f"Continuing the run {left}" in call("run", "--pair", copied, *options)[2]
    unknown = run.config.model_copy(update={"setting": SettingConfig(pair=at, decoding=run.decoding)})
    before = repository.create_run(unknown)  # as earlier versions recorded it
    assert f"Continuing the run {before}" in call("run", "--pair", at, *options)[2]
    assert repository.run(before).setting_id != run.setting_id


@pytest.mark.usefixtures("without_mlflow")
def test_a_byte_that_changes_in_place_is_seen(at: str) -> None:
    target = Path(at.removeprefix("path:")) / "target"
    before, file = fingerprint(target), target / "model.safetensors"
    file.chmod(0o600)
    assert fingerprint(target) == before
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert fingerprint(target) != before


@pytest.mark.usefixtures("without_mlflow")
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("a1", "a1", True), ("a1", "a2", False), ("a1-b1", "a1-b1", True), ("a1-b1", "a1-b2", False),
        ("a1-b1", "a1", True), ("a1", "a1-b1", True), ("a1-b1", "a2", False), ("a1-b1 x", "a1 x", True),
        ("a1-b1 x", "a1 y", False),
    ],
)  # fmt: skip
def test_fingerprints_from_before_the_ends_of_large_files_counted_are_known(
    first: str, second: str, same: bool
) -> None:
    assert same_model(first, second) is same


PROMPT = "one two three, one two three, one two three"


def write(pair: LoadedPair, **config: object) -> list[int]:
    decoder = PairDecoder(pair, DecodingConfig(max_new_tokens=24, **config))  # pyright: ignore[reportArgumentType]
    return decoder.generate(decoder.prompt_ids(PROMPT), 0).tokens


def test_without_a_draft_the_target_copies_and_writes_what_it_writes_alone(tmp_path: Path) -> None:
    save_toy_pair(tmp_path)
    pair = load_pair(name_of_models({"target": f"{tmp_path}/target"}), device="cpu")
    assert set(pair.weights or {}) == {"target", "configuration"}
    alone = write(pair, acceptance=Autoregressive())
    copied = write(pair, acceptance=Speculative(), drafter=PromptLookupDrafter(), topology=ChainTopology(length=4))
    assert copied == alone == write(load_pair(f"path:{tmp_path}", device="cpu"), acceptance=Autoregressive())
    with pytest.raises(InvalidSetting, match="needs a draft model"):
        write(pair, acceptance=Speculative())


def with_template(folder: Path, arguments: str) -> str:
    """Return the name of a pair whose template reads one argument."""
    save_toy_pair(folder)
    file = folder / "target" / "chat_template.jinja"
    file.write_text("{{ messages[0]['content'] }}{% if fast is defined %}[{{ fast }}]{% endif %}")
    return name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft", "template": arguments})


def test_arguments_of_the_template_hold_where_the_setting_gives_none(near: Path, repository: Repository) -> None:
    name = with_template(near, '{"fast": true}')
    pair = load_pair(name, device="cpu")

    def asked(**template: str) -> str:
        decoder = PairDecoder(pair, DecodingConfig(template=TemplateConfig(**template)))
        text = str(pair.tokenizer.decode(decoder.prompt_ids("Hello")))
        assert pair.tokenizer.decode(pair.inputs("Hello", **template)["input_ids"][0]) == text
        return text

    assert asked() == "Hello[True]"
    assert asked(arguments='{"fast": false}') == "Hello[False]"
    recorded = []
    for decoding in (
        DecodingConfig(max_new_tokens=2),
        DecodingConfig(max_new_tokens=2, template=TemplateConfig(arguments='{"fast": 1}')),
    ):
        config = RunConfig(setting=SettingConfig(pair=name, decoding=decoding), task="everyday", limit=1, device="cpu")
        run = repository.create_run(config)
        execute_runs(repository, [run], lambda *_: pair)
        recorded.append(repository.run(run))
    assert [(run.provenance or {})["template_arguments"] for run in recorded] == ['{"fast": true}', '{"fast": 1}']
    assert recorded[0].pair == name
    assert "fast true" in str(header_html(recorded[0], None))
    assert len({next(iter(repository.prompts([run.id])[run.id].values())).prompt_hash for run in recorded}) == 2


def test_what_is_told_of_the_files_stands_on_the_run_s_page(near: Path, repository: Repository) -> None:
    save_toy_pair(near)
    for name in ("config.json", "generation_config.json"):
        file = near / "target" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 7}))
    pair = load_pair(f"path:{near}", device="cpu")
    run = repository.create_run(
        RunConfig(setting=SettingConfig(pair=f"path:{near}", decoding=DecodingConfig(max_new_tokens=2)), limit=1)
    )
    assert str(notes_html(repository.run(run))) == ""
    execute_runs(repository, [run], lambda *_: pair)
    page = str(notes_html(repository.run(run)))
    assert "ends texts with '<|end|>', and the target" in unescape(page)
    assert "<|end|>" not in page


@pytest.fixture
def near() -> Iterator[Path]:
    """A folder with a short path: a pair's name has room for five."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_adapters_of_both_models_are_merged_and_fingerprinted(near: Path) -> None:
    save_toy_pair(near)
    for role, seed in (("target", 1), ("draft", 2)):
        torch.manual_seed(seed)
        module = getattr(toy_pair(), role).module
        lora = get_peft_model(module, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
        lora.save_pretrained(str(near / f"{role}-lora"))
    models = {"target": f"{near}/target", "draft": f"{near}/draft"}
    adapters = {"adapter": f"{near}/target-lora", "draft-adapter": f"{near}/draft-lora"}
    plain = load_pair(name_of_models(models), device="cpu")
    adapted = load_pair(name_of_models(models | adapters), device="cpu")
    assert set(adapted.weights or {}) == {"target", "draft", "adapter", "draft adapter", "configuration"}
    for role in ("target", "draft"):
        before, after = (dict(getattr(pair, role).module.named_parameters()) for pair in (plain, adapted))
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == {name for name in before if "q_proj" in name}
    assert write(adapted, acceptance=Speculative()) == write(adapted, acceptance=Autoregressive())
