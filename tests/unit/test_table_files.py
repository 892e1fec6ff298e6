"""Files as people have them: tables, workbooks, chats and packed files are read by one reader, within bounds."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pytest
from pyarrow import parquet

import fsd_core
from fsd_core.actions.action import Ask
from fsd_core.actions.tasks import add_task
from fsd_core.roles import Person
from fsd_core.settings import get_settings
from fsd_core.storage.repository import Repository
from fsd_core.tasks.custom import reading
from fsd_core.tasks.custom.reading import LARGEST_FILE, MOST_LINES, CheckedFile, check
from fsd_core.tasks.custom.scorers import get_scorer

GIGABYTE = 1 << 30


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def zipped(**members: bytes) -> bytes:
    """A zip whose members are named by words: ``a_csv`` is ``a.csv``."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name if "/" in name or "[" in name else name.replace("_", "."), data)
    return written.getvalue()


def workbook(*rows: list[Any], **sheets: list[list[Any]]) -> bytes:
    """A workbook with a sheet of those rows, and others by their titles."""
    book, written = openpyxl.Workbook(), io.BytesIO()
    for title, content in {"Sheet": rows, **sheets}.items():
        sheet = book.active if title == "Sheet" else book.create_sheet(title)
        for row in content:
            sheet.append(row)
    book.save(written)
    return written.getvalue()


def with_members(archive: bytes, **replaced: Any) -> bytes:
    """The same zip with members, some of which are made of those of that name; ``__`` stands for a slash."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    for name, change in replaced.items():
        path = name.replace("__", "/").replace("_", ".")
        members[path] = change(members[path]) if callable(change) else change
    return zipped(**members)


def table(**columns: Any) -> bytes:
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), written)
    return written.getvalue()


def asked(file: CheckedFile) -> list[tuple[Any, str | None]]:
    assert file.problems == ()
    return [(line.model_input, line.reference) for line in file.lines]


def refusal(data: bytes) -> str:
    (problem,) = check(data).problems
    return problem.sentence


SUMS = [("What is 2 + 3?", "5"), ("What is 7 / 2, or „so“?", "3.5")]
COMMAS = 'question,answer\nWhat is 2 + 3?,5\n"What is 7 / 2, or „so“?",3.5\n'
EXCEL = "\ufeffQuestion;Answer;Points\r\nWhat is 2 + 3?;5;\r\n;;\r\nWhat is 7 / 2, or „so“?;3,5;2\r\n"
SHEET = workbook(["Question", "Answer"], [], [SUMS[0][0], 5.0], [SUMS[1][0], 3.5])
LINES = lines(*({"question": question, "answer": answer} for question, answer in SUMS))


@pytest.mark.parametrize(
    "data",
    [
        COMMAS.encode(), EXCEL.encode(), ("sep=;\r\n" + EXCEL[1:]).encode(),
        "\n".join("\t".join(row) for row in [("question", "answer"), *SUMS]).encode(),
        EXCEL.replace(";", "\t").replace("3,5", "3.5")[1:].encode("utf-16"), COMMAS.encode("utf-32"),
        LINES.decode().encode("utf-16"), LINES.replace(b"\n", b"\n\xef\xbb\xbf", 1),
        COMMAS.replace("\n", "\n\ufeffquestion,answer\n", 1).encode(), SHEET, gzip.compress(SHEET),
        gzip.compress(EXCEL.encode()), zipped(sums_csv=COMMAS.encode()), zipped(sums_xlsx=SHEET),
        zipped(sums_jsonl=LINES), zipped(sums_jsonl=LINES, __MACOSX=b""),
        zipped(sums_parquet=table(question=[one for one, _ in SUMS], answer=[5, 3.5])),
    ],
    ids=["CSV", "Excel's CSV", "Excel's CSV with sep", "TSV", "UTF-16", "UTF-32", "lines in UTF-16", "lines joined",
         "CSV joined", "XLSX", "XLSX in gzip", "CSV in gzip", "CSV in zip", "XLSX in zip", "lines in zip", "macOS",
         "Parquet in zip"],
)  # fmt: skip
def test_the_same_questions_are_the_same_task_in_every_format(data: bytes) -> None:
    file = check(data)
    found = [(question, reference.removesuffix(".0")) for question, reference in asked(file) if reference]
    assert (found, file.scorer) == (SUMS, "number")
    taken = {own: name.lower() for name, own in file.fields}
    assert (taken["prompt"], taken["reference"]) == ("question", "answer")


def test_what_was_read_otherwise_than_it_is_written_is_told() -> None:
    notes = check(EXCEL.encode()).notes
    assert "Numbers have a decimal comma: 3,5 is read as 3.5." in notes
    assert "Fields that are not used: 'Points' (1 row)." in notes
    book = workbook(
        ["question", "when"],
        ["a?", datetime(2026, 1, 2)],
        ["b?", None],
        Old=[["question"], ["c?"], [None], [0]],
        New=[],
    )
    notes = check(book).notes
    assert "Of the workbook, the sheet 'Sheet' is read. Left out: 'Old' (2 rows)." in notes
    assert "Fields that are not used: 'when' (1 row)." in notes


@pytest.mark.parametrize(
    ("first", "left_out"),
    [([], ""), ([["My questions about sums"]], "'Sheet' (0 rows), "), ([["question"]], "'Sheet' (0 rows), ")],
)
def test_the_first_sheet_with_rows_below_names_is_read(first: list[list[Any]], left_out: str) -> None:
    file = check(workbook(*first, Sums=[["question", "answer"], ["a?", 2]], More=[["x"], [1], [2]]))
    assert asked(file) == [("a?", "2")]
    which = "Of the workbook, the sheet 'Sums', the first with rows below names, is read."
    assert f"{which} Left out: {left_out}'More' (2 rows)." in file.notes
    assert "no table whose first row names its columns" in refusal(workbook(*first, Sums=[["answer"]]))


def test_a_price_with_a_decimal_comma_is_no_whole_number() -> None:
    file = check("Frage;Antwort\na?;3,5 €\nb?;1.234,50€\n".encode())
    assert ([reference for _, reference in asked(file)], file.scorer) == (["3.5 €", "1234.50€"], "number")
    assert [get_scorer("number").read(reference or "") for _, reference in asked(file)] == ["3.5", "1234.5"]


def test_rows_are_numbered_as_a_spreadsheet_numbers_them() -> None:
    same = "a question"
    for data in (f"question\n\n{same}\n{same}\n".encode(), workbook(["question"], [], [same], [same])):
        assert refusal(data).startswith("Row 4: It asks the same as row 3")


def test_a_column_without_a_name_is_no_reason_to_read_the_names_as_a_row() -> None:
    """As pandas writes its index."""
    for data in (
        b",question,answer\n0,a?,5\n1,b?,6\n",
        workbook([None, "question", "answer"], [0, "a?", 5], [1, "b?", 6]),
    ):
        assert asked(check(data)) == [("a?", "5"), ("b?", "6")]
        assert "Fields that are not used: 'column 1' (2 rows)." in check(data).notes


def test_numbers_of_a_table_stay_as_they_are_written_and_whole_ones_beside_nulls_are_integers() -> None:
    csv = b"question,answer,id\na,5.0,1\nb,007,2\n"
    assert [reference for _, reference in asked(check(csv, "exact"))] == ["5.0", "007"]
    nullable = table(question=["a", "b", "c"], n=pyarrow.array([1.0, None, 3.0]), answer=pyarrow.array([5.0, 6.0, 7.5]))
    renamed = reading.FieldNames(prompt="question", reference="answer", id="n")
    file = check(nullable, "exact", renamed)
    assert [(line.id, line.reference) for line in file.lines] == [("1", "5.0"), (None, "6.0"), ("3", "7.5")]
    rows = {"prompt": "a", "reference": 5.0}, {"prompt": "b", "reference": None}
    assert asked(check(lines(*rows), "none")) == [("a", "5"), ("b", None)]
    assert asked(check(lines(rows[0]), "exact")) == [("a", "5.0")]


def test_formulas_are_the_values_that_stand_beside_them_and_nothing_is_followed() -> None:
    link = '=WEBSERVICE("http://127.0.0.1:1/")'
    used = ["question", "answer"], ["a?", "=1+1"], ["b?", 3], ["c?", link]
    assert refusal(workbook(*used)) == (
        "Row 2: It uses B2, whose formula has no value in the file, or an error: open and save it once in a "
        "spreadsheet program, or paste values. So it is with 1 other row: 4."
    )
    assert refusal(workbook(["question"], ["=A3"])).startswith("Row 2: It uses A2, whose formula")
    assert refusal(workbook(["question", "answer"], ["a?", "#N/A"])).startswith("Row 2: It uses B2, whose formula")
    unused = workbook(["question", "answer", "=1/0"], ["a?", 2, link], ["b?", 3, link])
    assert asked(check(unused)) == [("a?", "2"), ("b?", "3")]
    assert "Fields that are not used: 'C1' (2 rows)." in check(unused).notes

    def computed(sheet: bytes) -> bytes:
        return sheet.replace(b"<f>1+1</f><v></v>", b"<f>1+1</f><v>2</v>").replace(
            b"<f>1+1</f><v />", b"<f>1+1</f><v>2</v>"
        )

    whole = with_members(workbook(["question", "answer"], ["a?", "=1+1"]), xl__worksheets__sheet1_xml=computed)
    assert asked(check(with_members(whole, xl__vbaProject_bin=b"\xcc\x61"))) == [("a?", "2")]

    def empty(sheet: bytes) -> bytes:
        return sheet.replace(b'<c r="B3">', b'<c r="B3" t="str">').replace(b'<c r="B3" t="n">', b'<c r="B3" t="str">')

    book = workbook(["question", "context"], ["a?", "b"], ["c?", '=IF(A3="","x","")'])
    assert asked(check(with_members(book, xl__worksheets__sheet1_xml=empty))) == [("a?\n\nb", None), ("c?", None)]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("question,answer\nGröße?,3\n".encode("cp1252"), "it looks like Windows-1252 or Latin-1, which would be"),
        ('{"prompt": "Größe?"}'.encode("latin-1"), "it looks like Windows-1252 or Latin-1, which would be"),
        (LINES.decode().encode("utf-16-le"), "one of UTF-16 without its mark"),
        (b"What is this?\nAnd that?\n", "no table whose first row names its columns"),
        (b"a question,4,5\nanother,5,6\n", "no table whose first row names its columns"),
        (b"question,answer\na,b,c\n", "Row 2 has 3 cells, and the first row 2 names"),
        (b"question,question\na,b\n", "two columns of one name"),
        (b'question,answer\n"a,b\n', "cannot be read as a table (unexpected end of data)"),
        (zipped(a_csv=b"x", b_csv=b"y"), "The zip holds 'a.csv', 'b.csv': expected one file."),
        (zipped(), "The zip holds no file"),
        (zipped(a_gz=gzip.compress(LINES)), "The file is packed twice"),
        (zipped(a_csv=COMMAS.encode())[:-30], "begins as one of zip and cannot be read"),
        (SHEET[:3000], "begins as one of zip and cannot be read"),
        (zipped(content_xml=b"x", mimetype=b"y"), "a document of OpenDocument, which is not read"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 600, "an old or encrypted workbook of Excel, which is not read"),
        (b"%PDF-1.7\n", "a PDF, which is not read"),
        (b"BZh91AY", "a file of bzip2, which is not read"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named(data: bytes, told: str) -> None:
    assert told in refusal(data)


def test_what_unpacks_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large = b"\0" * (4 * LARGEST_FILE)
    too_large = "The file unpacks to more than"
    for data in (zipped(a_csv=large), gzip.compress(large), with_members(SHEET, xl__media__a_bin=large * 3)):
        assert len(data) < 200_000
        assert refusal(data).startswith(too_large)
    shared = workbook(["question", "answer"], *(["x" * 30_000, str(i)] for i in range(2_000)))
    assert len(shared) < 100_000
    assert refusal(shared).startswith(too_large)
    assert "more than 100,000 rows: expected 20,000 at most" in refusal(b"question\n" + b"\n" * MOST_LINES)
    far = b'<row r="900000000"><c r="A900000000" t="inlineStr"><is><t>x</t></is></c></row></sheetData>'
    book = with_members(SHEET, xl__worksheets__sheet1_xml=lambda sheet: sheet.replace(b"</sheetData>", far))
    assert "more than 100,000 rows: expected 20,000 at most" in refusal(book)
    monkeypatch.setattr(reading, "READING_PROCESSOR_SECONDS", 0.01)
    assert "takes too much time or memory" in refusal(SHEET)


def test_a_deep_value_in_a_cell_or_a_column_ends_in_a_sentence() -> None:
    deep = "[" * 100_000
    (line,) = check(f'question,choices\nWhy?,"{deep}"\n'.encode()).lines
    assert line.model_input == "Why?"
    entities = b"".join(b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(12))
    laughs = b'<!DOCTYPE worksheet [<!ENTITY a "aaaaaaaaaa">' + entities + b"]>"
    book = with_members(SHEET, xl__worksheets__sheet1_xml=lambda sheet: laughs + sheet.replace(b"Question", b"&m;"))
    assert "cannot be read" in refusal(book)


def test_the_library_and_the_action_read_what_the_command_and_the_page_read(
    tmp_path: Path, repository: Repository
) -> None:
    (file := tmp_path / "Sums.xlsx").write_bytes(SHEET)
    task = fsd_core.load_task(file)
    assert (task.view.name, task.content) == ("sums", check(SHEET).content)
    rows = [{"Question": question, "Answer": float(answer)} for question, answer in SUMS]
    answer = add_task(Ask(get_settings(), Person("Ann", "author"), repository), "sums", rows)
    assert (answer["scorer"], answer["prompts"]) == ("number", 2)
    assert "Prompt: Question. Reference: Answer. Scorer: Number, since every reference is a number." in answer["notes"]
