"""Figures that were measured elsewhere: read within bounds, checked, and stored as imported runs."""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.errors import (
    Contradiction,
    InvalidSetting,
    Malformed,
    NotGiven,
    OutOfRange,
    TrackingUnavailable,
    Unreadable,
)
from fsd_core.evaluation.aggregate import summarise
from fsd_core.evaluation.result_tools import (
    GUIDELLM,
    LLAMA_BATCHED_BENCH,
    LLAMA_BENCH,
    LM_EVAL,
    SPECFORGE,
    VLLM_BENCH,
    Document,
    Text,
    ToolFields,
    ToolReader,
    ToolResult,
    figure_name,
    finite,
    is_sample,
    read_samples,
    shortened,
)
from fsd_core.frozen import Frozen, sentence
from fsd_core.metrics import METRICS, Metric
from fsd_core.rules import ImportedSeries
from fsd_core.rules.measured import LARGEST_FIGURE, LONGEST_SERIES_NAME, one_line
from fsd_core.statistics.intervals import Estimate, Interval, keyed, ratio_interval, wilson
from fsd_core.storage.records import OTHER_FIGURES
from fsd_core.storage.repository import Repository
from fsd_core.texts import count, without_secrets

_FIGURE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./-]{0,59}")  # what MLflow takes as the name of a metric
_MOST_FIGURES, _MOST_PARTS, _MOST_FACTS, _LONGEST_FACT = 40, 1_000_000, 30, 300
_MOST_PROMPTS = 2**31 - 1  # what a column of whole numbers holds
_COUNTS_OF_LOOP = ("rounds", "drafted", "accepted", "fuzzy_tokens", "lenient_tokens", "draft_seconds")
_COUNTED = ("accuracy", "seconds_per_answer", "tokens_per_second", "mean_tokens", "seconds", "tokens",
            "seconds_per_solved_task")  # fmt: skip


