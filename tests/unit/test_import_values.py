"""What an imported file may say, and what it may be: values that no page could show, and archives that attack."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsd_core.errors import DataDamaged, FsdError, InvalidSetting
from fsd_core.roles import Person
from fsd_core.settings import sqlite_url
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import AliasMoved, UseDescribed
from fsd_core.storage.workspace_export import export
from fsd_core.storage.workspace_import import import_file
from tests.tools.copies import copy_of
from tests.tools.tracking_examples import generation, run_config

RUNS = "runs.jsonl"


@pytest.fixture
def other(migrated: Path, tmp_path: Path) -> Iterator[Repository]:
    with copy_of(migrated, sqlite_url(tmp_path / "other" / "fsd.db")) as other:
        yield other


@pytest.fixture
def file(repository: Repository, database_url: str, tmp_path: Path) -> Path:
    """One finished run of two prompts, which an alias of a use names."""
    id = repository.create_run(run_config())
    repository.start_run(id, {"device": "cpu", "versions": {"torch": "2"}, "weights": {"target": "t1"}})
    for position in range(2):
        repository.record_generation(id, generation(position), {"threads": 1})
    metrics = {"accuracy": 1.0, "accuracy_low": None, "acceptance_at_position": [0.5, None], "divergence_histogram": {}}
    repository.finish_run(id, metrics | {"divergence_histogram": {"edges": [0.0, 1.0], "counts": [3]}})
    rows = {"iid": [{"drafts": 1, "rate": 0.5, "low": None, "high": None}]}
    bounds = {"temperature": 1.0, "positions": 9, "seed": 0, "optima": rows, "verifiers": {}}
    repository.set_scores(id, {}, metrics | {"bounds": [bounds]})
    moved = AliasMoved(alias="candidate", setting=repository.run(id).setting_id, former=None)
    repository.append_events("chat", Person("Ann", "admin"), [UseDescribed(name="Chat"), moved], 0)
    export(database_url, tmp_path / "whole.zip", tmp_path)
    return tmp_path / "whole.zip"


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as source:
        return {name: source.read(name) for name in source.namelist()}


def honest(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a manifest that fits them."""
    manifest = json.loads(contents["manifest.json"])
    for table in manifest["members"]:
        data = contents[f"{table}.jsonl"]
        digest = hashlib.sha256(data).hexdigest()
        manifest["members"][table] = {"rows": data.count(b"\n"), "bytes": len(data), "sha256": digest}
    return contents | {"manifest.json": json.dumps(manifest).encode()}


def packed(to: Path, contents: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda info: None) -> Path:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            change(info)
            out.writestr(info, data)
    return to


def changed(file: Path, table: str, **values: Any) -> Path:
    """The file with other values in the first row of a table."""
    contents = members(file)
    first, *rest = contents[f"{table}.jsonl"].splitlines(keepends=True)
    contents[f"{table}.jsonl"] = json.dumps(json.loads(first) | values).encode() + b"\n" + b"".join(rest)
    return packed(file.with_name("changed.zip"), honest(contents))


def refused(other: Repository, file: Path, error: type[FsdError], told: str) -> None:
    with pytest.raises(error, match=told) as caught:
        import_file(other._database, file, file.parent)
    assert "\n" not in str(caught.value)
    assert other.runs() == []
    assert other.review_log() == []


