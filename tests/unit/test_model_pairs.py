"""Pairs of models: how they are named, where they may be, and what a form begins with for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from dashboard.experiments.own_models_panel import pair_lists
from dashboard.playground.playground_page import examples_of
from dashboard.ui.fields import UNCALIBRATED, pair_badges, pair_defaults
from fsd_core.config import ChainTopology, DecodingConfig, DraftOnly, PromptLookupDrafter, Speculative
from fsd_core.config.model_names import dtype_of, is_name_of_models, models_of, name_of_models, template_arguments_of
from fsd_core.errors import (
    InvalidSetting,
    Malformed,
    ModelUnavailable,
    NotCalibratable,
    NotEnough,
    OutOfRange,
    Refused,
    UnfitModel,
    UnfitTask,
    UnknownName,
)
from fsd_core.models.hub_files import HubUnreachable
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import USUAL_PROMPTS, calibration_of, check_drafter, check_folders, get_pair
from fsd_core.models.pair_check import HERE, TOO_LARGE, UNUSABLE, DeviceMemory, PairCheck, check_pair
from fsd_core.models.sources import HubModel
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair
from fsd_core.worker.pair_names import add_checked, checked_pair_name, offered_pairs, recorded_name
from fsd_plugins.training import counting
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.plausible import new_repository
from tests.tools.tracking_examples import sweep

Call = Callable[..., tuple[int, str, str]]
PLENTY = DeviceMemory("cpu", 1 << 40)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save_toy_pair(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and a draft that a test may change, of a short name: several make a pair's."""
    return shutil.copytree(saved, tmp_path_factory.mktemp("own") / "pair")


def named(folder: Path, **more: str) -> str:
    return name_of_models({"target": f"{folder}/target", "draft": f"{folder}/draft"} | more)


def checked(name: str, memory: DeviceMemory = PLENTY) -> PairCheck:
    def nobody(model: HubModel) -> int:
        raise HubUnreachable(f"{model.repo} is not on this machine, and the hub does not answer.")

    return check_pair(get_pair(name), memory, nobody)


