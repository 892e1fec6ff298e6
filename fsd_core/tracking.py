"""Copies of ended runs in MLflow. The database is the source of truth, so a copy can be made again."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import logging
import math
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fsd_core.config.model_names import title_of_models
from fsd_core.errors import FsdError, TrackingUnavailable
from fsd_core.metrics import MIXED_MARK, listed_metrics
from fsd_core.provenance import OUR_RUN
from fsd_core.settings import Settings, get_settings, sqlite_url
from fsd_core.statistics.intervals import keyed
from fsd_core.storage.records import UNENDED, ExperimentView, GenerationView, RunView, other_figures
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Alias
from fsd_core.storage.tables import GenerationRow
from fsd_core.texts import without_secrets

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory
    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run


def check_schema(connection: Connection, name: str) -> None:
    """Raise ``TrackingUnavailable`` unless the database is new or at the revision of the installed MLflow.

    MLflow itself would upgrade a database that lacks one of its newer tables, without a backup. ``name`` is the
    database's URL without secrets.
    """
    if not inspect(connection).has_table("alembic_version"):
        return
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is None or revision == _migrations().get_current_head():
        return
    from mlflow.version import VERSION

    if all(migration.revision != revision for migration in _migrations().walk_revisions()):
        raise TrackingUnavailable(
            f"The database {name} has the revision {revision}, which MLflow {VERSION} does not know, so it belongs to "
            "a newer MLflow or to another program: upgrade the package mlflow, or set FSD_MLFLOW_URI to another "
            "database."
        )
    address = shlex.quote(name) if name.startswith("sqlite") else '"$FSD_MLFLOW_URI"'
    raise TrackingUnavailable(
        f"The MLflow database {name} has the schema of an older MLflow (revision {revision}), which MLflow {VERSION} "
        f"cannot use: back it up, then run `mlflow db upgrade {address}`."
    )


@cache
def _migrations() -> ScriptDirectory:
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    return ScriptDirectory.from_config(_get_alembic_config(db_url=""))


logger = logging.getLogger(__name__)

CREATION_PATIENCE = 3  # seconds


def create_store(uri: str, artifacts: Path) -> None:
    """Create MLflow's tables, unless ``uri`` is already a store or is no SQLite file.

    MLflow creates them in some fifty steps without a transaction, and permanently refuses a file with half of them. So
    the tables are created in a separate file, which then replaces the store. A store left half-created in place by a
    killed process is moved aside. A lock, which the kernel releases if its process is killed, admits one process at a
    time. Raises ``OSError`` and what MLflow raises.
    """
    url = make_url(uri) if uri.startswith("sqlite") else None
    if url is None or not url.database:
        return
    file = Path(url.database).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if file.exists() and file.stat().st_size and not _unfinished(url):
            return
        new = file.with_name(f"{file.name}.new")
        for leftover in (new, new.with_name(f"{new.name}-journal")):
            leftover.unlink(missing_ok=True)
        _create(sqlite_url(new, "sqlite+pysqlite"), artifacts)
        if file.exists() and file.stat().st_size:
            aside = file.with_name(f"{file.name}.unfinished")
            os.replace(file, aside)
            logger.warning("The MLflow store %s was never completed and is now %s; a new one is there.", file, aside)
        os.replace(new, file)
    finally:
        os.close(folder)


def _unfinished(url: URL) -> bool:
    """Whether the file only has some of MLflow's tables, and neither a run nor an experiment, which a complete store
    of an older MLflow has. ``False`` for an unreadable file."""
    engine = create_engine(url, connect_args={"timeout": CREATION_PATIENCE})
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            for table in tables & {"runs", "experiments"}:
                if connection.execute(text(f"SELECT 1 FROM {table} LIMIT 1")).first():
                    return False
            version = None
            if "alembic_version" in tables:
                version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DBAPIError:
        return False
    finally:
        engine.dispose()
    from mlflow.store.db.utils import _get_latest_schema_revision
    from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
    from mlflow.store.tracking.dbmodels.models import Base

    expected = {*InitialBase.metadata.tables, *Base.metadata.tables}
    foreign = {table for table in tables if table not in expected and not table.startswith(("alembic_", "_alembic_"))}
    return not foreign and version != _get_latest_schema_revision()


def _create(uri: str, artifacts: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(uri, artifacts.as_uri())
    store._dispose_engine()


EXPERIMENT = "FSD Lab"
STORE_PATIENCE = 3  # seconds
LIMITS = {  # MLflow's defaults are two minutes and seven tries; values set by the user stay
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(STORE_PATIENCE),
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}


def prepare_store(settings: Settings) -> None:
    """Create MLflow's folder, tables and experiment, so that no later step waits for them.

    Takes about six seconds the first time. Raises ``TrackingUnavailable``.
    """
    connect(settings.resolved_mlflow_uri)


def connect(uri: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of the experiment that contains all runs. Raises ``TrackingUnavailable``."""
    for name, value in LIMITS.items():
        os.environ.setdefault(name, value)
    with reached(uri):
        if root := artifact_root(uri):
            create_store(uri, root)
        check_database(uri)
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return client, client.create_experiment(EXPERIMENT, artifact_location=root.as_uri() if root else None)
        if experiment.lifecycle_stage != "active":
            client.restore_experiment(experiment.experiment_id)
        return client, experiment.experiment_id


