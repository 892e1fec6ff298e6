"""A task: prompts in a fixed order, from files of the hub, with a pure scorer."""

from __future__ import annotations

import csv
import gzip
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from fsd_core.config import RunConfig
from fsd_core.errors import OutOfRange, UnfitTask
from fsd_core.metrics import Outcome
from fsd_core.models.conversation import MARKS, THOUGHT_MARKS, Messages, continued, read_marks, split_thoughts
from fsd_core.settings import get_settings


@dataclass(frozen=True)
class Split:
    """One split of a Hugging Face dataset, and the file of a task that is made from it."""

    file: str
    """Below the data folder. With ``<subject>`` in its name, there is one file for each ``subject`` of the rows."""
    repo: str
    licence: str
    """as stated by the dataset's authors"""
    name: str | None
    split: str
    text: Callable[[Iterable[dict[str, Any]]], str]
    """rows → the file's content, as the benchmark's authors publish it"""
    files: int = 1
    """number of files, if its name has ``<subject>``"""


@dataclass(frozen=True)
class HubFile:
    """A file of a Hugging Face dataset that is a file of a task as it is."""

    file: str
    """below the data folder"""
    repo: str
    licence: str
    """as stated by the dataset's authors"""
    path: str
    """within the dataset"""
    revision: str
    """the commit"""
    size: int
    """bytes"""
    sha256: str


def as_lines(records: Iterable[Any]) -> str:
    """Return records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def as_table(records: Iterable[Sequence[str]]) -> str:
    """Return records as CSV, without adding a header."""
    written = io.StringIO()
    csv.writer(written).writerows(records)
    return written.getvalue()


def rows(file: str) -> list[Any]:
    """Return the records of a benchmark file: JSON, JSON lines (also gzipped), Parquet, or CSV without a header.

    Raises ``InvalidSetting`` if it is missing or cannot be read.
    """
    return list(_rows(get_settings().data_folder / file, file))


@cache
def _rows(path: Path, file: str) -> tuple[Any, ...]:
    try:
        if path.suffix == ".parquet":
            return _table_rows(path)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as stream:
            if path.suffix == ".csv":
                return tuple(csv.reader(stream))
            if path.suffix == ".json":
                return tuple(json.load(stream))
            return tuple(json.loads(line) for line in stream if line.strip())
    except FileNotFoundError:
        raise UnfitTask(
            f"The file {file} is not in {path.parents[file.count('/')]}: put the benchmark's own file there, or set "
            "FSD_DATA_DIR to the folder that has it. `python -m fsd_core tasks` lists all that are wanted, `fetch` "
            "gets some of them, and docs/benchmarks.md says where the others are."
        ) from None
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are among them
        raise UnfitTask(
            f"The benchmark file {path} cannot be read ({type(error).__name__}): fetch it again from its authors."
        ) from error


def _table_rows(path: Path) -> tuple[Any, ...]:
    from pyarrow import parquet  # slow to import, and few tasks need it

    with path.open("rb") as stream:
        return tuple(parquet.read_table(stream).to_pylist())


@dataclass(frozen=True)
class Example:
    """One prompt, with its answer if known."""

    id: str
    prompt: str
    """the text for people; all of it for a conversation"""
    reference: str | None
    messages: Messages = ()
    """a conversation in place of a single prompt"""
    category: str = ""
    """the kind of prompt, by which figures are told too; empty in a task of one kind"""
    group: str = ""
    """prompts of one group depend on each other, as those of one template or document; empty: it stands alone"""
    turn: int = 0
    """how many turns of its conversation stand before it, at the positions right before its own"""

    @property
    def model_input(self) -> str | Messages:
        """The input of a model.

        Raises ``InvalidSetting`` for a later turn, until :meth:`Task.asked` has put the answers to the earlier ones
        before it.
        """
        if self.turn and not self.messages:
            raise UnfitTask(
                f"The prompt '{self.id}' goes on a conversation, so it cannot be asked alone: choose a task whose "
                "prompts stand alone, such as one without '-turns'."
            )
        return self.messages or self.prompt


def in_turns(first: Example, later: Iterable[str]) -> tuple[Example, ...]:
    """Return a conversation, whose ``later`` user turns are asked one after another, as one prompt for each turn."""
    following = (
        replace(first, id=f"{first.id}/{turn + 1}", prompt=text, messages=(), turn=turn)
        for turn, text in enumerate(later, 1)
    )
    return (first, *following)


class Said(NamedTuple):
    """A model's text, and whether it began inside of a thought that the prompt opened and no mark ends."""

    text: str
    thinking: bool = False


