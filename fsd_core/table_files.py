"""Files of rows become JSON Lines: tables, workbooks and packed files, of which nothing is followed or run.

The process that reads them (``confined.py``) loads this file alone, so it imports nothing else of the package.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, time
from itertools import islice
from typing import Any

LARGEST_FILE = 8_000_000
"""bytes, as it came and unpacked"""
MOST_LINES, MOST_TASK_PROMPTS = 100_000, 20_000
"""lines with empty ones, and what they may ask"""
_READ = {b"\x1f\x8b": "gzip", b"PK": "zip", b"PAR1": "Parquet"}
_NOT_READ = {
    b"BZh": "a file of bzip2", b"\xfd7zXZ": "a file of xz", b"\x28\xb5\x2f\xfd": "a file of Zstandard",
    b"7z\xbc\xaf": "a file of 7-Zip", b"Rar!": "a file of RAR", b"%PDF": "a PDF", b"ARROW1": "a file of Arrow",
    b"SQLite": "a database of SQLite", b"\xd0\xcf\x11\xe0": "an old or encrypted workbook of Excel",
}  # fmt: skip
"""what a file is that begins so"""
_OFFICE = {
    "xl/workbook.bin": "a binary workbook of Excel", "word/document.xml": "a document of Word",
    "content.xml": "a document of OpenDocument",
}  # fmt: skip
"""what a zip is that holds such a file"""
_WIDE_MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_WORKBOOK_GROWS = 8
"""a workbook unpacks to that many times as much as other files may: it is XML"""
_SEPARATORS = ",;\t|"
_SAMPLE, _SAMPLE_ROWS = 100_000, 20
"""characters and rows from which a separator is told"""
_LONGEST_CELL, _LONGEST_NAME = 1_000_000, 60
"""characters"""
_ROWS_AT_ONCE = 100
UNCOMPUTED = "\ufdd0"
"""no character; before a cell's address in place of the value that its formula lacks"""
_NO_TABLE = (
    "The file is no JSON, and no table whose first row names its columns: expected one object of JSON a line, or names "
    "such as question and answer above the rows."
)
_NUMBER = re.compile(r"[-+]?[\d.,]*\d")
_DECIMAL_COMMA = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+(?:\s?€)?")


class NotRead(Exception):
    """A sentence on a file that is not read."""


def reads(longest: int) -> Callable[[bytes], bytes | str]:
    """Return the function that makes JSON Lines of a file, or the sentence that refuses it.

    The first line has the ``unit`` of a line's number, and ``notes`` on how it was read.
    """

    def answer(data: bytes) -> bytes | str:
        written, notes = bytearray(), list[str]()
        try:
            unit, lines = _lines_of(data, notes)
            for line in lines:
                written += line + b"\n"
                if len(written) > longest:
                    raise NotRead(unpacks_to_more(longest))
        except NotRead as refused:
            return str(refused)
        except MemoryError:
            raise
        except Exception:  # libraries raise anything for a damaged file
            return unreadable(data)
        return json.dumps({"unit": unit, "notes": notes}).encode() + b"\n" + written

    return answer


def unpacks_to_more(largest: int) -> str:
    """Return the sentence on a file that unpacks to more bytes."""
    return f"The file unpacks to more than {largest:,} bytes: split it into several tasks."


def unreadable(data: bytes) -> str:
    """Return the sentence on a file that breaks what reads it, or takes too much."""
    kind = next((kind for mark, kind in _READ.items() if data.startswith(mark)), "")
    if kind == "gzip":
        return "The file begins as one of gzip and cannot be unpacked: compress or fetch it again."
    return (
        f"The file {f'begins as one of {kind} and ' * bool(kind)}cannot be read: it is damaged, or takes too much time "
        "or memory. Write it again, or as JSON Lines."
    )


def not_utf8(data: bytes, at: int) -> str:
    """Return what is to be said of bytes that are not UTF-8 from that place on."""
    around = data[max(at - 12, 0) : at + 12].decode("cp1252", "replace")
    return (
        f"is not UTF-8 from byte {at + 1} on: it looks like Windows-1252 or Latin-1, which would be {around!r}. Save "
        "the file as UTF-8, such as “CSV UTF-8” of Excel."
    )


def is_json(data: bytes) -> bool:
    """Return whether a file begins as JSON in UTF-8, or is empty."""
    begins = data.removeprefix(codecs.BOM_UTF8).lstrip()[:2]
    return begins[:1] in (b"", b"{", b"[") and begins[1:] != b"\0"


