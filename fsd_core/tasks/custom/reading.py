"""A task file, from its bytes to its checked prompts, or to everything that is wrong with it.

Near-duplicates in a task: prompts of one template, or the same question in nearly the same words.

They depend on each other: a setting that fails one of them often fails all. Prompts count as alike if at least half of
their runs of three words are shared (Jaccard similarity, estimated by MinHash: Broder 1997).
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fsd_core.confined import ConfinedProcess, ProcessEnded, RequestRefused, unpacks_to_more
from fsd_core.errors import UnfitTask, Unreadable
from fsd_core.tasks.custom.rows import (
    QUESTION_FIELDS,
    USUAL_FIELDS,
    FieldMissing,
    FieldNames,
    Findings,
    LineError,
    LineProblem,
    ShapedRow,
    TaskLine,
    read_line,
    shape,
    unused_sentence,
    without_nulls,
)
from fsd_core.tasks.custom.scorers import SCORERS, Scorer, get_scorer
from fsd_core.texts import count, whole

logger = logging.getLogger(__name__)
LARGEST_FILE = 8_000_000
"""bytes, as it came and unpacked"""
MOST_TASK_PROMPTS = 20_000
PARQUET_SECONDS, PARQUET_PROCESSOR_SECONDS = 60, 30
PARQUET_MEMORY = 768 << 20
"""bytes beside those of the reader, which takes a quarter of a gigabyte"""
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


def unpacked(data: bytes, findings: Findings) -> bytes:
    """Return the JSON of a file. It is empty if the file cannot be unpacked within the limits, which is told."""
    if len(data) > LARGEST_FILE:
        findings.wrong(None, f"The file is larger than {LARGEST_FILE:,} bytes: split it into several tasks.")
        return b""
    if data.startswith(_GZIP):
        data = _inflated(data, findings)
    return _parquet_as_lines(data, findings) if data.startswith(_PARQUET) else data


def _inflated(data: bytes, findings: Findings) -> bytes:
    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST_FILE + 1)
    except (OSError, EOFError, zlib.error):
        findings.wrong(None, "The file begins as one of gzip and cannot be unpacked: compress or fetch it again.")
        return b""
    if len(text) > LARGEST_FILE:
        findings.wrong(None, unpacks_to_more(LARGEST_FILE))
        return b""
    return text


def _parquet_as_lines(data: bytes, findings: Findings) -> bytes:
    """Return the rows as JSON Lines. They are read elsewhere: a damaged file may end or fill the process it is in."""
    findings.unit = "row"
    reader = ConfinedProcess("reads", PARQUET_MEMORY, LARGEST_FILE, MOST_TASK_PROMPTS)
    try:
        return reader.ask(data, PARQUET_PROCESSOR_SECONDS, PARQUET_SECONDS)
    except RequestRefused as refused:
        findings.wrong(None, str(refused))
    except (OSError, ProcessEnded) as error:
        logger.warning("A Parquet file was not read: %s", error)
        findings.wrong(
            None, "The file begins as one of Parquet and cannot be read: it is damaged, or takes too much time or "
            "memory. Write it again, or as JSON Lines."
        )  # fmt: skip
    finally:
        reader.end()
    return b""


LONGEST_TASK_LINE = 1_000_000
"""bytes of a line, characters of an array's element"""
MOST_LINES = 100_000
"""including empty ones"""
_SPACES = re.compile(r"[ \t\r\n]*")

Rows = Iterator[tuple[int, dict[str, Any]]]


