"""Every reader of what people bring has a bound in size, depth and time: see the table in docs/reliability.md."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dashboard.tables.logs import harmless
from dashboard.ui.view import Question
from dashboard.web import _object
from fsd_core.config import TemplateConfig
from fsd_core.errors import (
    DataDamaged,
    FsdError,
    InvalidSetting,
    Malformed,
    Misconfigured,
    ModelUnavailable,
    OutOfRange,
    UnknownName,
    Unreadable,
)
from fsd_core.models import eagle_files, sources
from fsd_core.models.model_pairs import _read, check_folders, get_pair, is_known, may_be_named
from fsd_core.models.prompt import load_tokenizer
from fsd_core.models.sources import check_sizes, differing_tokens, read_object, stored_numbers
from fsd_core.replays import trace_file
from fsd_core.settings import Settings
from fsd_core.storage.opening import open_database
from fsd_core.tasks.custom import reading
from fsd_plugins.results import reading as result_import
from fsd_plugins.results.reading import read_result

DEEP = 100_000
DEEP_JSON = b'{"a":' * DEEP + b"1" + b"}" * DEEP
LONG_NAMES = ["path:" + "a" * 5000, "path:/" + "a" * 300, "path:/" + "a/" * 900, "path:~nobody-of-this-name/x"]


@pytest.mark.parametrize("name", LONG_NAMES)
def test_a_pair_that_no_folder_can_be_is_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises((ModelUnavailable, InvalidSetting), match=r"holds no model pair|have 5,005 bytes together"):
        get_pair(name)
    assert not is_known(name)
    with pytest.raises(FsdError):
        get_pair(f"models:target={name.removeprefix('path:')}")
    settings = Settings(home=tmp_path, access="password", model_roots=str(tmp_path))
    with pytest.raises(FsdError, match="taken from folders below"):
        check_folders(name, settings)


def test_whether_a_folder_exists_that_may_not_be_named_is_not_told(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, access="password", model_roots=str(tmp_path / "models"))
    assert [may_be_named(f"path:{folder}", settings) for folder in (tmp_path, tmp_path / "no", "/etc")] == [False] * 3
    assert may_be_named(f"path:{tmp_path}/models/any", settings)
    assert may_be_named(f"path:{tmp_path}", Settings(home=tmp_path))


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg", "nonsense"])
def test_a_driver_that_is_not_installed_is_a_sentence(driver: str) -> None:
    with pytest.raises(Misconfigured, match=f"driver of 'postgresql\\+{driver}' is not installed: write postgresql://"):
        open_database(f"postgresql+{driver}://user:secret@host/name")


@pytest.mark.parametrize("text", ["=1+1", " =1", "\n=1", "\r\n=1", "\u00a0+1", "\n", "\t1", "-1", "@x", "\v@x"])
def test_cells_that_a_spreadsheet_would_run_are_marked(text: str) -> None:
    assert harmless(text) == f"'{text}"
    assert harmless(f"a{text}") == f"a{text}"


@pytest.mark.parametrize("text", ['{"a":' * 400, '{"a": [' + "[" * 900 + "]" * 900 + "]}"])
def test_template_arguments_are_no_bomb(text: str) -> None:
    with pytest.raises(Malformed):
        TemplateConfig.checked(arguments=text)
    with pytest.raises(Malformed):
        TemplateConfig.checked(arguments=json.dumps({"a": "x" * 2000}))


def test_task_files_that_are_nested_without_end_are_sentences() -> None:
    for data in (DEEP_JSON, b"[" * DEEP, b"[" + DEEP_JSON + b"]"):
        checked = reading.check(data)
        assert checked.lines == ()
        assert "nested too deep" in checked.problems[0].sentence


@pytest.mark.parametrize(
    ("name", "largest"),
    [("config.json", "LARGEST_JSON"), ("chat_template.jinja", "LARGEST_TEMPLATE"), ("merges.txt", "LARGEST_TOKENIZER"),
     ("tokenizer.json", "LARGEST_TOKENIZER"), ("added_tokens.json", "LARGEST_JSON")],
)  # fmt: skip
def test_files_beside_the_weights_have_a_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, largest: str
) -> None:
    monkeypatch.setattr(sources, largest, 10)
    (tmp_path / name).write_bytes(b"x" * 10)
    check_sizes(tmp_path)
    (tmp_path / name).write_bytes(b"x" * 11)
    for load in (check_sizes, load_tokenizer):
        with pytest.raises(ModelUnavailable, match=rf"{name} in .* has 11 bytes: expected at most 10\. Restore"):
            load(tmp_path)


def test_json_of_models_is_read_within_bounds_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in (("deep.json", DEEP_JSON), ("list.json", b"[1]"), ("text.json", b"\xff")):
        (tmp_path / name).write_bytes(data)
        assert read_object(tmp_path / name) == {}
        with pytest.raises(ModelUnavailable, match=r"calibration .* cannot be read"):
            _read(tmp_path / name, "mine")
        assert differing_tokens(tmp_path / name, tmp_path / name) is None
    (tmp_path / "large.json").write_text('{"a": 1}')
    assert read_object(tmp_path / "large.json") == {"a": 1}
    monkeypatch.setattr(sources, "LARGEST_JSON", 7)
    assert read_object(tmp_path / "large.json") == {}


def test_result_files_of_other_tools_are_no_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (DEEP_JSON, b"[" * DEEP, b"[" + DEEP_JSON + b"]", b"{}\n" + DEEP_JSON):
        with pytest.raises(Unreadable, match=r"results\.json"):
            read_result(data, "results.json")
    monkeypatch.setattr(result_import, "LARGEST_RESULT", 7)
    with pytest.raises(OutOfRange):
        read_result(b'{"a": 1}', "results.json")


def test_headers_of_weights_are_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def weights(header: bytes, length: int | None = None) -> Path:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.safetensors"
        file.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)
        return file

    assert stored_numbers(weights(b"{}")) == {}
    for file in (weights(DEEP_JSON), weights(b"{}", 2**63), weights(b"{}", 10**9), weights(b'{"a": 1}')):
        with pytest.raises(ModelUnavailable, match="no whole safetensors file"):
            stored_numbers(file)
    monkeypatch.setattr(sources, "LONGEST_HEADER", 7)
    with pytest.raises(ModelUnavailable, match="no whole safetensors file"):
        stored_numbers(weights(b"{}" + b" " * 6))


def test_a_pickle_of_tensors_that_unpacks_to_more_than_it_is_is_refused(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(1000)}, tmp_path / "pytorch_model.bin")
    assert eagle_files._read(tmp_path)["fc.weight"].shape == (1000,)
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin") as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
        out.writestr("archive/data/9", bytes(1_000_000))
    with pytest.raises(ValueError, match="unpacks to more"):
        eagle_files._read(tmp_path)


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_traces_in_files_are_read_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(pack(b"{}\n" + b"[" * DEEP + b"\n"))
    with pytest.raises(DataDamaged, match="no whole trace"):
        trace_file.read(path)
    monkeypatch.setattr(trace_file, "LARGEST_TRACE_FILE", 1000)
    path.write_bytes(pack(b"{}\n" * 1000))
    with pytest.raises(OutOfRange, match="1,000"):
        trace_file.read(path)


def test_what_a_page_sends_is_read_within_bounds() -> None:
    """A body has at most 2 MB before it comes here: see test_front_door.py."""
    for body in (b"[" * 1_000_000, DEEP_JSON, b"\xff" * 100, b"1", b"null"):
        assert _object(body) == {}
    with pytest.raises(ValueError, match=r"."):
        Question.model_validate_json(DEEP_JSON)


def test_names_of_the_hub_and_of_models_are_short(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        get_pair("hub:" + "a/b+" * 100_000)
    with pytest.raises(FsdError) as told:
        get_pair("models:" + "target=a;" * 100_000)
    assert len(str(told.value)) < 1000
