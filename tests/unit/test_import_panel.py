"""Result files of other tools on the Runs page: read first, added once, refused in a sentence."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.requests import Request

from dashboard.ui.fields import LARGEST_UPLOAD
from dashboard.ui.view import Asked, Question
from fsd_core.accounts import KEY
from fsd_core.errors import InvalidSetting, Refused, Unreadable
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from fsd_plugins.results.section import ImportPanel
from tests.tools.asking import act
from tests.tools.built import built

RESULT = Path(__file__).resolve().parents[1] / "data" / "results" / "vllm-bench-serve.json"


class Page:
    """The panel, and what is asked of it."""

    def __init__(self, repository: Repository) -> None:
        self.read_anew = 0

        def build() -> ImportPanel:
            with gr.Blocks(analytics_enabled=False):
                return ImportPanel(repository, self._forget)

        self.panel = built(build)

    def _forget(self) -> None:
        self.read_anew += 1

    def __call__(self, content: bytes, name: str = "bench.json", role: str = "author", **more: Any) -> str:
        """Return what the panel answers."""
        sent = {"action": "add", "file": name, "size": len(content), "data": base64.b64encode(content).decode()} | more
        request: Any = Request({"type": "http", "state": {}, KEY: Person("Ann", role)})
        return str(self.panel.check_or_add(act("import results", sent), Asked(Question(), {}, request))[
            self.panel.answer
        ])  # fmt: skip


@pytest.fixture
def page(repository: Repository) -> Page:
    return Page(repository)


def test_a_file_is_read_first_and_added_once_as_imported(page: Page, repository: Repository) -> None:
    data = RESULT.read_bytes()
    told = page(data, "<b>bench.json", action="check")
    assert "&lt;b&gt;bench.json is of vllm bench serve, with 1 measurement. Nothing is added yet." in told
    assert (repository.count_runs(), page.read_anew) == (0, 0)
    assert "Added 1 run. They are marked as imported" in page(data, "../folder/bench.json", task="chat")
    (run,) = repository.runs()
    assert (run.label, run.task, run.measured_elsewhere) == ("Imported · toy-model, concurrency 4", "chat", True)
    assert run.origin["file"] == "bench.json"  # without folders
    assert "Added 0 runs. 1 run was here already." in page(data, task="chat")
    assert (repository.count_runs(), page.read_anew) == (1, 2)


@pytest.mark.parametrize(
    ("data", "more", "told"),
    [
        (b"", {"file": ""}, "No file is chosen: choose a result of one of vllm bench serve"),
        (b"{}", {}, "bench.json is not a result that can be read: expected one of vllm bench serve"),
        (b"\x89PNG", {}, "bench.json"),
        (b"[" * 50_000, {}, "bench.json"),
        (b"{}", {"size": "-1"}, "The file could not be read: choose it again"),
        (b"{}", {"data": "%%%"}, "The file arrived damaged"),
        (b"{}", {"size": LARGEST_UPLOAD + 1}, "1,000,001 bytes: expected at most 1,000,000 here. `fsd-lab import-res"),
        (b" " * (LARGEST_UPLOAD + 9), {"size": 2}, "expected at most 1,000,000 here"),  # whatever a browser says
    ],
)
def test_what_cannot_be_added_is_refused_in_a_sentence_and_nothing_is_stored(
    page: Page, repository: Repository, data: bytes, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told):
        page(data, **more)
    assert (repository.count_runs(), page.read_anew) == (0, 0)


def test_only_authors_import_and_a_whole_file_or_nothing_is_stored(page: Page, repository: Repository) -> None:
    data = RESULT.read_bytes()
    with pytest.raises(Refused, match="Importing results"):
        page(data, role="viewer")
    broken = json.loads(data) | {"completed": -1}
    with pytest.raises(Unreadable, match=r"bench\.json"):
        page(data.strip() + b"\n" + json.dumps(broken).encode())
    assert repository.count_runs() == 0
