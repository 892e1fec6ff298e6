"""A training's curves in the real MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.tracking import connect
from fsd_core.training.loop import curves


@pytest.mark.wide
def test_every_number_is_logged_at_its_step(tmp_path: Path) -> None:
    uri, told = f"sqlite:///{tmp_path / 'mlflow.db'}", []
    with curves(uri, "A draft", told.append) as log:
        log({"file": 1, "of": 3, "tokens": 99})  # before the training proper
        log({"step": 25, "loss": 2.5, "seconds": 1.0})
        log({"step": 50, "loss": 1.5, "seconds": 2.0, "overlap": 0.4})
    with pytest.raises(ZeroDivisionError), curves(uri, "Another", told.append) as log:
        log({"step": 1, "loss": 1 / 0})
    client, experiment = connect(uri)
    failed, finished = client.search_runs([experiment])
    assert (finished.info.run_name, finished.info.status) == ("A draft", "FINISHED")
    assert (failed.info.run_name, failed.info.status) == ("Another", "FAILED")
    history = client.get_metric_history(finished.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(25, 2.5), (50, 1.5)]
    assert set(finished.data.metrics) == {"loss", "seconds", "overlap"}
    assert told == []


def test_a_training_goes_on_without_mlflow() -> None:
    told: list[str] = []
    with curves("http://127.0.0.1:9", "A draft", told.append) as log:
        log({"step": 1, "loss": 1.0})
    assert len(told) == 1
    assert "MLflow" in told[0]