def trace(rows: object) -> dict[str, str]:
    data = gzip.compress(json.dumps(rows).encode(), mtime=0)
    return {"data": b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_file_as_it_is_is_taken(file: Path, other: Repository) -> None:
    assert import_file(other._database, file, file.parent).runs == 1
    assert other.runs()[0].metrics["accuracy"] == 1.0  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        ("runs", {"metrics": {"accuracy": "high"}}, r"metrics\.accuracy of the run .{8} \(input should be a valid num"),
        ("runs", {"metrics": {"accuracy": 1e308}}, r"metrics\.accuracy of the run .{8} \(input should be less than"),
        ("runs", {"metrics": {"accuracy": True}}, r"metrics\.accuracy of the run"),
        ("runs", {"metrics": {"rates": [1, "2"]}}, r"metrics\.rates"),
        ("runs", {"metrics": {"divergence_histogram": {"edges": ["a"]}}}, r"metrics\.divergence_histogram"),
        ("runs", {"metrics": {"bounds": [{"temperature": "hot"}]}}, r"metrics\.bounds\.0\.temperature"),
        ("runs", {"predicted": {"accuracy": "1"}}, r"predicted\.accuracy"),
        ("runs", {"metrics": {"accuracy": float("nan")}}, "row 1 of runs holds NaN, which is no number"),
        ("generations", {"seconds": float("inf")}, "row 1 of generations holds Infinity, which is no number"),
        ("runs", {"position": -1}, "position of the run"),
        ("runs", {"prompts_done": -1}, "prompts_done of the run"),
        ("runs", {"decoding_seconds": -0.5}, "decoding_seconds of the run"),
        ("runs", {"losses": {"first": 1}}, "losses"),
        ("runs", {"losses": {"0": "many"}}, r"losses\.0"),
        ("runs", {"provenance": {"versions": "2.0"}}, r"provenance\.versions"),
        ("runs", {"provenance": {"weights": {"target": 5}}}, r"provenance\.weights\.target"),
        ("runs", {"provenance": {"cpu": [[]]}}, r"provenance\.cpu"),
        ("sittings", {"conditions": {"threads": [1]}}, r"conditions\.threads of the run"),
        ("generations", {"position": -3}, "position of prompt -2 of the run"),
        ("generations", {"turn": -1}, "turn of prompt 1 of the run"),
        ("generations", {"outcome": "brilliant"}, "outcome of prompt 1 of the run"),
        ("generations", {"stop_reason": "bored"}, "stop_reason of prompt 1"),
        ("generations", {"tokens": -1}, "tokens of prompt 1"),
        ("generations", {"negative_log_likelihood": 1e308}, "negative_log_likelihood of prompt 1"),
        ("generations", {"seconds": -1.0}, "seconds of prompt 1"),
        ("traces", trace([["a"]]), "the rounds of a text"),
        ("traces", trace({"rounds": 1}), "the rounds of a text"),
        ("traces", trace([[[1], 1, [1], ["guessed"], [0.1], [0.1], [0.1], [0.1], 0.1, 0.0]]), "the rounds of a text"),
    ],
)
def test_values_that_no_page_could_show_are_named(
    file: Path, other: Repository, table: str, values: dict[str, Any], told: str
) -> None:
    refused(other, changed(file, table, **values), DataDamaged, told)


def test_aliases_of_settings_that_are_not_there_are_refused(file: Path, other: Repository) -> None:
    contents = members(file)
    setting = json.loads(contents["settings.jsonl"].splitlines()[0])["id"]
    contents["review_log.jsonl"] = contents["review_log.jsonl"].replace(setting.encode(), b"f" * 16)
    told = "the setting ffffffffffffffff, which the use 'chat' names, is not in the file"
    refused(other, packed(file.with_name("alias.zip"), honest(contents)), DataDamaged, told)


def test_rounds_that_unpack_to_too_much_are_refused(file: Path, other: Repository) -> None:
    data = gzip.compress(b"[" + b" " * 33_000_000 + b"]", mtime=0)
    bomb = {"data": b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}
    refused(other, changed(file, "traces", **bomb), DataDamaged, r"cut off, or more than 32,000,000 bytes")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_folders_and_devices_in_an_archive_are_refused(file: Path, other: Repository, kind: int) -> None:
    def as_kind(info: zipfile.ZipInfo) -> None:
        if info.filename == RUNS:
            info.external_attr = (kind | 0o777) << 16

    told = "it holds a link, a folder or a device"
    refused(other, packed(file.with_name("kind.zip"), members(file), as_kind), DataDamaged, told)


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil", "runs.jsonl/../../x", "C:\\evil", "note.txt"])
def test_names_that_lead_elsewhere_are_refused(file: Path, other: Repository, name: str) -> None:
    path = packed(file.with_name("named.zip"), members(file))
    with zipfile.ZipFile(path, "a") as out:
        out.writestr(name, "x")
    refused(other, path, DataDamaged, "does not hold the tables that its manifest names")
    assert not list(file.parent.rglob("*evil*"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(file: Path, other: Repository, method: int) -> None:
    def with_method(info: zipfile.ZipInfo) -> None:
        info.compress_type = method if info.filename == RUNS else zipfile.ZIP_DEFLATED

    path = packed(file.with_name("packed.zip"), members(file), with_method)
    refused(other, path, InvalidSetting, "is no export of FSD Lab")


def test_a_member_that_unpacks_to_more_than_it_says_is_refused(file: Path, other: Repository) -> None:
    contents = honest(members(file))
    contents[RUNS] += b" " * 50_000_000
    refused(
        other, packed(file.with_name("more.zip"), contents), DataDamaged, "runs is (longer than|not what) its manif"
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_other_archives_are_no_exports_whatever_they_hold(
    file: Path, other: Repository, tmp_path: Path, kind: bytes
) -> None:
    with tarfile.open(tmp_path / "links.tar", "w") as out:
        info = tarfile.TarInfo("runs.jsonl")
        info.type, info.linkname = kind, "/etc/passwd"
        out.addfile(info, io.BytesIO())
    refused(other, tmp_path / "links.tar", InvalidSetting, "is no export of FSD Lab")