def test_a_name_says_the_models_and_leads_back_to_them(folder: Path) -> None:
    name = named(folder, head="a/head@1f", adapter="")
    assert name == f"models:target={folder}/target;draft={folder}/draft;head=a/head@1f"
    assert is_name_of_models(name)
    assert models_of(name) == {"target": f"{folder}/target", "draft": f"{folder}/draft", "head": "a/head@1f"}
    spec = get_pair(name)
    assert (spec.target, spec.draft, spec.head) == (folder / "target", folder / "draft", HubModel("a/head", "1f"))
    assert (spec.name, spec.title) == (name, "target with draft")


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ({}, "The target is empty"),
        ({"target": "rel/a/b"}, "The target 'rel/a/b' cannot be used"),
        ({"target": "/a;b"}, "without a semicolon"),
        ({"target": "a/b", "adapter": "a/lora"}, "The adapter 'a/lora' cannot be used: expected a folder"),
        ({"target": "a/b", "draft": f"/{'x' * 3000}"}, "bytes together: expected at most 2,000"),
        ({"target": "a/b", "dtype": "int4"}, "The dtype 'int4' is unknown: expected auto, float32, bfloat16, float16"),
        ({"target": "/a\nb"}, "cannot be used"),
        ({"target": "a/b", "template": "fast"}, "The template arguments 'fast' are no JSON object"),
        ({"target": "a/b", "template": '{"messages": 1}'}, "'messages' cannot be given"),
        ({"target": "a/b", "template": '{"style": "a;b"}'}, "cannot have a semicolon"),
    ],
)
def test_models_that_cannot_be_named_are_told(models: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        name_of_models(models)


def test_a_name_says_the_arguments_of_the_template(folder: Path) -> None:
    name = named(folder, template='{"fast": true,"effort": "low"}')
    assert name.endswith('/draft;template={"effort": "low", "fast": true}')
    assert is_name_of_models(name)
    assert not is_name_of_models(name.replace(', "fast"', ',"fast"'))  # one name for one pair
    assert models_of(name) == models_of(named(folder))
    assert template_arguments_of(name) == get_pair(name).template_arguments == '{"effort": "low", "fast": true}'
    assert get_pair(name).title == "target with draft, effort low, fast true"
    assert (template_arguments_of("bundled"), template_arguments_of(named(folder))) == ("", "")
    with pytest.raises(Malformed):
        get_pair(f"{named(folder)};template=fast")


@pytest.mark.parametrize(
    "name",
    [
        "models:", "models:draft=a/b", "models:target=", "models:target=a/b;target=a/c", "models:target=a/b;x=a/c",
        "models:target=a/b;dtype=int4",
    ],
)  # fmt: skip
def test_a_name_of_another_form_is_told(name: str) -> None:
    assert not is_name_of_models(name)
    with pytest.raises(UnknownName):
        get_pair(name)


def test_a_dtype_is_part_of_a_pair_and_of_its_title(folder: Path) -> None:
    name = named(folder, dtype="bfloat16")
    assert name == f"models:target={folder}/target;draft={folder}/draft;dtype=bfloat16"
    assert (dtype_of(name), dtype_of(named(folder)), named(folder, dtype="auto")) == ("bfloat16", "auto", named(folder))
    assert (get_pair(name).dtype, get_pair(name).title) == ("bfloat16", "target with draft, bfloat16")
    assert models_of(name) == models_of(named(folder))
    assert "It is loaded as bfloat16, unless a setting names another dtype." in checked(name).notes
    assert checked(named(folder, dtype="float32")).memory > checked(name).memory
    check_folders(name, Settings(access="password", model_roots=str(folder)))


def test_a_pairs_dtype_is_in_force_where_a_run_names_none(folder: Path) -> None:
    name = named(folder, dtype="bfloat16")
    assert load_pair(name, "cpu").dtype == "bfloat16"
    assert load_pair(name, "cpu", "float32").dtype == "float32"


def test_names_of_long_folders_are_stored_whole_or_refused(repository: Repository) -> None:
    long = name_of_models({"target": "/" + "/".join(["folder"] * 200), "draft": "a/b"})
    experiment = repository.experiment(repository.create_experiment(sweep("").model_copy(update={"pair": long})))
    assert {run.pair for run in experiment.runs} == {long}
    assert experiment.name == "arithmetic on folder with b"
    with pytest.raises(OutOfRange, match="2,000"):
        repository.create_experiment(sweep("").model_copy(update={"pair": f"path:/{'x' * 3000}"}))
    assert len(repository.experiments()) == 1


def test_folders_without_a_model_are_told(folder: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"config\.json"):
        get_pair(named(folder, draft=f"{folder}/nothing"))
    with pytest.raises(ModelUnavailable, match=r"adapter_config\.json"):
        get_pair(named(folder, **{"draft-adapter": f"{folder}/draft"}))


def test_what_is_well_is_told_with_its_size(folder: Path) -> None:
    found = checked(named(folder))
    assert (found.badge, found.problems) == (HERE, [])
    assert found.facts == ["The target is here: llama, 0.1 MB.", "The draft is here: llama, 0.1 MB."]
    other = (folder / "draft").rename(folder / "small")
    assert checked(named(folder, draft=str(other))).facts[1] == "The draft small is here: llama, 0.1 MB."
    other.rename(folder / "draft")
    assert found.notes == ["It can draft with the draft model, copies of the text."]
    small = checked(named(folder), memory=DeviceMemory("cpu", 1_000_000))
    assert small.badge == TOO_LARGE
    assert "this machine has 1.0 MB" in small.notes[-1]
    on_gpu = checked(named(folder), memory=DeviceMemory("cuda:1", 1_000_000))
    assert on_gpu.badge == TOO_LARGE
    assert "the worker's device (cuda:1) has 1.0 MB" in on_gpu.notes[-1]
    assert small.memory == 2 * on_gpu.memory  # on the CPU a Llama's weights are there in another order as well


def test_what_has_to_be_fetched_is_told_with_its_size(folder: Path) -> None:
    spec = get_pair(named(folder, draft="a/small"))
    found = check_pair(spec, PLENTY, lambda model: 2_900_000_000)
    assert (found.badge, found.facts[-1]) == ("to fetch, 2.9 GB", "The draft a/small has to be fetched: 2.9 GB.")
    away = checked(named(folder, draft="a/small"))
    assert (away.badge, "does not answer" in " ".join(away.notes)) == ("to fetch", True)

    def gated(model: HubModel) -> int:
        raise ModelUnavailable(f"{model.repo} is gated: accept its licence.")

    refused = check_pair(spec, PLENTY, gated)
    assert (refused.badge, refused.problems) == (UNUSABLE, ["The draft: a/small is gated: accept its licence."])


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def damage_header(folder: Path) -> None:
    file = folder / "draft" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def lose_shard(folder: Path) -> None:
    (folder / "target" / "model.safetensors").rename(folder / "target" / "model-1-of-2.safetensors")
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / "target" / "model.safetensors.index.json").write_text(json.dumps(index))


