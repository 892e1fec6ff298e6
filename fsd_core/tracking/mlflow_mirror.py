"""Copies of ended runs in MLflow. The database is the source of truth, so a copy can be made again at any time."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd_core.conditions import MIXED_MARK
from fsd_core.config.model_names import title_of_models
from fsd_core.errors import FsdError, TrackingUnavailable
from fsd_core.metrics import listed
from fsd_core.statistics.intervals import keyed
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.elsewhere import other_figures
from fsd_core.storage.records import UNENDED, ExperimentView, GenerationView, RunView
from fsd_core.storage.review_events import Alias
from fsd_core.tracking.artifacts import TABLE, write_artifacts
from fsd_core.tracking.mlflow_links import OUR_RUN
from fsd_core.tracking.mlflow_store import artifact_root, connect, prepare_store, reached

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

__all__ = ["MlflowMirror", "prepare_store"]

_STATUS = {
    "queued": "SCHEDULED",
    "running": "RUNNING",
    "stopped": "KILLED",
    "finished": "FINISHED",
    "failed": "FAILED",
    "cancelled": "KILLED",
}
_NAMED: dict[Alias, str] = {"approved": "fsd.approved_for", "candidate": "fsd.candidate_for"}
_OPTIONAL = {
    "fsd.error",
    "fsd.started_at",
    "fsd.finished_at",
    "fsd.task",
    "fsd.task_version",
    "fsd.pair_name",
    "fsd.speed_mixed",
    "mlflow.loggedArtifacts",
    *_NAMED.values(),
}
_BATCH = 1000  # most metrics that MLflow takes in one call


class MlflowMirror:
    """An MLflow store or server. Each run connects again, because the store may have come or gone since the last
    one."""

    _client: MlflowClient
    _experiment: str

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def sync(self, repository: Repository, run_id: str) -> str:
        """Copy a run or update its copy, and return its MLflow run id.

        Raises ``TrackingUnavailable``. The run then stays unsynced and can be copied later.
        """
        run = repository.run(run_id)
        named = repository.named(run.setting_id, run.weights)
        self._client, self._experiment = connect(self._uri)
        with _temporary_folder() as folder:
            generations = write_artifacts(folder, repository, run)
            with reached(self._uri), self._never_left_running(repository, run):
                parent = self._parent(repository, run.experiment_id)
                copy = self._copy(run, named.uses, generations, folder, parent)
                if run.ended:
                    repository.mark_synced(run, copy, named.moves)
                if run.experiment_id and parent:
                    self._set_parent_status(repository.experiment(run.experiment_id), parent)
        return copy

    @contextmanager
    def _never_left_running(self, repository: Repository, run: RunView) -> Iterator[None]:
        """Give the copies their status when the block is interrupted. MLflow begins every run as running."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            if copy := self._find_run("fsd.run_id", run.id):
                self._set_status(copy, run.status, _spent(run))
            if run.experiment_id and (parent := self._find_run("fsd.experiment_id", run.experiment_id)):
                self._set_parent_status(repository.experiment(run.experiment_id), parent)
            raise

    def delete_pending(self, repository: Repository) -> int:
        """Delete the copies of runs and experiments deleted here, and return their number. Raises
        ``TrackingUnavailable``.

        A SQLite store loses them for good, with their files. Other stores keep them in their trash until `mlflow gc`.
        """
        pending = repository.mlflow_deletions()
        if pending:
            self._client, self._experiment = connect(self._uri)
        for kind, id in pending:
            with reached(self._uri):
                for copy in self._find_runs(f"fsd.{kind}_id", id):
                    self._delete(copy)
            repository.deleted_in_mlflow([id])
        return len(pending)

    def _delete(self, copy: Run) -> None:
        from mlflow.utils.file_utils import local_file_uri_to_path

        if copy.info.lifecycle_stage == "active":
            self._client.delete_run(copy.info.run_id)
        root = artifact_root(self._uri)
        if root is None:  # an external store manages its own trash
            return
        files = Path(local_file_uri_to_path(str(copy.info.artifact_uri))).resolve()
        if files.is_relative_to(root.resolve()) and files.name == "artifacts":
            shutil.rmtree(files.parent, ignore_errors=True)
        # Same as `mlflow gc` for one run; the command itself would empty the whole trash.
        self._client._tracking_client.store._hard_delete_run(copy.info.run_id)

    def _copy(
        self,
        run: RunView,
        uses: dict[Alias, list[str]],
        generations: list[GenerationView],
        folder: Path,
        parent: str | None,
    ) -> str:
        from mlflow.entities import Param, RunTag

        name = f"{run.label} · seed {run.seed}"
        copy = self._find_run("fsd.run_id", run.id) or self._create_run(name, "fsd.run_id", run.id, run.started_at)
        optional = dict(_flat("fsd.provenance", run.provenance or {})) | {
            "fsd.speed_mixed": ", ".join(run.speed_mixed) or None,
            **_task_tags(run.task), "fsd.pair": run.pair,
            "fsd.pair_name": title_of_models(run.pair) or None,
            "fsd.experiment": run.experiment_name, "fsd.error": run.error, "mlflow.note.content": self._note(run),
            "fsd.started_at": _moment(run.started_at), "fsd.finished_at": _moment(run.finished_at),
            "mlflow.parentRunId": parent, "mlflow.source.name": "fsd-lab",
            "mlflow.loggedArtifacts": json.dumps([{"path": TABLE, "type": "table"}]) if generations else None,
        }  # fmt: skip
        optional |= {tag: ", ".join(uses[alias]) or None for alias, tag in _NAMED.items()}
        tags = {key: str(value)[:5000] for key, value in optional.items() if value is not None}
        for key in set(self._client.get_run(copy).data.tags) - set(tags):
            if key in _OPTIONAL or key.startswith("fsd.provenance."):
                self._client.delete_tag(copy, key)  # left by an earlier copy
        self._client.log_batch(
            copy,
            params=[Param(key, str(value)) for key, value in _flat("", run.config.at("").as_json())],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )
        metrics = list(_metrics(run, generations))
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(copy, metrics=metrics[start : start + _BATCH])
        self._client.log_artifacts(copy, str(folder))
        self._set_status(copy, run.status, _spent(run))
        return copy

    def _note(self, run: RunView) -> str:
        """Return the Markdown that MLflow displays as the description of the run."""
        if artifact_root(self._uri) is None:  # an external server is not below our URL and does not know it
            return _summary(run)
        return f"{_summary(run)}\n\n[Open in FSD Lab]({OUR_RUN}{run.id})"

    def _parent(self, repository: Repository, experiment_id: str | None) -> str | None:
        """Return the MLflow run that an experiment's runs are nested under, created if missing."""
        if experiment_id is None:
            return None
        experiment = repository.experiment(experiment_id)
        parent = self._find_run("fsd.experiment_id", experiment_id)
        if parent is None:
            parent = self._create_run(experiment.name, "fsd.experiment_id", experiment_id, experiment.created_at)
            self._client.log_dict(parent, experiment.config.as_json(), "config.json")
        else:
            self._client.update_run(parent, name=experiment.name)  # it may have been renamed
        self._client.set_tag(parent, "fsd.pair", experiment.config.pair)
        if experiment.mlflow_run_id != parent:
            repository.set_experiment_mlflow(experiment_id, parent)
        return parent

    def _set_parent_status(self, experiment: ExperimentView, parent: str) -> None:
        # Not the experiment's own status: its job ends after the last run is copied. One that goes on is scheduled, not
        # running: MLflow hears of its runs when they have ended, and not at all of a process that was killed.
        statuses = {run.status for run in experiment.runs}
        if not statuses.isdisjoint(UNENDED):
            self._set_status(parent, "queued", None)
        else:
            status = next((status for status in ("failed", "cancelled") if status in statuses), "finished")
            self._set_status(parent, status, experiment.decoding_seconds)

    def _find_run(self, tag: str, value: str) -> str | None:
        runs = self._client.search_runs([self._experiment], f"tags.`{tag}` = '{value}'", max_results=1)
        return runs[0].info.run_id if runs else None

    def _find_runs(self, tag: str, value: str) -> list[Run]:
        """Find runs by a tag, including deleted ones in the trash."""
        from mlflow.entities import ViewType

        return list(self._client.search_runs([self._experiment], f"tags.`{tag}` = '{value}'", ViewType.ALL))

    def _create_run(self, name: str, tag: str, value: str, started: datetime | None) -> str:
        start = _milliseconds(started) if started else None
        return self._client.create_run(self._experiment, start_time=start, tags={tag: value}, run_name=name).info.run_id

    def _set_status(self, copy: str, status: str, seconds: float | None) -> None:
        """Set the status and, for what has ended, a duration of its seconds of decoding. Runs take turns, so most of
        the time between a run's first and last prompt is that of others."""
        if seconds is None:
            self._client.update_run(copy, status=_STATUS[status])
        else:
            started = self._client.get_run(copy).info.start_time or 0
            self._client.set_terminated(copy, _STATUS[status], end_time=started + round(1000 * seconds))