def json_rows(data: bytes, findings: Findings) -> Rows:
    """Return the objects with their numbers. Whatever else is there is told."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"["):
        findings.unit = "row"
        return _elements(data, findings)
    return _lines(data, findings)


def _lines(data: bytes, findings: Findings) -> Rows:
    """Yield the lines that hold an object. Empty lines are skipped."""
    if (count := data.count(b"\n")) > MOST_LINES:
        findings.wrong(
            None, f"The file has {count:,} lines: expected at most {MOST_TASK_PROMPTS:,} prompts, one a line."
        )
        return
    reader = _Reader("one object a line")
    for number, raw in enumerate(data.split(b"\n"), 1):
        if len(raw) > LONGEST_TASK_LINE:
            findings.wrong(number, f"It has {len(raw):,} bytes: expected at most {LONGEST_TASK_LINE:,}.")
            continue
        try:
            if text := raw.decode().strip():
                value, end = reader.read(text, 0)
                if end < len(text):
                    raise reader.not_json("Extra data", end)
                yield number, reader.as_object(value)
        except UnicodeDecodeError as error:
            findings.wrong(number, f"It is not UTF-8 from byte {error.start + 1} on: save the file in that encoding.")
        except LineError as wrong:
            findings.wrong(number, str(wrong))


def _elements(data: bytes, findings: Findings) -> Rows:
    """Yield the elements that are objects. Reading ends at the first one that is not JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        findings.wrong(None, f"The file is not UTF-8 from byte {error.start + 1} on: save it in that encoding.")
        return
    reader, number, position = _Reader("a list of objects"), 0, _after_spaces(text, text.index("[") + 1)
    separator = text[position : position + 1]
    if separator == "]":
        position += 1
    while separator != "]":
        number, start = number + 1, _after_spaces(text, position)
        if number > MOST_LINES:
            findings.wrong(None, f"The file has more than {MOST_LINES:,} rows: expected at most {MOST_TASK_PROMPTS:,}.")
            return
        try:
            value, position = reader.read(text, start)
        except LineError as wrong:
            findings.wrong(number, f"{wrong} Nothing behind it was read.")
            return
        try:
            if position - start > LONGEST_TASK_LINE:
                raise LineError(f"It has {position - start:,} characters: expected at most {LONGEST_TASK_LINE:,}.")
            yield number, reader.as_object(value)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
        position = _after_spaces(text, position)
        separator, position = text[position : position + 1], position + 1
        if separator not in (",", "]"):
            findings.wrong(number, "Behind it stands neither a comma nor the end of the list: write one of them.")
            return
    if _after_spaces(text, position) < len(text):
        findings.wrong(None, "There is more behind the end of the list: expected one list, or one object a line.")


def _after_spaces(text: str, position: int) -> int:
    match = _SPACES.match(text, position)
    return match.end() if match else position


