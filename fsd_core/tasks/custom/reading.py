"""A task file, from its bytes to its checked prompts, or to everything that is wrong with it.

Near-duplicates in a task: prompts of one template, or the same question in nearly the same words.

They depend on each other: a setting that fails one of them often fails all. Prompts count as alike if at least half of
their runs of three words are shared (Jaccard similarity, estimated by MinHash: Broder 1997).
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, Field, InstanceOf, StrictBool, StrictStr, ValidationError

from fsd_core.confined import ConfinedProcess, ProcessEnded, RequestRefused
from fsd_core.errors import UnfitTask, Unreadable
from fsd_core.table_files import LARGEST_FILE, MOST_LINES, MOST_TASK_PROMPTS, UNCOMPUTED, is_json, not_utf8, unreadable
from fsd_core.tasks.custom.rows import (
    FIELDS,
    USUAL_FIELDS,
    FieldNames,
    Findings,
    LineError,
    LineProblem,
    ShapedRow,
    TaskLine,
    inferred,
    is_list_of_objects,
    question_of,
    read_line,
    require,
    shape,
    spread,
    unused_sentence,
    without_nulls,
)
from fsd_core.tasks.custom.scorers import SCORERS, Scorer, get_scorer, usable_pattern
from fsd_core.texts import count, whole

logger = logging.getLogger(__name__)
READING_SECONDS, READING_PROCESSOR_SECONDS = 60, 30
READING_MEMORY = 1 << 30
"""bytes beside those of the interpreter; the libraries take a quarter of a gigabyte"""
_LARGEST_LINES = 3 * LARGEST_FILE
"""bytes of JSON Lines, which repeat the names of a table's columns"""


def unpacked(data: bytes, findings: Findings) -> bytes:
    """Return the JSON of a file. Raises ``LineError`` for one that cannot be read within the limits.

    Whatever is no JSON is read elsewhere: a damaged file may end or fill the process it is in.
    """
    if len(data) > LARGEST_FILE:
        raise LineError(f"The file is larger than {LARGEST_FILE:,} bytes: split it into several tasks.")
    if is_json(data):
        return data
    reader = ConfinedProcess("reads", READING_MEMORY, _LARGEST_LINES)
    try:
        about, _, lines = reader.ask(data, READING_PROCESSOR_SECONDS, READING_SECONDS).partition(b"\n")
    except RequestRefused as refused:
        raise LineError(str(refused)) from None
    except (OSError, ProcessEnded) as error:
        logger.warning("A task file was not read: %s", error)
        raise LineError(unreadable(data)) from None
    finally:
        reader.end()
    told = json.loads(about)
    findings.unit, findings.notes = told["unit"], told["notes"]
    return lines


LONGEST_TASK_LINE = 1_000_000
"""bytes of a line, characters of an array's element"""
_SPACES = re.compile(r"[ \t\r\n]*")

Numbered = tuple[int, dict[str, Any]]
Rows = Iterator[Numbered]


def json_rows(data: bytes, findings: Findings) -> Rows:
    """Yield the objects of a file with their numbers. Whatever else is there is told."""
    try:
        data = _rows_within(unpacked(data, findings).removeprefix(b"\xef\xbb\xbf"), findings)
        if data.lstrip().startswith(b"["):
            findings.unit = "row"
            yield from _elements(data, findings)
        else:
            yield from _lines(data, findings)
    except LineError as wrong:
        findings.wrong(None, str(wrong))


def _rows_within(data: bytes, findings: Findings) -> bytes:
    """Return the longest list of rows in a file that is one object and asks nothing. Other files are unchanged."""
    held: Any = None
    with suppress(ValueError, RecursionError, LineError):
        held = json.loads(data, object_pairs_hook=_once) if findings.unit == "line" else None
    if not isinstance(held, dict) or question_of(held):
        return data
    sizes = {
        name: len(rows) for name, rows in held.items() if is_list_of_objects(rows) and not {"role", "from"} & {*rows[0]}
    }
    if not sizes:
        return data
    name = max(sizes, key=sizes.__getitem__)
    others = ", ".join(f"{n[:40]!r}" + f" ({count(sizes.get(n, 0), 'row')})" * (n in sizes) for n in held if n != name)
    findings.notes.append(f"Of the file, the list {name[:40]!r} is read." + f" Left out: {others}." * bool(others))
    return json.dumps(held[name]).encode()