def _lines_of(data: bytes, notes: list[str], packed: bool = False) -> tuple[str, Iterable[bytes]]:
    """Return the unit of a line's number, and the lines, which are made as they are asked for."""
    if data.startswith(b"PAR1"):
        return "row", _parquet(data)
    if data.startswith((b"\x1f\x8b", b"PK")):
        archive = None if data.startswith(b"\x1f\x8b") else zipfile.ZipFile(io.BytesIO(data))
        if archive is not None and "xl/workbook.xml" in archive.namelist():
            return "row", _workbook(data, archive, notes)
        if packed:
            raise NotRead("The file is packed twice: unpack it once.")
        with gzip.GzipFile(fileobj=io.BytesIO(data)) if archive is None else _member(archive) as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise NotRead(unpacks_to_more(LARGEST_FILE))
        return _lines_of(content, notes, True)
    for mark, what in _NOT_READ.items():
        if data.startswith(mark):
            raise NotRead(f"The file is {what}, which is not read: save it as CSV, XLSX, Parquet or JSON Lines.")
    text = _text(data)
    if is_json(text[:_SAMPLE].encode()):
        return "line", [text.encode()]
    return "row", _delimited(text, notes)


def _member(archive: zipfile.ZipFile) -> Any:
    """Return the only file of a zip, opened."""
    members = [
        one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith(("__MACOSX/", "."))
    ]
    for name, what in _OFFICE.items():
        if any(one.filename == name for one in members):
            raise NotRead(f"The file is {what}, which is not read: save it as CSV or XLSX.")
    if len(members) != 1:
        listed = ", ".join(repr(one.filename[:_LONGEST_NAME]) for one in members[:5])
        more = f" and {len(members) - 5:,} more" if len(members) > 5 else ""
        raise NotRead(f"The zip holds {listed or 'no file'}{more}: expected one file. Add each as a task of its own.")
    if members[0].flag_bits & 1:
        raise NotRead("The zip is encrypted: unpack it first.")
    return archive.open(members[0])


def _text(data: bytes) -> str:
    """Return the text without its marks of byte order, which stand before each part of a file that was joined."""
    encoding = next((name for mark, name in _WIDE_MARKS.items() if data.startswith(mark)), "utf-8")
    if encoding == "utf-8" and b"\0" in data[:_SAMPLE]:
        raise NotRead("The file is no text, or one of UTF-16 without its mark: save it as UTF-8, such as “CSV UTF-8”.")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        wide = f"begins as {encoding.upper()} and is damaged from byte {error.start + 1} on: save it as UTF-8."
        raise NotRead(f"The file {not_utf8(data, error.start) if encoding == 'utf-8' else wide}") from None
    return text.removeprefix("\ufeff").replace("\n\ufeff", "\n")


def _delimited(text: str, notes: list[str]) -> Iterator[bytes]:
    """Return the rows of a table in text. Cells keep what is written in them."""
    given = re.match(r"sep=(.)\r?\n", text)  # as Excel begins a file
    text = text[given.end() :] if given else text
    separator = given[1] if given else _separator(text)
    csv.field_size_limit(_LONGEST_CELL)

    def number(cell: str) -> str:
        if separator != ";" or not _DECIMAL_COMMA.fullmatch(cell.strip()):
            return cell
        decimal = cell.strip().replace(".", "").replace(",", ".")
        if not notes:
            notes.append(f"Numbers have a decimal comma: {cell.strip()} is read as {decimal}.")
        return decimal

    def records() -> Iterator[list[str | None]]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        try:
            for record in reader:
                yield [number(cell) if cell.strip() else None for cell in record]
        except csv.Error as error:
            where = f"Line {reader.line_num:,} cannot be read as a table ({error})"
            raise NotRead(f"{where}: put texts with quotation marks into such, and double those within.") from None

    return _table(records())


def _separator(text: str) -> str:
    """Return the separator that gives the header several names, and the most rows as many cells."""

    def fit(separator: str) -> tuple[float, int]:
        try:
            sample = csv.reader(io.StringIO(text[:_SAMPLE], newline=""), delimiter=separator)
            widths = [len(record) for record in islice(sample, _SAMPLE_ROWS) if record]
        except csv.Error:
            return 0, 0
        return (widths.count(widths[0]) / len(widths), widths[0]) if widths and widths[0] > 1 else (0, 0)

    return max(_SEPARATORS, key=fit)