class _Reader:
    """Reads values of JSON one by one, and knows of each whether it has a flaw that Python's reader lets pass."""

    def __init__(self, expected: str) -> None:
        self._expected = expected
        self._decoder = json.JSONDecoder(object_pairs_hook=self._once, parse_constant=self._never)
        self._flaw = ""

    def read(self, text: str, start: int) -> tuple[Any, int]:
        """Return the value that begins at ``start``, and where it ends. Raises ``LineError``."""
        self._flaw = ""
        try:
            return self._decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise self.not_json(error.msg, error.pos) from None
        except (ValueError, RecursionError):
            raise LineError(
                "It cannot be read as JSON: a number in it is too long, or it is nested too deep."
            ) from None

    def not_json(self, what: str, position: int) -> LineError:
        """Return the error of a text that is not JSON from ``position`` on."""
        return LineError(f"It is not JSON ({what} at character {position + 1}): expected {self._expected}.")

    def as_object(self, value: Any) -> dict[str, Any]:
        """Return the value that was read last, which has to be an object without flaws. Raises ``LineError``."""
        if self._flaw:
            raise LineError(self._flaw)
        if not isinstance(value, dict):
            raise LineError('It is no object: expected one such as {"prompt": "…"}.')
        return value

    def _once(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            duplicate = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
            self._flaw = self._flaw or f"The field {duplicate[:40]!r} is there twice: leave one of them out."
        return row

    def _never(self, constant: str) -> None:
        self._flaw = self._flaw or f"{constant} is no value of JSON: write a number or a text."


_MOST_MARKS, _LONGEST_MARK = 10, 60


def header_of(row: dict[str, Any], names: FieldNames) -> dict[str, Any] | None:
    """Return the first line if it describes the task and asks nothing."""
    given = without_nulls(row)
    return given if "scorer" in given and not {*QUESTION_FIELDS, names.prompt} & set(given) else None


class Header(NamedTuple):
    """Description of a task on the first line of its file."""

    title: str = ""
    scorer: str | None = None
    thought_marks: tuple[tuple[str, str], ...] = ()
    """begin and end marks of thoughts, in place of the usual ones"""
    all_turns: bool = False
    """whether the user turns of conversations are asked one after another"""


def read_header(number: int, row: dict[str, Any], findings: Findings) -> Header:
    """Return the description on the first line. Its problems are added to ``findings``."""
    if unknown := sorted(set(row) - {"scorer", "title", "thought_marks", "all_turns"}):
        findings.wrong(
            number,
            f"The field {unknown[0][:40]!r} is not known beside scorer: expected title, thought_marks or all_turns.",
        )
    all_turns = row.get("all_turns", False)
    if not isinstance(all_turns, bool):
        findings.wrong(number, "The field all_turns is neither true nor false: expected one of them.")
        all_turns = False
    marks = _thought_marks(number, row.get("thought_marks", []), findings)
    title, scorer = row.get("title", ""), row["scorer"]
    if not isinstance(title, str) or len(title) > 120 or not title.isprintable():
        findings.wrong(number, "The title cannot be used: expected at most 120 printable characters.")
        title = ""
    if not isinstance(scorer, str):
        findings.wrong(number, f"The scorer is no text: expected one of {', '.join(SCORERS)}.")
        return Header(title, None, marks, all_turns)
    return Header(title.strip(), scorer, marks, all_turns)


def _thought_marks(number: int, value: Any, findings: Findings) -> tuple[tuple[str, str], ...]:
    pairs = value if isinstance(value, list) and len(value) <= _MOST_MARKS else [None]
    marks = [(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    texts = [mark for pair in marks for mark in pair]
    usable = (isinstance(t, str) and 1 <= len(t.strip()) <= _LONGEST_MARK and whole(t) == t for t in texts)
    if len(marks) == len(pairs) and all(usable):
        return tuple(marks)
    findings.wrong(
        number,
        f"The thought_marks cannot be used: expected at most {_MOST_MARKS} pairs of texts of 1 to {_LONGEST_MARK} "
        'characters, such as [["<plan>", "</plan>"]].',
    )
    return ()


PROMPT_NAMES = ("question", "instruction", "query", "input", "problem", "request", "user", "text", "frage", "aufgabe")
REFERENCE_NAMES = (
    "answer", "reference_answer", "solution", "label", "target", "expected", "gold", "response", "completion", "output",
    "antwort", "lösung",
)  # fmt: skip
_GUESSED = ("number", "choice")
"""scorers whose references are told by their form"""
_SHORT = 60
"""characters of a reference that an answer may contain as it is"""


class Guess(NamedTuple):
    """A guess of the meaning of a file's fields."""

    names: FieldNames = USUAL_FIELDS
    scorer: str | None = None
    """``None`` if the file names it or needs none"""
    sentence: str = ""
    """for the person whose file it is; empty if nothing could be guessed"""


def guess(data: bytes) -> Guess:
    """Return the probable meaning of a file's fields. ``check`` reports the problems of the file."""
    findings = Findings()
    rows = [without_nulls(row) for _, row in json_rows(unpacked(data, findings), findings)]
    names_scorer = bool(rows) and header_of(rows[0], USUAL_FIELDS) is not None
    rows = rows[1:] if names_scorer else rows
    if not rows:
        return Guess()
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    usual_prompt = next((name for name in QUESTION_FIELDS if any(name in row for row in rows)), "")
    prompt = usual_prompt or _prompt_field(rows, shared)
    if not prompt:
        return Guess()
    usual_reference = "reference" if any("reference" in row for row in rows) else ""
    reference = usual_reference or _named(REFERENCE_NAMES, [name for name in shared if name != prompt])
    scorer, why = (None, "") if names_scorer or not reference else _fitting_scorer([row.get(reference) for row in rows])
    parts = [f"Prompt: {prompt[:40]}."]
    parts += [f"Reference: {reference[:40]}."] if reference else ["No reference."]
    parts += [f"Scorer: {get_scorer(scorer).title}, since {why}."] if scorer else []
    names = FieldNames("" if usual_prompt else prompt, "" if usual_reference else reference)
    return Guess(names, scorer, " ".join(parts))


def _prompt_field(rows: Sequence[dict[str, Any]], shared: Sequence[str]) -> str:
    """Return the field with a name that means a prompt, or else the one with the longest texts."""
    texts = [name for name in shared if all(isinstance(row[name], str) for row in rows)]
    rest = [name for name in texts if name.lower() not in (*REFERENCE_NAMES, "reference", "id")]
    return _named(PROMPT_NAMES, texts) or max(rest, key=lambda name: sum(len(row[name]) for row in rows), default="")


def _named(names: Sequence[str], fields: Collection[str]) -> str:
    """Return the first of the fields, in the order of the names, whatever their capitals."""
    by_name = {field.lower(): field for field in reversed([*fields])}
    return next((by_name[name] for name in names if name in by_name), "")


def _fitting_scorer(references: Sequence[Any]) -> tuple[str, str]:
    """Return the scorer that fits all references, and why."""
    texts = [f"{reference}".strip() for reference in references if reference is not None]
    for name in _GUESSED:
        if texts and all(_fits(get_scorer(name).read, text) for text in texts):
            return name, f"every reference is a {'number' if name == 'number' else 'letter'}"
    if texts and max(map(len, texts)) <= _SHORT and all(texts):
        return "contains", "every reference is short"
    return "none", "the references are long texts"


def _fits(read: Callable[[str], str], reference: str) -> bool:
    try:
        read(reference)
    except ValueError:
        return False
    return True


Numbered = list[tuple[int, ShapedRow]]


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

    @property
    def content(self) -> str:
        """The task in its canonical form, which is stored, and hashed for its version."""
        header = {"scorer": self.scorer} | ({"thought_marks": self.thought_marks} if self.thought_marks else {})
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
    expected = "expected a file of JSON Lines, JSON or Parquet"
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
    data: bytes, scorer: str | None = None, names: FieldNames = USUAL_FIELDS, *, all_turns: bool = False
) -> CheckedFile:
    """Check a whole file. ``scorer`` replaces the one that its first line may name. Without either it is ``none``, if
    no line has a reference. ``names`` are the fields that hold prompt, reference and id. With ``all_turns``, or if its
    first line says so, the user turns of conversations are asked one after another."""
    findings = Findings()
    rows = list(json_rows(unpacked(data, findings), findings))
    header = Header()
    if rows and (first := header_of(rows[0][1], names)) is not None:
        number, _ = rows.pop(0)
        header = read_header(number, first, findings)
    shaped = _shaped(rows, names, findings, all_turns or header.all_turns)
    scorer_name = _scorer(scorer or header.scorer, shaped, findings)
    lines = _read_prompts(shaped, SCORERS.get(scorer_name, SCORERS["none"]), findings)
    if not findings.count and not lines:
        findings.wrong(None, 'The file has no prompt: expected a line such as {"prompt": "…"}.')
    if (prompts := sum(line.prompts for line in lines)) > MOST_TASK_PROMPTS:
        findings.wrong(None, f"The file has {prompts:,} prompts: expected at most {MOST_TASK_PROMPTS:,}.")
    listed = findings.listed()
    notes = tuple(_notes([row for _, row in shaped], scorer_name))
    unlisted = findings.count - len(listed)
    return CheckedFile(scorer_name, header.title, tuple(lines), listed, unlisted, notes, header.thought_marks)


def _shaped(rows: list[tuple[int, dict[str, Any]]], names: FieldNames, findings: Findings, all_turns: bool) -> Numbered:
    """Return the questions of the rows. If every row lacks a field, this is one problem."""
    shaped: Numbered = []
    missing: list[tuple[int, str]] = []
    for number, row in rows:
        try:
            shaped.append((number, shape(row, names, all_turns=all_turns)))
        except FieldMissing as wrong:
            missing.append((number, str(wrong)))
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    if len(missing) == len(rows) > 1:
        number, sentence = missing[0]
        missing = [(number, f"{sentence} So it is with every other {findings.unit}.")]
    for number, sentence in missing:
        findings.wrong(number, sentence)
    return shaped


def _scorer(name: str | None, rows: Numbered, findings: Findings) -> str:
    if name is None:
        if any(row.reference is not None for _, row in rows):
            names = ", ".join(SCORERS)
            findings.wrong(None, f"The lines have references, and no scorer is chosen: choose one of {names}.")
        return "none"
    if name not in SCORERS:
        findings.wrong(None, f"The scorer {name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    return name


def _read_prompts(rows: Numbered, scorer: Scorer, findings: Findings) -> list[TaskLine]:
    findings.next_pass()
    lines: list[TaskLine] = []
    prompts: dict[Any, int] = {}
    ids: dict[str, int] = {}
    unit = findings.unit
    for number, row in rows:
        try:
            line = read_line(row, scorer)
            if (first := prompts.setdefault((line.model_input, line.turns), number)) != number:
                raise LineError(
                    f"It asks the same as {unit} {first:,}: a prompt counts once, so leave one of them out."
                )
            if line.id is not None and (first := ids.setdefault(line.id, number)) != number:
                raise LineError(f"Its id {line.id[:40]!r} is that of {unit} {first:,}: give each its own.")
            lines.append(line)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    return lines


def _notes(rows: list[ShapedRow], scorer: str) -> Iterable[str]:
    """Yield sentences on what is not part of the task."""
    if unused := {name: None for row in rows for name in sorted(row.unused)}:
        absent = [own for own in ("reference", "id") if all(getattr(row, own) is None for row in rows)]
        missing = [own for own in absent if own not in unused]
        yield unused_sentence(unused, missing)
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

    index, parent = MinHashLSH(threshold=_ALIKE, num_perm=_HASHES), list(range(len(lines)))
    sketches: dict[int, MinHash] = {}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for i, line in enumerate(lines):
        if line.group or not (pieces := _pieces(line)):
            continue
        sketches[i] = sketch = MinHash(num_perm=_HASHES, seed=1)
        sketch.update_batch(pieces)
        for other in cast("list[int]", index.query(sketch)):
            if sketches[other].jaccard(sketch) >= _ALIKE:
                parent[root(i)] = root(other)
        index.insert(i, sketch)
    found: dict[int, list[int]] = {}
    for i in sketches:
        found.setdefault(root(i), []).append(i)
    return sorted(sorted(family) for family in found.values() if len(family) > 1)


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