def _lines(data: bytes, findings: Findings) -> Rows:
    """Yield the lines that hold an object. Empty lines are skipped."""
    if (lines := data.count(b"\n")) > MOST_LINES:
        raise LineError(f"The file has {lines:,} lines: expected at most {MOST_TASK_PROMPTS:,} prompts, one a line.")
    expected = "one object a line, or one list of objects"
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            if len(raw) > LONGEST_TASK_LINE:
                raise LineError(f"It has {len(raw):,} bytes: expected at most {LONGEST_TASK_LINE:,}.")
            if text := raw.decode().lstrip("\ufeff").strip():
                value, end = _value(text, 0, expected)
                if end < len(text):
                    raise _not_json("Extra data", end, expected)
                yield number, _object(value)
        except UnicodeDecodeError as error:
            findings.wrong(number, f"It {not_utf8(raw, error.start)}")
        except LineError as wrong:
            findings.wrong(number, str(wrong))


def _elements(data: bytes, findings: Findings) -> Rows:
    """Yield the elements that are objects. Reading ends at the first one that is not JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise LineError(f"The file {not_utf8(data, error.start)}") from None
    number, position = 0, _after_spaces(text, text.index("[") + 1)
    separator = text[position : position + 1]
    if separator == "]":
        position += 1
    while separator != "]":
        number, start = number + 1, _after_spaces(text, position)
        if number > MOST_LINES:
            raise LineError(f"The file has more than {MOST_LINES:,} rows: expected at most {MOST_TASK_PROMPTS:,}.")
        try:
            value, position = _value(text, start, "a list of objects")
        except LineError as wrong:
            findings.wrong(number, f"{wrong} Nothing behind it was read.")
            return
        try:
            if position - start > LONGEST_TASK_LINE:
                raise LineError(f"It has {position - start:,} characters: expected at most {LONGEST_TASK_LINE:,}.")
            yield number, _object(value)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
        position = _after_spaces(text, position)
        separator, position = text[position : position + 1], position + 1
        if separator not in (",", "]"):
            findings.wrong(number, "Behind it stands neither a comma nor the end of the list: write one of them.")
            return
    if _after_spaces(text, position) < len(text):
        raise LineError("There is more behind the end of the list: expected one list, or one object a line.")


def _after_spaces(text: str, position: int) -> int:
    match = _SPACES.match(text, position)
    return match.end() if match else position


def _value(text: str, start: int, expected: str) -> tuple[Any, int]:
    """Return the value of JSON that begins at ``start``, and where it ends. Raises ``LineError``.

    In place of a value with a flaw that Python's reader lets pass, it is a ``LineError`` of that flaw.
    """
    try:
        try:
            return _STRICT.raw_decode(text, start)
        except LineError as flaw:
            return flaw, json.JSONDecoder().raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        raise _not_json(error.msg, error.pos, expected) from None
    except (ValueError, RecursionError):
        raise LineError("It cannot be read as JSON: a number in it is too long, or it is nested too deep.") from None


def _object(value: Any) -> dict[str, Any]:
    """Return a value that has to be an object without flaws. Raises ``LineError``."""
    if isinstance(value, LineError):
        raise value
    if not isinstance(value, dict):
        raise LineError('It is no object: expected one such as {"prompt": "…"}.')
    return value


def _not_json(what: str, position: int, expected: str) -> LineError:
    return LineError(f"It is not JSON ({what} at character {position + 1}): expected {expected}.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        duplicate = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise LineError(f"The field {duplicate[:40]!r} is there twice: leave one of them out.")
    return row


def _never(constant: str) -> None:
    raise LineError(f"{constant} is no value of JSON: write a number or a text.")


_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_never)


_MOST_MARKS, _LONGEST_MARK, _LONGEST_TITLE = 10, 60, 120


def header_of(row: dict[str, Any], names: FieldNames) -> dict[str, Any] | None:
    """Return the first line if it describes the task and asks nothing."""
    given = without_nulls(row)
    return given if "scorer" in given and not {*FIELDS["prompt"], names.prompt} & set(given) else None


def _mark(text: str) -> str:
    if not 1 <= len(text.strip()) <= _LONGEST_MARK or whole(text) != text:
        raise ValueError("no mark")
    return text


def _title(text: str) -> str:
    if not text.isprintable():
        raise ValueError("no title")
    return text.strip()


_Mark = Annotated[StrictStr, AfterValidator(_mark)]


class Header(BaseModel):
    """Description of a task on the first line of its file."""

    all_turns: StrictBool = False
    """whether the user turns of conversations are asked one after another"""
    thought_marks: Annotated[tuple[tuple[_Mark, _Mark], ...], Field(max_length=_MOST_MARKS)] = ()
    """begin and end marks of thoughts, in place of the usual ones"""
    title: Annotated[StrictStr, Field(max_length=_LONGEST_TITLE), AfterValidator(_title)] = ""
    scorer: InstanceOf[str] | None = None
    answer_pattern: Annotated[StrictStr, AfterValidator(usable_pattern)] = ""
    """regular expression that finds the answer where the scorer finds none"""


_UNFIT = {
    "all_turns": "The field all_turns is neither true nor false: expected one of them.",
    "thought_marks": f"The thought_marks cannot be used: expected at most {_MOST_MARKS} pairs of texts of 1 to "
    f'{_LONGEST_MARK} characters, such as [["<plan>", "</plan>"]].',
    "title": f"The title cannot be used: expected at most {_LONGEST_TITLE} printable characters.",
    "answer_pattern": "The answer_pattern cannot be used: expected a regular expression of RE2 that finds something.",
    "scorer": f"The scorer is no text: expected one of {', '.join(SCORERS)}.",
}


def read_header(number: int, row: dict[str, Any], findings: Findings) -> Header:
    """Return the description on the first line. Its problems are added to ``findings``."""
    if unknown := sorted(row.keys() - _UNFIT.keys()):
        findings.wrong(
            number,
            f"The field {unknown[0][:40]!r} is not known beside scorer: expected title, thought_marks, "
            "answer_pattern or all_turns.",
        )
    try:
        return Header.model_validate(row)
    except ValidationError as errors:
        unfit = dict.fromkeys(str(error["loc"][0]) for error in errors.errors())
    for name in unfit:
        findings.wrong(number, _UNFIT[name])
    return Header.model_validate({name: value for name, value in row.items() if name not in unfit})


_SHORT = 60
"""characters of a reference that an answer may contain as it is"""
_ADDRESS = re.compile(re.escape(repr(UNCOMPUTED)[1:-1]) + r"([A-Z]+\d+)")
_MOST_COLUMNS = 40
"""fields of which is told what they are taken for"""


def _fitting_scorer(shaped: Sequence[tuple[int, ShapedRow]], fields: FieldNames) -> tuple[str, str]:
    """Return the scorer that fits all references, and why; nothing is said where there is none."""
    given = [row.reference if row.reference is not None else row.answer for _, row in shaped]
    texts = [f"{reference}".strip() for reference in given if reference is not None]
    if not texts:
        return "none", ""
    if fields.choices:
        return "choice", "the file has choices"
    for name, form in (("number", "number"), ("choice", "letter")):
        with suppress(ValueError):
            if all(get_scorer(name).read(text) is not None for text in texts):
                return name, f"every reference is a {form}"
    if max(map(len, texts)) <= _SHORT and all(texts):
        return "contains", "every reference is short"
    return "none", "the references are long texts"


def _with_integers(rows: Rows) -> list[Numbered]:
    """Return rows whose whole numbers are integers in the fields where a null has made floats of them."""
    numbered = list(rows)
    holds_null = {name for _, row in numbered for name, value in row.items() if value is None}
    for name in holds_null:
        held = [row for _, row in numbered if row.get(name) is not None]
        if all(isinstance(row[name], float) and row[name].is_integer() for row in held):
            for row in held:
                row[name] = int(row[name])
    return numbered


@dataclass(frozen=True)
class CheckedFile:
    """The content of a file. It is a task only if there is no problem."""

    scorer: str
    title: str
    """from its first line; may be empty"""
    lines: tuple[TaskLine, ...]
    problems: tuple[LineProblem, ...]
    """the first ones"""
    unlisted: int = 0
    """number of further problems"""
    notes: tuple[str, ...] = ()
    """sentences on what the file holds and the task does not"""
    thought_marks: tuple[tuple[str, str], ...] = ()
    """begin and end marks of thoughts; the usual ones if empty"""
    answer_pattern: str = ""
    """regular expression that finds the answer where the scorer finds none"""
    fields: tuple[tuple[str, str], ...] = ()
    """the first fields of the file, each with what it is taken for: one of ``FIELDS``, its own name, or nothing"""

    @property
    def content(self) -> str:
        """The task in its canonical form, which is stored, and hashed for its version."""
        named = {"thought_marks": self.thought_marks, "answer_pattern": self.answer_pattern}
        header = {"scorer": self.scorer} | {name: value for name, value in named.items() if value}
        rows = [header, *(line.as_json() for line in self.lines)]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    @property
    def prompts(self) -> int:
        """Number of prompts: each turn is one."""
        return sum(line.prompts for line in self.lines)

    @property
    def summary(self) -> str:
        """The number of problems, in words."""
        return count(len(self.problems) + self.unlisted, "problem")

    def require(self, what: str) -> None:
        """Raise ``InvalidSetting``, which begins with ``what`` and quotes the first problem, if there is any."""
        if self.problems:
            raise UnfitTask(
                f"{what} has {self.summary}. {self.problems[0].sentence} `fsd-lab task check` lists them all."
            )


def read_file(path: Path) -> bytes:
    """Return the bytes of a task file, at most one more than allowed. Raises ``InvalidSetting``."""
    expected = "expected one of CSV, TSV, XLSX, Parquet, JSON or JSON Lines"
    try:
        if path.is_dir():
            raise Unreadable(f"{path} is a folder: {expected}.")
        if not path.is_file():
            raise Unreadable(f"There is no file {path}: {expected}.")
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror}): check the file and its rights.") from None


def check(
    data: bytes,
    scorer: str | None = None,
    names: FieldNames = USUAL_FIELDS,
    *,
    all_turns: bool = False,
    group_similar: bool = False,
    remedy: str = "",
) -> CheckedFile:
    """Check a whole file. ``scorer`` replaces the one that its first line may name. Without either it is the one that
    fits all references. ``names`` are its fields; those that nobody names are :func:`inferred`. With ``all_turns``, or
    if its first line says so, the user turns of conversations are asked one after another. With ``group_similar``, each
    family of near-duplicates is a group; else a note says that there are some and the ``remedy``, if it is given."""
    findings = Findings()
    rows = _with_integers(json_rows(data, findings))
    header = Header()
    if rows and (first := header_of(rows[0][1], names)) is not None:
        header = read_header(rows.pop(0)[0], first, findings)
    chosen = scorer or header.scorer
    rows = [(number, spread(row, names)) for number, row in rows]
    fields = inferred([row for _, row in rows], names, chosen != "none")
    shaped = _shaped(rows, names, fields, findings, all_turns or header.all_turns)
    scorer_name, why = _fitting_scorer(shaped, fields) if chosen is None else (chosen, "")
    lines = _read_lines(shaped, SCORERS.get(scorer_name, SCORERS["none"]), findings)
    if scorer_name not in SCORERS:
        findings.wrong(None, f"The scorer {scorer_name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    if not findings.problems and not lines:
        findings.wrong(None, 'The file has no prompt: expected a line such as {"prompt": "…"}.')
    if (prompts := sum(line.prompts for line in lines)) > MOST_TASK_PROMPTS:
        findings.wrong(None, f"The file has {prompts:,} prompts: expected at most {MOST_TASK_PROMPTS:,}.")
    problems, read = findings.listed(), [row for _, row in shaped]
    notes = (*_readings(names, fields, why, scorer_name), *findings.notes, *_notes(read, scorer_name, findings.unit))
    checked = CheckedFile(
        scorer_name, header.title, tuple(lines), problems, len(findings.problems) - len(problems), notes,
        header.thought_marks, header.answer_pattern, _taken_for(rows, shaped, fields),
    )  # fmt: skip
    return grouped(checked) if group_similar else noted(checked, remedy) if remedy else checked


def _shaped(
    rows: Sequence[Numbered], names: FieldNames, fields: FieldNames, findings: Findings, turns: bool
) -> list[tuple[int, ShapedRow]]:
    """Return the questions of the rows."""
    shaped = list[tuple[int, ShapedRow]]()
    for number, row in rows:
        try:
            require(row, names)
            shaped.append((number, shape(row, fields, all_turns=turns)))
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    return shaped


def _read_lines(shaped: Sequence[tuple[int, ShapedRow]], scorer: Scorer, findings: Findings) -> list[TaskLine]:
    lines: list[TaskLine] = []
    prompts, ids, unit = dict[Any, int](), dict[str, int](), findings.unit
    for number, row in shaped:
        try:
            if cell := _ADDRESS.search(f"{vars(row)}"):
                raise LineError(
                    f"It uses {cell[1]}, whose formula has no value in the file, or an error: open and save it once in "
                    "a spreadsheet program, or paste values."
                )
            line = read_line(row, scorer)
            if (first := prompts.setdefault((line.model_input, line.turns), number)) != number:
                again = f"It asks the same as {unit} {first:,}"
                raise LineError(f"{again}: a prompt counts once, so leave one of them out.")
            if line.id is not None and (first := ids.setdefault(line.id, number)) != number:
                raise LineError(f"Its id {line.id[:40]!r} is that of {unit} {first:,}: give each its own.")
            lines.append(line)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    return lines


def _taken_for(
    rows: Sequence[Numbered], shaped: Sequence[tuple[int, ShapedRow]], fields: FieldNames
) -> tuple[tuple[str, str], ...]:
    """Return the first fields with what each is taken for, which is nothing if every row leaves it out."""
    by_number = dict(rows)
    held = Counter(name for number, _ in shaped for name in without_nulls(by_number[number]))
    unused = Counter(name for _, row in shaped for name in row.unused)
    owns = dict.fromkeys(() if fields.prompt else FIELDS["prompt"], "prompt")
    owns |= {name: own for own, name in fields._asdict().items() if own in FIELDS and name}
    names = islice(dict.fromkeys(name for _, row in rows for name in row), _MOST_COLUMNS)
    return tuple((name, "" if unused[name] == held[name] else owns.get(name, name)) for name in names)


def _readings(names: FieldNames, fields: FieldNames, why: str, scorer: str) -> Iterable[str]:
    """Yield the sentence on what was inferred, which is more than the usual names."""
    said = {own: getattr(fields, own) for own in ("prompt", "context", "reference", "choices")}
    if why or any(name and name not in (getattr(names, own), "reference") for own, name in said.items()):
        parts = [f"{own.capitalize()}: {name[:40]}." for own, name in said.items() if name]
        yield " ".join(parts + ([f"Scorer: {get_scorer(scorer).title}, since {why}."] if why else []))


def _notes(rows: list[ShapedRow], scorer: str, unit: str) -> Iterable[str]:
    """Yield sentences on what is not part of the task."""
    if unused := Counter(name for row in rows for name in sorted(row.unused)):
        absent = [own for own in ("reference", "id") if all(getattr(row, own) is None for row in rows)]
        missing = [own for own in absent if own not in unused]
        yield unused_sentence(unused, missing, unit)
    if left_out := sum(row.answers_left_out for row in rows):
        yield (
            f"{count(left_out, 'given answer')} between user turns {'is' if left_out == 1 else 'are'} left out: "
            "those of the setting that is measured stand there."
        )
    if answers := [row for row in rows if row.answer is not None]:
        are_references = scorer != "none" and any(row.reference is None for row in answers)
        yield (
            f"{count(len(answers), 'conversation')} ended with an answer, which is not asked: "
            + ("it is the reference where there is no other." if are_references else "it is left out.")
        )


_ALIKE = 0.5
_HASHES = 128
_WORDS = 3
_LONGEST = 4_000
"""words of a prompt that are compared"""
_WORD = re.compile(r"\w+")


def families(lines: tuple[TaskLine, ...]) -> list[list[int]]:
    """Return the lines that are alike, directly or through others, by index. Lines with a group are left out."""
    from datasketch import MinHash, MinHashLSH  # most tasks are read again and not compared

    index, found = MinHashLSH(threshold=_ALIKE, num_perm=_HASHES), dict[int, list[int]]()
    sketches: dict[int, MinHash] = {}
    for i, line in enumerate(lines):
        if line.group or not (pieces := _pieces(line)):
            continue
        sketches[i], found[i] = MinHash(num_perm=_HASHES, seed=1), [i]
        sketches[i].update_batch(pieces)
        for other in cast("list[int]", index.query(sketches[i])):
            smaller, larger = sorted((found[i], found[other]), key=len)
            if smaller is not larger and sketches[other].jaccard(sketches[i]) >= _ALIKE:
                larger += smaller
                found.update(dict.fromkeys(smaller, larger))
        index.insert(i, sketches[i])
    distinct = {id(family): family for family in found.values()}
    return sorted(sorted(family) for family in distinct.values() if len(family) > 1)


def grouped(checked: CheckedFile) -> CheckedFile:
    """Return the file with a group for each family of near-duplicates, named by its first line."""
    lines, groups = list(checked.lines), {line.group for line in checked.lines}
    alike = families(checked.lines)
    for family in alike:
        name = f"like line {family[0] + 1}"
        while name in groups:
            name += "'"
        for i in family:
            lines[i] = replace(lines[i], group=name)
    sentence = f"{_counted(alike)}: each family is a group, which counts once." if alike else ""
    return replace(checked, lines=tuple(lines), notes=tuple(filter(None, (*checked.notes, sentence))))


def noted(checked: CheckedFile, remedy: str) -> CheckedFile:
    """Return the file with a note on near-duplicates, if it has any. ``remedy``: how to make them groups."""
    alike = families(checked.lines)
    if not alike:
        return checked
    first, second = (checked.lines[i] for i in alike[0][:2])
    examples = " and ".join(repr(_text(line)[:60]) for line in (first, second))
    note = (
        f"{_counted(alike)}, such as {examples}. They depend on each other, so intervals would be too narrow: give the "
        f"lines of a family one group, {remedy}."
    )
    return replace(checked, notes=(*checked.notes, note))


def _counted(alike: list[list[int]]) -> str:
    prompts, of = sum(map(len, alike)), len(alike)
    return f"{count(prompts, 'prompt')} are near-duplicates, in {of:,} {'family' if of == 1 else 'families'}"


def _pieces(line: TaskLine) -> list[bytes]:
    words = _WORD.findall(_text(line).lower())[:_LONGEST]
    if not words:
        return []
    runs = range(max(1, len(words) - _WORDS + 1))
    return list({" ".join(words[i : i + _WORDS]).encode(errors="replace") for i in runs})


def _text(line: TaskLine) -> str:
    """Return what the user says; what the messages before it and the system say is often the same for all."""
    if isinstance(line.model_input, str):
        return line.model_input
    return next((message[1] for message in reversed(line.model_input) if message[0] == "user"), "")
