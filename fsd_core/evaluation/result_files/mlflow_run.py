"""A run of a MLflow server, read by its address. For the command line alone: it asks whatever server a person names."""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from fsd_core.addresses import without_secrets
from fsd_core.errors import Malformed, NotGiven, TrackingUnavailable
from fsd_core.evaluation.result_files.result_reading import ReadFile
from fsd_core.evaluation.result_files.tool_result import Text, ToolFields, ToolResult, figure_name, finite, shortened
from fsd_core.metrics import METRICS

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
    base, run_id = _parts(url)
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


def _parts(url: str) -> tuple[str, str]:
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