def other_tokenizer(folder: Path) -> None:
    file = folder / "draft" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda f: (f / "target" / "model.safetensors").unlink(), "has no weights: expected files of safetensors"),
        (
            lambda f: (f / "draft" / "model.safetensors").rename(f / "draft" / "pytorch_model.bin"),
            "pytorch_model.bin, a pickle, which may run any program: convert",
        ),
        (damage_header, "model.safetensors is no whole safetensors file"),
        (lose_shard, "lacks 1 file of its weights, such as model-2-of-2.safetensors"),
        (other_tokenizer, "do not share a tokenizer: 2 tokens differ"),
        (lambda f: (f / "draft" / "config.json").write_text("{"), "/draft has a config.json that cannot be read"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_loaded(
    folder: Path, harm: Callable[[Path], object], told: str
) -> None:
    name = named(folder)
    harm(folder)
    found = checked(name)
    assert found.badge == UNUSABLE
    assert any(told in sentence for sentence in found.problems), found.problems


def test_what_a_user_should_know_is_noted(folder: Path) -> None:
    change(folder / "draft" / "config.json", max_position_embeddings=64, auto_map={"AutoModel": "x.Y"})
    change(folder / "target" / "config.json", quantization_config={"quant_method": "awq"})
    notes = " ".join(checked(named(folder)).notes)
    assert "The draft reads 64 tokens and the target 256: nothing is drafted beyond 64." in notes
    assert "The draft names code of its own, which is never run here." in notes
    assert "The target is quantised" in notes


def test_a_head_of_another_width_is_told(folder: Path) -> None:
    head = folder / "head"
    LlamaConfig(hidden_size=64).save_pretrained(head)
    shutil.copy(folder / "draft" / "model.safetensors", head)
    found = checked(named(folder, head=str(head)))
    assert "The head is 64 wide and the target 32: choose the head that was trained for this target." in found.problems


def test_without_a_draft_copies_and_heads_draft(folder: Path) -> None:
    alone = name_of_models({"target": f"{folder}/target"})
    assert checked(alone).notes == ["It can draft with copies of the text."]
    check_drafter(alone, DecodingConfig(acceptance=Speculative(), drafter=PromptLookupDrafter()))
    for decoding in (
        DecodingConfig(acceptance=Speculative(), topology=ChainTopology()),
        DecodingConfig(acceptance=DraftOnly()),
    ):
        with pytest.raises(UnfitModel, match="no draft model"):
            check_drafter(alone, decoding)


@pytest.mark.parametrize("pair", ["models:target={}/target", "path:{}"])
def test_where_others_reach_the_machine_folders_are_below_given_roots(folder: Path, pair: str) -> None:
    """Whether a folder exists is not told. A link out of a root leads nowhere."""
    pair, missing = pair.format(folder), pair.format(folder.parent / "missing")
    check_folders(missing, Settings(access="none"))
    for settings in (Settings(access="password"), Settings(access="password", model_roots=str(folder / "other"))):
        told = []
        for name in (pair, missing):
            with pytest.raises(Refused) as refused:
                check_folders(name, settings)
            told.append(str(refused.value))
        assert told[0] == told[1]
    check_folders(pair, Settings(access="password", model_roots=f"/elsewhere, {folder.parent}"))
    root = folder.parent / "root"
    root.mkdir()
    (root / "link").symlink_to(folder, target_is_directory=True)
    with pytest.raises(Refused):
        check_folders(pair.replace(str(folder), f"{root}/link"), Settings(access="password", model_roots=str(root)))
    check_folders("hub:a/b+a/c", Settings(access="password"))
    check_folders("bundled", Settings(access="password"))


def test_by_default_folders_of_the_home_may_be_named_and_the_sentence_says_who_puts_them_there(tmp_path: Path) -> None:
    """Fetched models are none of them: as folders they would lose their origin."""
    settings = Settings(home=tmp_path, access="password")
    check_folders(f"models:target={tmp_path}/own-models/mine", settings)
    for elsewhere in ("/srv/mine", f"{tmp_path}/models/meta-llama--Llama-3.1-8B", f"{tmp_path}/own-models/../fsd.db"):
        with pytest.raises(Refused) as refused:
            check_folders(f"models:target={elsewhere}", settings)
        assert f"from folders below {tmp_path}/own-models here" in str(refused.value)
        assert "Whoever runs this installation puts folders there, or sets FSD_MODEL_ROOTS" in str(refused.value)
    with pytest.raises(Refused, match="below /srv here"):
        check_folders(
            f"models:target={tmp_path}/own-models/mine", Settings(home=tmp_path, access="proxy", model_roots="/srv")
        )


def test_a_name_refers_to_its_latest_models_and_the_runs_of_earlier_ones_stay(repository: Repository) -> None:
    first, second = name_of_models({"target": "a/b"}), name_of_models({"target": "a/c"})
    repository.add_pair("mine", first, "Ann")
    assert recorded_name(repository, "mine") == first
    repository.add_pair("mine", second, "Bob")
    (pair,) = repository.own_pairs()
    assert (pair.models, pair.added_by, recorded_name(repository, "mine")) == (second, "Bob", second)
    repository.add_pair("mine", first, "Ann")
    assert recorded_name(repository, "mine") == first
    assert offered_pairs(repository)[0] == ("mine", first)
    assert recorded_name(repository, "bundled") == "bundled"
    repository.remove_pair("mine")
    assert repository.own_pairs() == []
    with pytest.raises(UnknownName, match="mine"):
        recorded_name(repository, "mine")
    with pytest.raises(UnknownName):
        repository.remove_pair("mine")


@pytest.mark.parametrize("name", ["", "My pair", "bundled", "a" * 41, "-a", "a/b", "<b>"])
def test_names_that_cannot_be_given_are_told(name: str) -> None:
    with pytest.raises(InvalidSetting):
        checked_pair_name(name)


def test_the_command_line_names_shows_and_forgets_models(call: Call, folder: Path) -> None:
    models = ("--target", f"{folder}/target", "--draft", f"{folder}/draft")
    status, out, err = call("pairs", "add", "mine", *models)
    assert (status, out) == (0, "mine is here. Measure with --pair mine.\n"), err
    assert "It can draft with the draft model, copies of the text." in err
    assert call("pairs")[1].splitlines()[1].startswith("mine ")
    assert call("pairs", "show", "mine")[1].splitlines() == [named(folder), "mine is here."]
    (folder / "draft" / "model.safetensors").unlink()
    assert call("pairs", "show", "mine")[1].endswith("mine cannot be used.\n")
    status, _, err = call("pairs", "add", "other", *models)
    assert (status, "error: 'other' cannot be used. The draft in" in err) == (2, True)
    assert "Known pairs: bundled" in call("run", "--pair", "nobody")[2]
    assert call("pairs", "remove", "mine")[0] == 0
    assert call("pairs", "remove", "mine")[0] == 2
    assert call("pairs", "add", "x", "--target", "nowhere")[0] == 2


def test_an_experiment_that_nobody_names_has_the_titles_of_its_models(folder: Path, repository: Repository) -> None:
    config = sweep("").model_copy(update={"pair": named(folder), "task": "sums@0123456789abcdef"})
    assert repository.experiment(repository.create_experiment(config)).name == "sums on target with draft"


def measured(repository: Repository, models: str) -> str:
    """A run of the pair with the weights that loading it records; returns its setting."""
    run = sweep().model_copy(update={"pair": models}).runs()[0]
    id = repository.create_run(run)
    repository.start_run(id, {"weights": load_pair(models).weights})
    return repository.run(id).setting_id


def test_a_pair_that_moved_takes_another_folder_and_its_settings_stay(
    repository: Repository, database_url: str, home: Path, folder: Path, tmp_path: Path
) -> None:
    """After an import elsewhere, where it was looked for is told. What differs in anything is another pair."""
    models, there = named(folder, dtype="float32"), folder.parent / "there"
    add_checked(repository, "mine", models, "Ann")
    setting = measured(repository, models)
    lists = pair_lists(repository, None, pair_badges(repository))
    assert "holds no target" not in lists.own
    folder.rename(there)
    export(database_url, tmp_path / "all.zip", tmp_path)
    repository = new_repository(tmp_path / "elsewhere")
    import_file(repository._database, tmp_path / "all.zip", tmp_path)
    lists = pair_lists(repository, None, pair_badges(repository))
    assert f"The folder {folder}/target holds no target: config.json is missing. If the models of" in lists.own

    found = add_checked(repository, "mine", named(there, dtype="float32"), "Bob")
    assert found.notes[-1].startswith(f"Its weights are those that were measured: they were in {folder}/target, ")
    assert recorded_name(repository, "mine") == models
    assert get_pair(models).target == there / "target"
    lists = pair_lists(repository, None, pair_badges(repository))
    assert f"here · target {there}/target, draft {there}/draft, float32" in lists.own
    assert measured(repository, models) == setting
    roots = Settings(home=home, access="password", model_roots=str(there))
    check_folders(models, roots)
    with pytest.raises(Refused):
        check_folders(models, Settings(home=home, access="password", model_roots=str(folder)))

    for change in ({"dtype": "bfloat16"}, {"dtype": "float32", "draft": ""}):
        other = named(there, **change)
        add_checked(repository, "mine", other, "Bob")
        assert recorded_name(repository, "mine") == other
    repository.remove_pair("mine")
    add_checked(repository, "mine", models, "Ann")
    tokenizer = there / "target" / "tokenizer_config.json"
    tokenizer.write_text('{"chat_template": "{{ messages }}"}')
    add_checked(repository, "mine", changed := named(there, dtype="float32"), "Bob")
    assert recorded_name(repository, "mine") == changed


def test_the_wrong_folders_are_told_and_the_right_ones_are_linked_afterwards(
    repository: Repository, folder: Path
) -> None:
    """The wrong ones differ from what was measured in one bit of the weights, and may be measured too."""
    models, there = named(folder), folder.parent / "there"
    assert "measured as" not in add_checked(repository, "mine", models, "Ann").notes[-1]
    setting = measured(repository, models)
    folder.rename(there)
    wrong = shutil.copytree(there, folder.parent / "wrong")
    weights = bytearray((wrong / "target" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (wrong / "target" / "model.safetensors").write_bytes(weights)

    told = (
        f"These are not the models that were measured as mine ({folder}/target, {folder}/draft): weights, tokenizer, "
        "dtype or template differ. Those have other settings and runs. If you meant them, add the pair again with "
        "their folders."
    )
    assert add_checked(repository, "mine", named(wrong), "Bob").notes[-1] == told
    assert add_checked(repository, "mine", named(there, dtype="float32"), "Bob").notes[-1] == told
    assert measured(repository, named(wrong)) != setting
    assert "they were in" in add_checked(repository, "mine", named(there), "Bob").notes[-1]
    assert repository.given_names() == {models: "mine"}
    assert measured(repository, models) == setting
    assert "measured as" not in " ".join(add_checked(repository, "mine", named(wrong), "Bob").notes)


def test_a_target_alone_is_not_the_pair_that_an_earlier_version_measured_without_its_configuration(
    repository: Repository, folder: Path
) -> None:
    models, there = named(folder), folder.parent / "there"
    add_checked(repository, "mine", models, "Ann")
    id = repository.create_run(sweep().model_copy(update={"pair": models}).runs()[0])
    weights = load_pair(models).weights or {}
    repository.start_run(id, {"weights": {role: weights[role] for role in ("target", "draft")}})
    folder.rename(there)
    told = add_checked(repository, "mine", alone := named(there, draft=""), "Bob").notes[-1]
    assert "not the models that were measured as mine" in told
    assert recorded_name(repository, "mine") == alone


REGIONS = {0.01: "free", 0.05: "free", 0.1: "free", 0.2: "open", 0.3: "traded", 0.35: "traded", 0.4: "ruined"}


def rows(length: int) -> list[dict[str, Any]]:
    return [
        {"acceptance": "fsd-reducible", "threshold": threshold, "draft_length": length, "region": region}
        for threshold, region in REGIONS.items()
    ]


def written(folder: Path, pair: str | None = None, **changed: Any) -> str:
    """A local pair that was calibrated; its name."""
    save_toy_pair(folder)
    exact = {"acceptance": "speculative", "draft_length": 4, "region": "free", "accuracy": 0.8}
    free = rows(12)[1] | {"speedup": 1.5, "difference": 0.0, "low": -0.01}
    greedy = {"exact": exact, "free": free, "example": "arithmetic-0003", "rows": [exact, *rows(6), *rows(12)]}
    told = ({"pair": pair} if pair else {}) | {
        "task": "arithmetic",
        "prompts": 600,
        "samplings": {"greedy": greedy | changed},
    }
    (folder / "calibration.json").write_text(json.dumps(told))
    return f"path:{folder}"


def test_the_telling_thresholds_are_the_best_and_the_ends_of_each_region(tmp_path: Path) -> None:
    told = calibration_of(written(tmp_path))
    assert told is not None
    assert told.thresholds == (0.01, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4)
    assert (told.threshold, told.draft_length, told.exact_length, told.speedup) == (0.05, 12, 4, 1.5)
    assert (told.over_target, told.solved, told.difference, told.at_least) == (None, 480, 0.0, -0.01)
    assert (told.free_until, told.ruinous, told.example) == (0.1, 0.4, "arithmetic-0003")
    assert told.sentence() == (
        "Measured on 600 prompts of arithmetic, greedily: up to js ≤ 0.1 FSD solves as many as SD within 2 points, and "
        "from js ≤ 0.4 it loses 15 points or more."
    )


def test_where_nothing_is_free_or_measured_the_usual_values_stand(tmp_path: Path) -> None:
    assert calibration_of(written(tmp_path, free={})) is None
    assert calibration_of("smollm2-135m") is None
    assert calibration_of(written(tmp_path / "mine", pair="path:elsewhere")) is not None  # the folder was moved
    assert calibration_of(written(tmp_path / "copy", pair="bundled")) is None  # whatever is in it by now
    usual = pair_defaults("smollm2-135m")
    assert usual.sentence == UNCALIBRATED
    assert (usual.threshold, usual.limit, usual.example) == (0.1, 50, None)


@pytest.mark.parametrize("text", ["", "[]", '{"samplings": {}}'])
def test_a_damaged_calibration_is_told(tmp_path: Path, text: str) -> None:
    pair = written(tmp_path)
    (tmp_path / "calibration.json").write_text(text)
    with pytest.raises(ModelUnavailable, match="cannot be read: delete it"):
        calibration_of(pair)


def test_the_shipped_pair_begins_with_what_was_measured_of_it() -> None:
    told = calibration_of("bundled")
    assert told is not None
    assert told.speedup >= 1.4
    assert 0 < told.threshold <= told.free_until < (told.ruinous or 1)
    begun = pair_defaults("bundled")
    assert (begun.threshold, begun.draft_length) == (told.threshold, told.draft_length)
    assert begun.exact_length == told.exact_length
    assert begun.limit == USUAL_PROMPTS
    examples = examples_of("bundled")
    assert len(examples) == len({prompt for _, prompt in examples}) == 8
    assert examples[0][1] == f"Question: {examples[0][0]}\nAnswer:"


def test_a_pair_that_knows_only_problems_is_asked_problems():
    assert all(prompt.startswith("Question: ") for _, prompt in examples_of("bundled-linear"))
    assert not any(prompt.startswith("Question: ") for _, prompt in examples_of("smollm2-135m"))


def test_150_prompts_without_a_loss_decide_within_two_points() -> None:
    assert 0.98**USUAL_PROMPTS < 0.05 < 0.98 ** (USUAL_PROMPTS - 3)


def test_a_pair_without_a_folder_or_answers_is_not_calibrated(tmp_path: Path) -> None:
    with pytest.raises(NotCalibratable, match="bundled or path:FOLDER"):
        counting.sweep_thresholds("smollm2-135m")
    save_toy_pair(tmp_path)
    with pytest.raises(NotEnough, match="100"):
        counting.sweep_thresholds(limit=3)
    with pytest.raises(UnfitTask, match="has no answers"):
        counting.sweep_thresholds(f"path:{tmp_path}")
