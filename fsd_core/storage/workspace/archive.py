"""A workspace as one file: a zip of JSON Lines, one member per table, and a manifest that lists them.

``manifest.json`` holds the version of the format, the revision of the tables, and each member's rows, bytes and
SHA-256. Members are read as streams and never extracted under their names, so that a name in the file does no harm.
"""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from fsd_core.errors import DataDamaged, FsdError, Unreadable
from fsd_core.frozen import Frozen
from fsd_core.storage.database import schema

_FORMAT = "fsd-lab workspace"
_VERSION = 1
MANIFEST = "manifest.json"
LONGEST_MANIFEST = 1_000_000
LONGEST_ARCHIVE_LINE = 32_000_000
"""bytes of one row, so that no file can fill the memory: read as JSON, a row may take 20 times as many"""
MOST_INFLATED, ALWAYS_INFLATED = 250, 10**9
"""allowed ratio of the members' size to the file's own, which text does not exceed; bytes that are always allowed"""


class Member(Frozen):
    """Expected contents of a table's member."""

    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(Frozen):
    """The file's description of itself."""

    format: str
    version: int
    revision: str
    """of the tables that the rows come from"""
    exported_at: datetime
    whole: bool
    """whether it is the whole workspace; otherwise selected runs, without the reviews"""
    members: dict[str, Member]
    """by table"""


class ArchiveWriter:
    """Writes tables one after the other, and the manifest at the end."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._members: dict[str, Member] = {}

    def add(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add a table with its rows as plain JSON data."""
        digest, size, count = hashlib.sha256(), 0, 0
        with self._zip.open(_member(table), "w", force_zip64=True) as out:
            for row in rows:
                line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
                out.write(line)
                digest.update(line)
                size, count = size + len(line), count + 1
        self._members[table] = Member(rows=count, bytes=size, sha256=digest.hexdigest())

    def close(self, exported_at: datetime, whole: bool) -> None:
        manifest = Manifest(
            format=_FORMAT, version=_VERSION, revision=schema.head(), exported_at=exported_at, whole=whole,
            members=self._members,
        )  # fmt: skip
        self._zip.writestr(MANIFEST, json.dumps(manifest.as_json(), indent=2))
        self._zip.close()


class Archive:
    """A file that :func:`opened` has checked."""

    def __init__(self, file: Path, source: zipfile.ZipFile, manifest: Manifest) -> None:
        self._file, self._zip = file, source
        self.manifest = manifest

    @property
    def bytes(self) -> int:
        """Size of all rows."""
        return sum(member.bytes for member in self.manifest.members.values())

    def rows(self, table: str) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the rows of a table, each with its size in bytes.

        Raises ``DataDamaged`` if they are not what was written: at the row that shows it, or after the last one.
        """
        expected, digest, count, size = self.manifest.members[table], hashlib.sha256(), 0, 0
        with self._zip.open(_member(table)) as lines:
            while line := lines.readline(LONGEST_ARCHIVE_LINE + 1):
                digest.update(line)
                size, count = size + len(line), count + 1
                if size > expected.bytes or len(line) > LONGEST_ARCHIVE_LINE:
                    raise damaged(self._file, f"{table} is longer than its manifest says")
                try:
                    row = json.loads(line, parse_constant=_no_number)
                except _NoNumber as error:
                    raise damaged(self._file, f"row {count} of {table} holds {error}, which is no number") from None
                except (ValueError, RecursionError):
                    raise damaged(self._file, f"row {count} of {table} cannot be read") from None
                if not isinstance(row, dict):
                    raise damaged(self._file, f"row {count} of {table} is no row")
                yield row, len(line)
        if Member(rows=count, bytes=size, sha256=digest.hexdigest()) != expected:
            raise damaged(self._file, f"{table} is not what its manifest says")


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """Yield the file, with its manifest checked.

    Raises ``InvalidSetting`` if it is no export or from a newer version, and ``DataDamaged``, also from within the
    block, if it is incomplete or changed.
    """
    if file.is_dir():
        raise Unreadable(f"{file} is a folder: name a file that `export` has made.")
    if not file.is_file():
        raise Unreadable(f"There is no file {file}: name one that `export` has made.")
    try:
        with zipfile.ZipFile(file) as source:
            manifest = _manifest(file, source)
            _check_members(file, source, manifest)
            yield Archive(file, source, manifest)
    except zipfile.BadZipFile as error:
        if not _begins_as_zip(file):
            raise _foreign(file) from None
        raise damaged(file, "it was cut off, or its bytes were changed") from error
    except FsdError:
        raise
    except (zlib.error, EOFError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise damaged(file, "its bytes were changed") from error
    except (NotImplementedError, RuntimeError):  # a compression method or a password that no export has
        raise _foreign(file) from None
    except OSError as error:
        raise Unreadable(f"{file} cannot be read ({error.strerror}): check the file and its disk.") from error


def damaged(file: Path, what: str) -> DataDamaged:
    return DataDamaged(f"{file} is damaged ({what}), so nothing was imported: export it again, or use an earlier file.")


class _NoNumber(Exception):
    """NaN or an infinity, which Python's reader takes and JSON does not have."""


def _no_number(constant: str) -> Any:
    raise _NoNumber(constant)


def _foreign(file: Path) -> Unreadable:
    return Unreadable(f"{file} is no export of FSD Lab: name a file that `python -m fsd_core export` has made.")


def _begins_as_zip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _member(table: str) -> str:
    return f"{table}.jsonl"


def _manifest(file: Path, source: zipfile.ZipFile) -> Manifest:
    try:
        with source.open(MANIFEST) as member:
            content = json.loads(member.read(LONGEST_MANIFEST))
    except (KeyError, ValueError):
        raise _foreign(file) from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _foreign(file)
    newer = f"{file} was exported by a newer version of FSD Lab: update this one, then import it."
    if isinstance(content.get("version"), int) and content["version"] > _VERSION:
        raise Unreadable(newer)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise damaged(file, "its manifest cannot be read") from error
    if manifest.revision not in schema.revisions():
        raise Unreadable(newer)
    return manifest


def _check_members(file: Path, source: zipfile.ZipFile, manifest: Manifest) -> None:
    names = [info.filename for info in source.infolist()]
    expected = [MANIFEST, *map(_member, manifest.members)]
    if sorted(names) != sorted(expected):
        raise damaged(file, "it does not hold the tables that its manifest names")
    if any(stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG) for info in source.infolist()):
        raise damaged(file, "it holds a link, a folder or a device")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in source.infolist()):
        raise _foreign(file)  # others may take any memory to unpack
    size = sum(info.file_size for info in source.infolist())
    if size > max(ALWAYS_INFLATED, MOST_INFLATED * file.stat().st_size):
        raise damaged(file, f"it would unpack to {size / 1e9:,.2f} GB")