def plain(value: Any) -> Any:
    """Return a number of numpy or torch as one of Python."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _parts(value: Any) -> Any:
    """Return one number, several, or none, as a tuple."""
    value = plain(value)
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return (value,)
    return tuple(plain(part) for part in value)


def _estimate(value: Any) -> Any:
    """Return a figure with the ends of its interval, which a number alone does not have."""
    value = plain(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(plain(end) for end in value)
    return (value, None, None)


_Count = Annotated[int, BeforeValidator(plain), Field(strict=True, ge=0, le=_MOST_PROMPTS)]
_Amount = Annotated[float, Field(strict=True, ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]
_Number = Annotated[float, Field(strict=True, ge=-LARGEST_FIGURE, le=LARGEST_FIGURE, allow_inf_nan=False)]
_Estimate = Annotated[tuple[_Number, _Number | None, _Number | None], BeforeValidator(_estimate)]
Origin = dict[str, str | float | bool | None]


class LoggedFigures(Frozen):
    """What was measured elsewhere of one point of a series.

    ``seconds`` and ``tokens`` are sums over all prompts, or several numbers, one for each of as many equal parts of the
    prompts: from three parts on speeds have an interval. Prompts that failed are no answers, so figures of an answer
    divide by the others. ``figures`` are further ones, by the key of a metric
    (:data:`fsd_core.metrics.METRICS`, in the units in which they are stored) or by a name of their own.
    """

    prompts: Annotated[int, BeforeValidator(plain), Field(strict=True, ge=1, le=_MOST_PROMPTS)]
    correct: _Count | None = None
    failed: _Count = 0
    seconds: Annotated[tuple[_Amount, ...], BeforeValidator(_parts), Field(max_length=_MOST_PARTS)] = ()
    tokens: Annotated[tuple[_Amount, ...], BeforeValidator(_parts), Field(max_length=_MOST_PARTS)] = ()
    figures: dict[str, _Estimate] = Field(default_factory=dict, max_length=_MOST_FIGURES)

    @field_validator("figures")
    @classmethod
    def _can_be_read(cls, figures: dict[str, Any]) -> dict[str, Any]:
        for name, ends in figures.items():
            _check_figure(name, Estimate(*ends))
        return figures

    @model_validator(mode="after")
    def _agree(self):
        if (self.correct or 0) + self.failed > self.prompts:
            raise Contradiction(
                f"{self.correct or 0} correct and {self.failed} failed are more than the {self.prompts} prompts: "
                "expected at most as many."
            )
        if self.seconds and not sum(self.seconds):
            raise OutOfRange("Seconds is 0: expected the time that the prompts took, or nothing.")
        if len(self.seconds) > self.prompts or len({len(self.seconds), len(self.tokens)} - {0, 1}) > 1:
            raise Contradiction(
                f"{len(self.seconds)} numbers of seconds and {len(self.tokens)} of tokens do not divide "
                f"{self.prompts} prompts: expected one number of each, or as many as there are equal parts."
            )
        counted = {name for name, value in self._counted().items() if value is not None}
        if twice := sorted(counted & self.figures.keys()):
            raise Contradiction(f"'{twice[0]}' follows from the counts: leave it out of the figures.")
        if not counted and not self.figures and self.completed:
            raise NotGiven("There is nothing to log: give correct, seconds, or further figures.")
        return self

    @property
    def completed(self) -> int:
        """Prompts that brought an answer."""
        return self.prompts - self.failed

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of a run: as ``summarise`` does, with ``None`` for what is unknown."""
        found = summarise([], ()) | dict.fromkeys(_COUNTS_OF_LOOP)
        found |= {"n": self.prompts, "failed": self.failed} | self._counted()
        if self.correct is None:
            found["unscored"] = self.completed
        else:
            found |= {"correct": self.correct, "wrong": self.completed - self.correct}
        for name, ends in self.figures.items():
            if name in METRICS:
                found |= keyed(name, Estimate(*ends))
        other = {name: list(ends) for name, ends in self.figures.items() if name not in METRICS}
        return found | ({OTHER_FIGURES: other} if other else {})

    def _counted(self) -> dict[str, Any]:
        """Return the metrics that follow from the counts, ``None`` for those that do not."""
        found: dict[str, Any] = dict.fromkeys(_COUNTED)
        if self.correct is not None:
            found |= _keyed("accuracy", self.correct / self.prompts, wilson(self.correct, self.prompts))
        seconds, tokens = sum(self.seconds), sum(self.tokens)
        if self.tokens:
            found["tokens"] = tokens
        if self.seconds:
            found["seconds"] = seconds
            found["seconds_per_solved_task"] = seconds / self.correct if self.correct else None
        if self.tokens and self.completed:
            found |= _keyed("mean_tokens", tokens / self.completed, None)
        if self.seconds and self.completed:
            each = self.completed / len(self.seconds)
            answers = ratio_interval([(part, each) for part in self.seconds])
            found |= _keyed("seconds_per_answer", seconds / self.completed, answers)
        if self.tokens and self.seconds and self.completed:
            found |= _keyed("tokens_per_second", tokens / seconds, ratio_interval(list(self._side_by_side())))
        return found

    def _side_by_side(self) -> Iterator[tuple[float, float]]:
        """Yield tokens and seconds of each part. A sum alone is divided equally."""
        parts = max(len(self.tokens), len(self.seconds))
        for i in range(parts):
            yield tuple(part[i] if len(part) == parts else part[0] / parts for part in (self.tokens, self.seconds))  # pyright: ignore[reportReturnType]


def checked_origin(origin: Mapping[str, Any]) -> Origin:
    """Return where figures come from as facts by name. Raises ``InvalidSetting`` for what nobody could read."""
    if len(origin) > _MOST_FACTS:
        raise OutOfRange(f"The origin has {len(origin)} facts: expected at most {_MOST_FACTS}.")
    facts: Origin = {}
    for name, value in origin.items():
        fact = plain(value)
        if isinstance(fact, str):
            fact = one_line(fact, f"origin's {name}"[:60], _LONGEST_FACT)
        elif isinstance(fact, int | float) and not (math.isfinite(fact) and abs(fact) <= LARGEST_FIGURE):
            raise OutOfRange(f"The origin's {str(name)[:40]!r} is {fact}: expected a finite number.")
        elif fact is not None and not isinstance(fact, int | float):
            raise Malformed(f"The origin's {str(name)[:40]!r} is no text and no number: write it as a text.")
        facts[one_line(str(name), "name of a fact", 60)] = fact
    return facts