@dataclass(frozen=True)
class Score:
    """The score of one output. ``answer`` is what was read from the text."""

    outcome: Outcome
    answer: str | None


def cut_off(stop_reason: str) -> bool:
    """Return whether a text ended for lack of space, not by itself."""
    return stop_reason in ("length", "context")


def judged(answer: str | None, example: Example, stop_reason: str) -> Score:
    """Return the usual score: correct if the answer is the reference, truncated if cut off before any answer."""
    if answer is None and cut_off(stop_reason):
        return Score("truncated", None)
    if example.reference is None:
        return Score("unscored", answer)
    return Score("correct" if answer == example.reference else "wrong", answer)


class Task(ABC):
    """A fixed, ordered list of prompts and a pure scorer."""

    name: str
    title: str
    files: tuple[str, ...] = ()
    """files that it reads, below the data folder (``FSD_DATA_DIR``)"""
    hub: tuple[Split | HubFile, ...] = ()
    """sources from which ``fetch`` makes them; empty for files that only their authors provide"""

    @abstractmethod
    def all_examples(self) -> tuple[Example, ...]:
        """Return every prompt, always in the same order: a position is the same prompt in every run.

        Raises ``InvalidSetting`` if a file is missing or is not what its authors publish.
        """

    @abstractmethod
    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        """Score a text without thoughts, which ended for ``stop_reason``: eos, length or context."""

    def score(self, text: str, example: Example, stop_reason: str, *, thinking: bool = False) -> Score:
        """Score the answer in ``text``. Thoughts before it are not read (:mod:`fsd_core.models.conversation`).

        A text that ends inside of a thought is truncated: there is no answer. ``thinking`` says that the prompt ended
        inside of one.
        """
        split = split_thoughts(text, thinking=thinking, marks=self.thought_marks)
        if split.is_open and self.scored:
            return Score("truncated", None)
        return self.score_answer(split.answer, example, stop_reason)

    @classmethod
    def named(cls, name: str) -> Task | None:
        """Return the task of this kind that a name describes, beside those that are offered; ``None`` for no such name.
        Raises ``InvalidSetting`` for a name that describes none there can be."""
        return None

    thought_marks: Sequence[tuple[str, str]] = MARKS
    """begin and end marks of thoughts"""
    published_filter: str = ""
    """pattern by which published figures of the benchmark read an answer, in its first group; empty if none is named"""
    scored: bool = True
    """whether an answer can be right or wrong; otherwise texts are compared with the target's own"""
    published: int | None = None
    """number of prompts in its authors' files, if known before these are here"""

    def of_model(self, provenance: Mapping[str, Any] | None) -> Self:
        """Return the task as it reads texts of a run with this ``provenance``: by the marks that the template of its
        model shows, before those of families. A task with marks of its own reads these alone."""
        marks, task = read_marks((provenance or {}).get(THOUGHT_MARKS)), copy(self)
        if marks and self.thought_marks is MARKS:
            vars(task)["thought_marks"] = (*marks, *MARKS)  # a task may be frozen
        return task

    @property
    def has_files(self) -> bool:
        """Whether its files are on this machine."""
        return all((get_settings().data_folder / file).exists() for file in self.files)

    @property
    def possible(self) -> bool:
        """Whether this machine can score it, once its files are here."""
        return True

    @property
    def available(self) -> bool:
        """Whether it can be run."""
        return self.has_files and self.possible

    @property
    def size(self) -> int:
        """Number of prompts that a run can take."""
        examples = self.all_examples()
        return len(examples) - len(self._repeats_of(examples))

    @property
    def repeats(self) -> frozenset[int]:
        """Positions of prompts that ask the same as an earlier one. No run takes them: a prompt counts once."""
        return self._repeats_of(self.all_examples())

    _counted: tuple[tuple[Example, ...], frozenset[int]] | None = None
    """the prompts whose repeats were counted last, and these"""

    def _repeats_of(self, examples: tuple[Example, ...]) -> frozenset[int]:
        """Return the repeats among all prompts. They are counted once, as long as a task returns the same tuple."""
        if self._counted is None or self._counted[0] is not examples:
            first: dict[tuple[str | Messages, ...], int] = {}
            repeats: set[int] = set()
            for start, turns in _conversations(examples):
                asked = turns[0].model_input, *(example.prompt for example in turns[1:])
                if first.setdefault(asked, start) != start:
                    repeats.update(range(start, start + len(turns)))
            self._counted = (examples, frozenset(repeats))
        return self._counted[1]

    @property
    def has_turns(self) -> bool:
        """Whether some of its prompts go on a conversation, behind answers of the setting that is measured."""
        return any(example.turn for example in self.all_examples())

    def check_alone(self, purpose: str) -> None:
        """Raise ``InvalidSetting`` if some prompts go on a conversation. ``purpose`` needs prompts that stand alone."""
        if self.has_turns:
            raise UnfitTask(
                f"Later turns of the task '{self.name}' follow what each setting wrote before, and {purpose} needs the "
                "same prompts for every setting: choose a task whose prompts stand alone."
            )

    def asked(self, position: int, said: Sequence[Said]) -> Example:
        """Return the prompt of that position, with the earlier turns of its conversation before it.

        ``said``: what was written in these turns. Thoughts are left out of it, since chat models are trained on
        conversations in which only the last answer has them.
        """
        examples = self.all_examples()
        example = examples[position]
        if not example.turn:
            return example
        first = position - example.turn
        following = [each.prompt for each in examples[first + 1 : position + 1]]
        answers = [split_thoughts(text, thinking=thinking, marks=self.thought_marks).answer for text, thinking in said]
        turns = zip(answers, following, strict=True)
        return replace(example, messages=continued(examples[first].model_input, turns))

    def examples(self, limit: int) -> tuple[Example, ...]:
        """Return the first ``limit`` prompts. Raises ``InvalidSetting`` if the task has fewer."""
        self.check_limit(limit)
        return tuple(self.examples_of(RunConfig(limit=limit)).values())

    def examples_of(self, config: RunConfig) -> dict[int, Example]:
        """Return the prompts of a run by position. Raises ``InvalidSetting`` if the task has fewer."""
        self.check_limit(config.first + config.limit)
        examples, asked = self.all_examples(), {}
        for position in self.positions(config):
            if examples[position].turn and position - 1 not in asked:
                raise UnfitTask(
                    f"Prompt {position + 1} of the task '{self.name}' goes on the conversation of the one before it, "
                    "which the run does not ask first: take the prompts in order, from the first."
                )
            asked[position] = examples[position]
        return asked

    def positions(self, config: RunConfig) -> list[int]:
        """Return the positions of a run's prompts, in the order in which it takes them."""
        examples = self.all_examples()
        return config.positions(
            len(examples), self._repeats_of(examples), {i: one.group for i, one in enumerate(examples) if one.group}
        )

    def check_limit(self, limit: int, named: str = "a limit") -> None:
        """Raise ``InvalidSetting`` if the task has fewer prompts. ``named``: what the user calls the limit."""
        size = self.size
        if not 1 <= limit <= size:
            raise OutOfRange(
                f"The task '{self.name}' has {size} prompt{'s' * (size != 1)}: expected {named} from 1 to {size}."
            )


def _conversations(examples: Sequence[Example]) -> Iterator[tuple[int, list[Example]]]:
    """Yield the position of the first turn of each conversation, and its turns. A prompt that stands alone is a
    conversation of one turn."""
    turns: list[Example] = []
    for position, example in enumerate(examples):
        if turns and not example.turn:
            yield position - len(turns), turns
            turns = []
        turns.append(example)
    if turns:
        yield len(examples) - len(turns), turns
