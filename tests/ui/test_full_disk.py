"""The web process once nothing can be written to any file, those in the temporary folder among them."""

from __future__ import annotations

import resource
from pathlib import Path
from urllib.request import urlopen

import pytest

from dashboard.compare.compared_runs import experiment_runs
from tests.tools.plausible import add_finished
from tests.tools.site import serving
from tests.tools.sizes import PATIENCE
from tests.tools.visitor import Visitor

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_doors.py")]


def test_pages_and_exports_need_no_room_on_the_disk(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        experiment = add_finished(site.repository)
        runs = ",".join(experiment_runs(site.repository, experiment))
        # Every write to a file fails from now on, as it does on a full disk.
        resource.prlimit(site.pid, resource.RLIMIT_FSIZE, (0, 0))
        for page in ("", "experiments", "compare", "runs", "theory"):
            with Visitor(site.url, page, experiment=experiment) as visitor:
                visitor.open()
                visitor.tick()
        for name, size in (("csv", 1000), ("html", 1_000_000)):
            with urlopen(f"{site.url}/export/comparison.{name}?runs={runs}", timeout=PATIENCE) as answer:
                assert answer.headers["Content-Disposition"] == f'attachment; filename="comparison.{name}"'
                assert len(answer.read()) > size