def _check_figure(name: str, figure: Estimate) -> None:
    if not _FIGURE_NAME.fullmatch(name):
        raise Malformed(
            f"The figure's name {name[:40]!r} cannot be used: expected letters, digits, spaces and _ . / -, at most 60."
        )
    metric, ends = METRICS.get(name), [end for end in figure if end is not None]
    low, high = (figure.value if end is None else end for end in figure[1:])
    if not low <= figure.value <= high:
        raise Contradiction(f"'{name}' is {figure.value:g}, outside of its interval {low:g} to {high:g}.")
    if metric is not None and (wrong := [end for end in ends if not _possible(metric, end)]):
        expected = "a share from 0 to 1" if metric.is_share else "0 or more"
        raise OutOfRange(f"'{name}' is {wrong[0]:g}: expected {expected}.")


def _possible(metric: Metric, value: float) -> bool:
    return 0 <= value <= (1 if metric.is_share else LARGEST_FIGURE)


def _keyed(name: str, value: float, interval: Interval | None) -> dict[str, float | None]:
    return keyed(name, Estimate(value, *(interval or (None, None))))


LARGEST_RESULT = 64_000_000
"""bytes of a result file"""
MOST_LINES_OF_RESULT = 100_000
MOST_MEASUREMENTS = 1000
"""in one file"""
_LONGEST_REASON = 300
READERS: tuple[ToolReader, ...] = (VLLM_BENCH, GUIDELLM, LM_EVAL, SPECFORGE, LLAMA_BENCH, LLAMA_BATCHED_BENCH)
RESULT_TOOLS = ", ".join(reader.title for reader in READERS)


@dataclass(frozen=True)
class ReadFile:
    """The content of a result file."""

    file: str
    """its name, without folders"""
    sha256: str
    tool: str
    results: tuple[ToolResult, ...]


def read_result_path(path: Path) -> ReadFile:
    """Read a file. Raises ``InvalidSetting``."""
    try:
        if not path.is_file():
            raise Unreadable(f"There is no file {path}: expected a result of one of {RESULT_TOOLS}.")
        with path.open("rb") as file:
            return read_result(file.read(LARGEST_RESULT + 1), path.name)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror}): check the file and its rights.") from None


def read_result(data: bytes, name: str) -> ReadFile:
    """Return the measurements of a result file. Raises ``InvalidSetting`` with one sentence for any other file."""
    file = shortened(name, 200) or "the file"
    if len(data) > LARGEST_RESULT:
        raise OutOfRange(
            f"{file} has more than {LARGEST_RESULT:,} bytes: expected the summary of a benchmark, without its texts."
        )
    documents = _documents(data, file)
    try:
        if all(is_sample(document) for document in documents):
            tool, results = LM_EVAL.title, read_samples(documents, file)
        else:
            reader = _reader_of(documents, file)
            tool = reader.title
            results = [result for document in documents for result in reader.read(document, file)]
    except ValidationError as error:
        raise Unreadable(f"{file} is no whole result. {_one_line(sentence(error))}") from None
    if not 0 < len(results) <= MOST_MEASUREMENTS:
        raise OutOfRange(
            f"{file} holds {len(results):,} measurements: expected 1 to {MOST_MEASUREMENTS:,}, with a score or a time."
        )
    return ReadFile(file, hashlib.sha256(data).hexdigest(), tool, tuple(results))


def _reader_of(documents: Sequence[Document], file: str) -> ToolReader:
    reader = next((reader for reader in READERS if reader.claims(documents[0])), None)
    if reader is None:
        raise Unreadable(f"{file} is not a result that can be read: expected one of {RESULT_TOOLS}.")
    if not all(map(reader.claims, documents)):
        raise Unreadable(f"{file} is not one tool's result throughout: expected {reader.title} alone.")
    return reader