@contextmanager
def reached(uri: str) -> Iterator[None]:
    """Raise ``TrackingUnavailable`` for every error of the store or the server in the block."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except FsdError:  # such as an error of our own database
        raise
    except (MlflowException, SQLAlchemyError, OSError) as error:  # requests' errors are OSErrors
        raise TrackingUnavailable(f"MLflow at {without_secrets(uri)} {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """Return the rest of the error message, named by its cause. MLflow's own messages quote internals of its
    libraries."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import ConnectionError, Timeout

    chain = list(_causes(error))
    # psycopg gives no SQLSTATE for a server that it cannot reach.
    unreached = any(isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", "") is None for cause in chain)
    if unreached or any(isinstance(cause, ConnectionError | Timeout) for cause in chain):
        return "does not answer, so runs are mirrored later: check that it runs and that FSD_MLFLOW_URI is right."
    reasons = (_reason(cause) for cause in chain if not isinstance(cause, MlflowException))
    code = getattr(error, "error_code", type(error).__name__)  # such as PERMISSION_DENIED
    reason = next(filter(None, reasons), str(code).replace("_", " ").lower())
    return f"cannot be used ({reason}), so runs are mirrored later: check that it is MLflow's and may be written to."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes; MLflow wraps the errors of others in its own."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(cause: BaseException) -> str:
    """Return the short message of a database driver or the system; empty for other errors."""
    message = cause.orig if isinstance(cause, DBAPIError) else cause.strerror if isinstance(cause, OSError) else None
    return str(message or "").strip().partition("\n")[0][:200]


def _is_database(uri: str) -> bool:
    return uri.split(":", 1)[0].split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")


def check_database(uri: str) -> None:
    """Open the store once, because MLflow itself would retry for minutes, and check its schema."""
    if not _is_database(uri):
        return
    url = make_url(uri)
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"timeout": STORE_PATIENCE} if sqlite else {"connect_timeout": STORE_PATIENCE}
    )
    try:
        with engine.connect() as connection:
            if sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                connection.exec_driver_sql("PRAGMA user_version = 0")  # fails on a read-only store, changes nothing
            check_schema(connection, without_secrets(uri))
    finally:
        engine.dispose()


def artifact_root(uri: str) -> Path | None:
    """Return the folder of artifacts: beside a SQLite store, or in the home for another database. ``None`` for a
    server, which has its own."""
    if not _is_database(uri):
        return None
    if uri.startswith("sqlite"):
        return Path(str(make_url(uri).database)).absolute().parent / "artifacts"
    return get_settings().mlflow_folder / "artifacts"