def _task_tags(task: str) -> dict[str, str | None]:
    """Return the tags for the name of a task and, for a custom one, its version."""
    name, _, version = task.partition("@")
    return {"fsd.task": name, "fsd.task_version": version or None}


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a folder for the files of a copy. Raises ``TrackingUnavailable`` if the disk has no room for them."""
    try:
        with tempfile.TemporaryDirectory(prefix="fsd-mlflow-") as name:
            yield Path(name)
    except FsdError:
        raise
    except OSError as error:
        raise TrackingUnavailable(
            f"The temporary folder cannot be written to ({error.strerror}), so runs are mirrored later: free some "
            "space, or set TMPDIR to another folder."
        ) from error


def _metrics(run: RunView, generations: list[GenerationView]) -> Iterator[Metric]:
    """Yield the metrics of a run. Timestamps do not vary, so MLflow recognises the metrics it already has."""
    from mlflow.entities import Metric

    ended_at = _milliseconds(run.finished_at or run.created_at)
    for key, value in (run.metrics or {}).items():
        values = value if isinstance(value, list) else [value]
        yield from (Metric(key, number, ended_at, i) for i, number in enumerate(values) if _is_number(number))
    for name, figure in other_figures(run.metrics).items():
        yield from (Metric(key, end, ended_at, 0) for key, end in keyed(name, figure).items() if end is not None)
    for generation in generations:
        rates = {
            "prompt/tokens_per_second": (generation.tokens, generation.seconds),
            "prompt/acceptance_rate": (generation.accepted, generation.drafted),
        }
        for key, (count, total) in rates.items():
            if total > 0:
                yield Metric(key, count / total, _milliseconds(generation.created_at), generation.position)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield nested fields as ``outer.inner``, without unset ones."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, inner)
    elif value is not None:
        yield prefix, value


def _summary(run: RunView) -> str:
    """Return one sentence about the run. MLflow displays it as Markdown, so it contains only numbers and fixed text.

    The names of setting and task may come from an imported file. MLflow displays them elsewhere, as plain text.
    """
    done = f"{run.prompts_done:,} of {run.prompts_total:,} prompts"
    metrics = run.metrics or {}
    mark = MIXED_MARK * bool(run.speed_mixed)
    displayed = [metric for metric in listed() if _is_number(metrics.get(metric.key))]
    parts = [f"{metrics[m.key]:.4g}{mark * m.timed} {m.key.replace('_', ' ')}" for m in displayed]
    return f"{done}: {', '.join(parts)}." if parts else f"{done}: {run.status}."


def _spent(run: RunView) -> float | None:
    """Return the seconds of decoding of a run that has ended."""
    return run.decoding_seconds if run.finished_at else None


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