def _documents(data: bytes, file: str) -> list[Document]:
    """Return the objects of a file: one, a list of them, or one a line."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value: Any = from_json(data, allow_inf_nan=True)
    except ValueError as whole:
        if (lines := data.count(b"\n")) > MOST_LINES_OF_RESULT:
            raise OutOfRange(f"{file} has {lines:,} lines: expected at most {MOST_LINES_OF_RESULT:,}.") from None
        try:
            value = [from_json(line, allow_inf_nan=True) for line in data.split(b"\n") if line.strip()]
        except ValueError:
            raise Unreadable(f"{file} is not JSON: {_one_line(str(whole))}.") from None
    documents = value if isinstance(value, list) else [value]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise Unreadable(f"{file} holds no JSON object: expected a result of one of {RESULT_TOOLS}.")
    return documents


def _one_line(text: str) -> str:
    """Return a sentence without what is long in its middle."""
    line = shortened(" ".join(text.split()), len(text) + 1)
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 60]}…{line[-59:]}"


_RUN = re.compile(r"(?:#/)?experiments/(?:[^/?#]+)/runs/([0-9a-f]{32})(?:[/?].*)?")
_EXPECTED = "expected one such as http://127.0.0.1:5000/#/experiments/1/runs/ and the run's id"
_LARGEST_ANSWER, _SECONDS = 4_000_000, 20.0
_TOKEN = "MLFLOW_TRACKING_TOKEN"
_MOST_OTHER = 25


class _MlflowEntry(ToolFields):
    key: Text
    value: Any = None


class _MlflowInfo(ToolFields):
    run_id: Text
    run_name: Text = ""
    start_time: int | None = None


class _MlflowData(ToolFields):
    metrics: Annotated[list[_MlflowEntry], Field(default_factory=list, max_length=20_000)]
    tags: Annotated[list[_MlflowEntry], Field(default_factory=list, max_length=20_000)]


class _MlflowRun(ToolFields):
    info: _MlflowInfo
    data: _MlflowData = Field(default_factory=lambda: _MlflowData.model_validate({}))


class _MlflowAnswer(ToolFields):
    run: _MlflowRun


_ANSWER = TypeAdapter(_MlflowAnswer)


def fetch_mlflow_run(url: str, prompts: int | None = None) -> ReadFile:
    """Return the figures of a run, as MLflow's pages address it. ``prompts``: how many it measured, where its metrics
    have no ``n`` that says it.

    Raises ``InvalidSetting`` for an address of something else, and ``TrackingUnavailable``.
    """
    base, run_id = _mlflow_parts(url)
    data = _get(f"{base}/api/2.0/mlflow/runs/get?run_id={run_id}")
    place = f"the run {run_id} at {without_secrets(base)}"
    try:
        run = _ANSWER.validate_json(data).run
    except ValidationError:
        raise TrackingUnavailable(f"{place} is not answered as MLflow does: {_EXPECTED}.") from None
    values = {entry.key: finite(entry.value) for entry in run.data.metrics if isinstance(entry.value, int | float)}
    number = prompts if prompts is not None else int(values.get("n") or 0)
    if number < 1:
        raise NotGiven(f"{place} does not say how many prompts it measured: add --prompts.")
    result = ToolResult(
        name=shortened(run.info.run_name) or run_id, family=shortened(run.info.run_name) or run_id, prompts=number,
        task=_tag(run, "fsd.task") or "mlflow", model=_tag(run, "fsd.pair"), figures=_figures(values),
        counts={"failed": int(values.get("failed") or 0)},
        facts={
            "run": run_id, "server": shortened(without_secrets(base), 300),
            "started": None if run.info.start_time is None else time.strftime(
                "%Y-%m-%d %H:%M", time.gmtime(min(max(run.info.start_time / 1000, 0), 2e10))
            ),
        },
    )  # fmt: skip
    return ReadFile(f"{run_id}.json", hashlib.sha256(data).hexdigest(), "MLflow", (result,))


def _figures(values: dict[str, float | None]) -> dict[str, Any]:
    """Return the metrics that are ours with their intervals, and the first others by their names."""
    known = {name: values[name] for name in METRICS if values.get(name) is not None}
    ends = {f"{name}{end}" for name in METRICS for end in ("_low", "_high")}
    others = {
        figure_name(name): value
        for name, value in values.items()
        if name not in {*known, *ends, "n", "failed"} and "/" not in name
    }
    figures = {
        name: value if low is None or high is None else (value, low, high)
        for name, value in known.items()
        for low, high in [(values.get(f"{name}_low"), values.get(f"{name}_high"))]
    }
    return figures | dict(list(others.items())[:_MOST_OTHER])


def _tag(run: _MlflowRun, key: str) -> str:
    """Return a tag as one line, empty if the run has none of this name."""
    return next((shortened(str(tag.value)) for tag in run.data.tags if tag.key == key), "")


def _mlflow_parts(url: str) -> tuple[str, str]:
    """Return the base address of a server and the id of a run."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable, parts = False, urlsplit("")
    page = url.strip().partition("#")[2]
    match = _RUN.search(f"#{page}" if page else parts.path)
    if not usable or match is None or not url.isprintable() or len(url) > 1000:
        raise Malformed(f"{without_secrets(url)[:200]!r} is no address of a run of MLflow: {_EXPECTED}.")
    if parts.username is not None:
        raise Malformed(f"The address of a run has a name or password in it: give the token as {_TOKEN}.")
    folder = parts.path if page else parts.path[: parts.path.index("experiments/")]
    return f"{parts.scheme}://{parts.netloc}{folder.rstrip('/')}", match[1]