def _table(records: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield a line for each record, so that they are numbered as in a spreadsheet: header and empty ones are empty."""
    names, header, is_empty = list[str](), list[str](), True
    for number, cells in enumerate(records, 1):
        if number > MOST_LINES:
            raise NotRead(f"The file has more than {MOST_LINES:,} rows: expected {MOST_TASK_PROMPTS:,} at most.")
        texts = [str(cell or "").strip() for cell in cells]
        if not names and any(texts):
            names, header = _header(texts), texts
        elif any(cell is not None for cell in cells[len(names) :]):
            raise NotRead(
                f"Row {number:,} has {len(cells)} cells, and the first row {len(names)} names: name every column, and "
                "put texts that hold the separator into quotation marks."
            )
        is_row = texts[: len(header)] != header and any(cell is not None for cell in cells)
        row = dict.fromkeys(names) | dict(zip(names, cells, strict=False))
        yield json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") if is_row else b""
        is_empty = is_empty and not is_row
    if is_empty:
        raise NotRead(_NO_TABLE)


def _header(cells: list[str]) -> list[str]:
    """Return the names of the columns. A table without them is refused."""
    while not cells[-1]:
        cells.pop()
    is_text = len(cells) == 1 and " " in cells[0]
    if is_text or any(len(cell) > _LONGEST_NAME or _NUMBER.fullmatch(cell) for cell in cells):
        raise NotRead(_NO_TABLE)
    return _distinct([cell.strip(UNCOMPUTED) or f"column {place}" for place, cell in enumerate(cells, 1)])


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise NotRead("The file has two columns of one name: rename one of them.")
    return names


def _workbook(data: bytes, archive: zipfile.ZipFile, notes: list[str]) -> Iterator[bytes]:
    """Return the rows of the first shown sheet with a table, and the values that the program left beside formulas."""
    from openpyxl import load_workbook

    largest = _WORKBOOK_GROWS * LARGEST_FILE
    if sum(one.file_size for one in archive.infolist()) > largest:
        raise NotRead(unpacks_to_more(largest))
    values, written = (
        load_workbook(io.BytesIO(data), read_only=True, data_only=data_only, keep_links=False)
        for data_only in (True, False)
    )
    for each in (*values.worksheets, *written.worksheets):
        each.reset_dimensions()
    pairs = [*zip(values.worksheets, written.worksheets, strict=True)]
    shown = [pair for pair in pairs if pair[0].sheet_state == "visible"]
    if not shown:
        raise NotRead("The workbook shows no sheet with cells: expected one.")
    both = next((pair for pair in shown if _has_table(pair[1])), shown[0])
    filled = [(each.title, sum(map(any, _texts(each))) - 1) for _, each in pairs if each is not both[1]]
    others = ", ".join(f"{title!r} ({n:,} row{'s' * (n != 1)})" for title, n in filled if n >= 0)
    which = ", the first with rows below names," * (both is not shown[0])
    if which or others:
        which = f"Of the workbook, the sheet {both[0].title!r}{which} is read."
        notes.append(which + f" Left out: {others}." * bool(others))

    def value(cell: Any, formula: Any) -> Any:
        is_absent = cell.value is None and formula is not None and cell.data_type != "str"  # which is an empty text
        return f"{UNCOMPUTED}{cell.coordinate}" if is_absent or cell.data_type == "e" else _cell(cell.value)

    def records() -> Iterator[list[Any]]:
        for cells, formulas in zip(both[0].iter_rows(), both[1].iter_rows(values_only=True), strict=True):
            yield [value(cell, formula) for cell, formula in zip(cells, formulas, strict=True)]

    return _table(records())


def _texts(sheet: Any) -> Iterator[list[str | None]]:
    return ([f"{each}".strip() or None if each is not None else None for each in row] for row in sheet.values)


def _has_table(sheet: Any) -> bool:
    """Return whether a sheet has a row below names, or is refused for another reason than that it has none."""
    try:
        return any(_table(_texts(sheet)))
    except NotRead as refused:
        return str(refused) != _NO_TABLE


def _cell(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():  # a workbook knows no other numbers
        return int(value)
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    return (value if value.strip() else None) if isinstance(value, str) else plain(value)


def _parquet(data: bytes) -> Iterator[bytes]:
    """Yield the rows. What a file says of its own size may be wrong."""
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(data))
    about = file.metadata
    _distinct(file.schema_arrow.names)
    if about.num_rows > MOST_TASK_PROMPTS:
        raise NotRead(f"The file has {about.num_rows:,} rows: expected at most {MOST_TASK_PROMPTS:,} prompts.")
    if sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)) > LARGEST_FILE:
        raise NotRead(unpacks_to_more(LARGEST_FILE))
    room = LARGEST_FILE
    for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
        for row in batch.to_pylist():
            line = json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False).encode()
            room -= len(line) + 1
            if room < 0:
                raise NotRead(unpacks_to_more(LARGEST_FILE))
            yield line


def plain(value: Any) -> Any:
    """Return a value as JSON has it. Dates and decimal numbers become text, and objects lose fields of nothing."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):  # some programs write text as bytes
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
