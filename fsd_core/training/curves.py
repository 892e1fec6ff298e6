"""Curves of a training in MLflow, drawn while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fsd_core.errors import TrackingUnavailable
from fsd_core.tracking.mlflow_store import connect, reached


@contextmanager
def curves(uri: str, name: str, warn: Callable[[str], None]) -> Iterator[Callable[[dict], None]]:
    """Open an MLflow run and yield a function that takes the rows of a training log, each number at its ``step``.

    The run ends as finished, or as failed if the block raises. An unavailable MLflow never stops a training: ``warn``
    is called once and later rows are dropped.
    """
    try:
        client, experiment = connect(uri)
        with reached(uri):
            run_id = client.create_run(experiment, run_name=name, tags={"fsd.kind": "training"}).info.run_id
    except TrackingUnavailable as error:
        warn(f"The training continues without curves. {error}")
        yield lambda row: None
        return
    lost = False

    def log(row: dict) -> None:
        nonlocal lost
        if lost or "step" not in row:
            return
        from mlflow.entities import Metric

        moment = int(time.time() * 1000)
        numbers = {key: value for key, value in row.items() if key != "step" and isinstance(value, int | float)}
        try:
            with reached(uri):
                client.log_batch(run_id, [Metric(key, float(v), moment, row["step"]) for key, v in numbers.items()])
        except TrackingUnavailable as error:
            lost = True
            warn(f"The training continues without curves. {error}")

    status = "FAILED"
    try:
        yield log
        status = "FINISHED"
    finally:
        try:
            with reached(uri):
                client.set_terminated(run_id, status)
        except TrackingUnavailable as error:
            warn(f"The training continues without curves. {error}")