def _get(url: str) -> bytes:
    token = os.environ.get(_TOKEN)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    place, end, data = without_secrets(url.partition("/api/")[0]), time.monotonic() + _SECONDS, b""
    try:
        with httpx.stream("GET", url, headers=headers, timeout=_SECONDS, follow_redirects=False) as answer:
            for part in answer.iter_bytes():
                data += part
                if len(data) > _LARGEST_ANSWER:
                    raise TrackingUnavailable(f"{place} answers with more than {_LARGEST_ANSWER:,} bytes: {_EXPECTED}.")
                if time.monotonic() > end:
                    raise TrackingUnavailable(f"{place} does not answer within {_SECONDS:g} seconds: try again.")
            if answer.status_code != 200:
                raise TrackingUnavailable(
                    f"{place} answers with status {answer.status_code}: check the run's address, and {_TOKEN} if the "
                    "server asks who you are."
                )
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = str(error) or type(error).__name__
        raise TrackingUnavailable(f"{place} cannot be asked ({shortened(reason, 200)}): check the address.") from None
    return data


class ImportedRun(NamedTuple):
    """A measurement that is stored."""

    id: str
    label: str
    is_new: bool
    """whether it was not there before"""


def import_results(
    repository: Repository, files: Sequence[ReadFile], *, task: str = "", model: str = "", family: str = ""
) -> list[ImportedRun]:
    """Store the measurements of files, each once, however often a file is imported. Returns them in their order.

    ``task``, ``model`` and ``family`` replace what the files say. All is checked before anything is stored. Raises
    ``InvalidSetting``.
    """
    changes = {
        what: one_line(text, what, LONGEST_SERIES_NAME)
        for what, text in (("task", task), ("model", model), ("family", family))
        if text.strip()
    }
    checked = [
        (read, index, *_checked(read, result, changes)) for read in files for index, result in enumerate(read.results)
    ]
    runs = []
    for read, index, config, metrics, origin in checked:
        key = " ".join([read.tool, read.sha256, str(index), *(f"{name}={value}" for name, value in changes.items())])
        id, is_new = repository.log_run(config, metrics, origin, key)
        runs.append(ImportedRun(id, config.setting.decoding.label, is_new))
    return runs


def added_text(runs: Sequence[ImportedRun]) -> str:
    """Return how many runs were added, and how many were there before."""
    new = sum(run.is_new for run in runs)
    known = len(runs) - new
    before = f" {count(known, 'run')} {'was' if known == 1 else 'were'} here already." * bool(known)
    return f"Added {count(new, 'run')}.{before}"


def _checked(
    read: ReadFile, result: ToolResult, changes: Mapping[str, str]
) -> tuple[RunConfig, dict[str, Any], dict[str, Any]]:
    try:
        counts = {name: value for name, value in result.counts.items() if value is not None}
        answered = result.prompts > counts.get("failed", 0)  # else tools write 0 for what nothing was measured of
        figures = {name: value for name, value in result.figures.items() if value is not None and answered}
        logged = LoggedFigures.checked(prompts=result.prompts, **counts, figures=figures)
        series = ImportedSeries.checked(
            name=result.name, family=changes.get("family", result.family), values=tuple(result.knobs.items())
        )
        setting = SettingConfig(
            pair=changes.get("model") or shortened(result.model) or read.tool,
            decoding=DecodingConfig(acceptance=series),
        )
        config = RunConfig(setting=setting, limit=logged.prompts, task=changes.get("task", result.task))
        facts = {
            name: shortened(value, 300) if isinstance(value, str) else value
            for name, value in result.facts.items()
            if value is not None and value != ""
        }
        origin = {"tool": read.tool, "file": read.file, "sha256": read.sha256}
        origin |= facts | {"imported on": f"{datetime.now(UTC):%Y-%m-%d}"}
        return config, logged.metrics(), checked_origin(origin)
    except InvalidSetting as error:
        raise Unreadable(f"{read.file} cannot be imported, '{result.name}': {error}") from None