NOTHING_DRAFTED = "This run drafted nothing."
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Figures</title>
<style>body {{ margin: 0; background: white }} svg {{ width: 100%; max-width: 900px; height: auto }}</style>
</head><body>{svg}</body></html>
"""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp and searchable
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e2dfd6",
    "text.color": "#1d2125",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.12,
}


def write_figures(path: Path, metrics: dict[str, Any], divergence: str) -> None:
    """Write acceptance by draft position and the histogram of divergences as one HTML file of about 20 KB.

    ``divergence`` is the name of the recorded divergence.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 3.4), layout="constrained")
        _draw(figure, metrics, divergence)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = svg.getvalue()
    path.write_text(_PAGE.format(svg=text[text.index("<svg") :]), encoding="utf-8")


def _draw(figure: Figure, metrics: dict[str, Any], divergence: str) -> None:
    rates = metrics.get("acceptance_at_position") or []
    histogram = metrics.get("divergence_histogram") or {}
    if not rates and not histogram:
        figure.text(0.5, 0.5, NOTHING_DRAFTED, ha="center", size="large")
        return
    left, right = figure.subplots(1, 2)
    left.bar([i + 1 for i in range(len(rates))], rates, color="#0f6b65")
    left.set(title="Acceptance by position", xlabel="Position in the draft", ylim=(0, 1))
    left.set(ylabel="Share of rounds that accept it")
    left.locator_params(axis="x", integer=True)
    if histogram:
        right.stairs(histogram["counts"], histogram["edges"], fill=True, color="#a86400")
        right.locator_params(axis="y", integer=True)
    else:
        right.text(0.5, 0.5, "Nothing was judged.", ha="center", transform=right.transAxes)
        right.set(xticks=[], yticks=[])
    unit = "" if divergence.endswith(("tv", "random")) else ", nats"
    right.set(title="Divergence", xlabel=f"Divergence {divergence}{unit}", ylabel="Judged draft tokens")


TABLE = "generations.json"


def write_artifacts(folder: Path, repository: Repository, run: RunView) -> list[GenerationView]:
    """Write configuration, metrics, figures, the table of generations and the traces. Returns the generations, whose
    metrics are logged as well."""
    generations = repository.generations(run.id)
    (folder / "config.json").write_text(run.config.model_dump_json(indent=2), encoding="utf-8")
    if run.metrics is not None:
        (folder / "metrics.json").write_text(json.dumps(run.metrics, indent=2), encoding="utf-8")
        write_figures(folder / "figures.html", run.metrics, run.decoding.divergence or "js")
    if generations:
        _write_table(folder / TABLE, generations)
        with gzip.open(folder / "traces.jsonl.gz", "wt", encoding="utf-8") as file:
            for position, records in repository.traces(run.id):
                line = {"position": position, "records": [asdict(record) for record in records]}
                file.write(json.dumps(line) + "\n")
    return generations


def _write_table(path: Path, generations: list[GenerationView]) -> None:
    """Write the format of MLflow's ``log_table``, which itself would append to the table of an earlier copy."""
    internal = ("id", "run_id", "sitting_id", "created_at")  # only meaningful in the database
    names = [column.name for column in GenerationRow.__table__.columns if column.name not in internal]
    rows = [[getattr(generation, name) for name in names] for generation in generations]
    path.write_text(json.dumps({"columns": names, "data": rows}), encoding="utf-8")


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
    displayed = [metric for metric in listed_metrics() if _is_number(metrics.get(metric.key))]
    parts = [f"{metrics[m.key]:.4g}{mark * m.timed} {m.key.replace('_', ' ')}" for m in displayed]
    return f"{done}: {', '.join(parts)}." if parts else f"{done}: {run.status}."


def _spent(run: RunView) -> float | None:
    """Return the seconds of decoding of a run that has ended."""
    return run.decoding_seconds if run.finished_at else None


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
