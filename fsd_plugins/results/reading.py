"""Result files of other tools: read within bounds, and stored as imported runs."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.errors import (
    InvalidSetting,
    Malformed,
    NotGiven,
    OutOfRange,
    TrackingUnavailable,
    Unreadable,
)
from fsd_core.evaluation.logged_figures import LoggedFigures, checked_origin
from fsd_core.frozen import sentence
from fsd_core.metrics import METRICS
from fsd_core.rules import ImportedSeries
from fsd_core.rules.measured import LONGEST_SERIES_NAME, one_line
from fsd_core.storage.repository import Repository
from fsd_core.texts import count, without_secrets
from fsd_plugins.results.tools import (
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
