"""The real thing: ``python app.py`` with its worker, MLflow and the bundled pair, used by a person in a browser.

A newcomer reaches each goal, from an empty home, with as many clicks as docs/pages.md says.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import select

from fsd_core.settings import Settings
from fsd_core.storage.database.connection import Database, open_database
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.database.tables import JobRow
from fsd_core.storage.records import ExperimentView, RunView
from fsd_core.testing.toy import save_toy_pair
from fsd_core.worker import lock
from tests.tools.folds import head
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, free_port, until

pytestmark = pytest.mark.ui
T = TypeVar("T")

PROMPTS = 12
SUMS = [{"frage": f"{i} + {i % 7} = ?", "antwort": str(i + i % 7)} for i in range(40)]
LABELS = [
    "Target alone", "SD · γ 5", "FSD reducible · js ≤ 0.05 · γ 5", "FSD reducible · js ≤ 0.1 · γ 5",
    "FSD reducible · js ≤ 0.3 · γ 5",
]  # fmt: skip
LONG = 1000 * PATIENCE  # in milliseconds, as the browser counts


def _goals() -> dict[str, int]:
    """The clicks of each goal, as docs/pages.md has them."""
    _, _, section = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8").partition("## How many clicks")
    return {goal: int(clicks) for goal, clicks in re.findall(r"^\| ([^|]+) \| (\d+) \|", section, re.M)}


GOALS = _goals()


class Hand:
    """What a person does on a page, counted. A choice in a list is two clicks, a field that is filled in is one."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    @contextmanager
    def reaching(self, goal: str) -> Iterator[None]:
        """Within, a goal is reached with as many clicks as docs/pages.md says."""
        self.count = 0
        yield
        assert self.count == GOALS[goal], f"“{goal}” takes {self.count} clicks: docs/pages.md says {GOALS[goal]}"

    def click(self, what: Locator) -> None:
        self.count += 1
        what.click()

    def fill(self, field: Locator, text: str) -> None:
        self.count += 1
        field.fill(text)

    def choose(self, field: Locator, option: str) -> None:
        self.click(field)
        self.click(self.page.get_by_role("option", name=option, exact=True))

    def upload(self, field: Locator, name: str, content: bytes) -> None:
        self.count += 1
        field.set_input_files({"name": name, "mimeType": "application/json", "buffer": content})


@dataclass
class Application:
    """``python app.py`` on a home of its own."""

    settings: Settings
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    @cached_property
    def database(self) -> Database:
        return open_database(self.settings.resolved_database_url)

    @cached_property
    def repository(self) -> Repository:
        return Repository(self.database)

    def start(self) -> None:
        """Returns when it says that it is ready."""
        own = {f"FSD_{name}".upper(): str(value) for name, value in self.settings.model_dump().items() if value}
        with (self.settings.home / "app.err").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "app.py"], cwd=ROOT, env=os.environ | own, stdout=subprocess.PIPE, stderr=log,
                text=True,
            )  # fmt: skip
        self.started.append(process)
        assert process.stdout is not None
        assert self.url in process.stdout.readline(), (self.settings.home / "app.err").read_text()

    def kill(self) -> None:
        """As a machine that runs out of memory does."""
        self.started[-1].kill()
        self.started[-1].wait()

    def worker(self) -> int | None:
        """The process of the worker that has told the database of itself."""
        holder = worker_process(self)
        told = self.repository.worker()
        return holder if told is not None and told.alive and told.pid == holder else None

    def close(self) -> None:
        """Ends everything, also what the application did not end."""
        self.started[-1].terminate()
        with suppress(subprocess.TimeoutExpired):
            self.started[-1].wait(20)
        for process in self.started:
            process.kill()
            process.communicate()
        for name in ("worker.lock", "mlflow.lock"):
            if left := lock.holder(self.settings.home / name):
                os.kill(left["pid"], signal.SIGKILL)


def worker_process(app: Application) -> int | None:
    """The process that has the worker's lock."""
    return (lock.holder(app.settings.home / "worker.lock") or {}).get("pid")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and a draft."""
    folder = tmp_path_factory.mktemp("models")
    save_toy_pair(folder)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One application for all tests of this file; it is ready, and its worker is."""
    port = free_port(7960)
    settings = Settings(home=tmp_path_factory.mktemp("home"), port=port, threads=1, device="cpu")
    app = Application(settings)
    try:
        app.start()
        awaited(app.worker, "a worker")
        yield app
    finally:
        app.close()


@contextmanager
def under_way(page: Page, app: Application, name: str, thresholds: str) -> Iterator[tuple[Locator, str]]:
    """Fills in the form and starts. The experiment's card, which shows that it is under way, and its name.

    Within, it stays as it is: nothing more of it can be written down, for the database is locked.
    """
    page.goto(f"{app.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible()  # the page is alive
    page.get_by_label("Draft lengths").fill("5")
    page.get_by_label("Thresholds").fill(thresholds)
    page.get_by_label("Prompts", exact=True).fill(str(PROMPTS))
    for baseline in ("Draft alone", "Block"):
        page.get_by_label(baseline, exact=True).uncheck()
    settings = 2 + thresholds.count(",") + 1
    expect(page.get_by_text(f"{settings} settings × 1 seed × {PROMPTS} prompts =")).to_be_visible()
    with closing(sqlite3.connect(app.settings.home / "fsd.db", isolation_level=None, timeout=PATIENCE)) as blocker:
        for attempt in itertools.count(1):
            called = f"{name} {attempt}"
            page.get_by_label("Name").fill(called)
            page.get_by_role("button", name="Start experiment").click()
            awaited(lambda called=called: locked_midway(blocker, app, called), "three prompts")
            if latest(app).status == "running":
                break
            blocker.execute("ROLLBACK")  # the test was paused for so long that it ended: once more
        card = page.locator("article.exp", has_text=called)
        line = re.compile(r"^Bundled arithmetic pair · arithmetic · [1-9]\d* of \d+ texts .*, .* left$")
        expect(card.locator(".exp-foot p")).to_have_text(line, timeout=LONG)
        expect(card.get_by_role("progressbar")).to_be_visible()
        yield card, called
        blocker.execute("ROLLBACK")


def locked_midway(blocker: sqlite3.Connection, app: Application, name: str) -> bool:
    """Whether the experiment has begun; if so, the database stays locked for writers."""
    blocker.execute("BEGIN IMMEDIATE")
    newest = app.repository.experiments(limit=1)
    if newest and newest[0].name == name and newest[0].prompts_done >= 3:
        return True
    blocker.execute("ROLLBACK")
    return False


def awaited(condition: Callable[[], T | None], what: str) -> T:
    return until(condition, what, PATIENCE)


def latest(app: Application) -> ExperimentView:
    return app.repository.experiments(limit=1)[0]


def done(app: Application, experiment: str) -> dict[tuple[str, int], tuple[int, datetime, str]]:
    """What is recorded of every prompt, by run and position."""
    repository = app.repository
    found = [g for run in repository.experiment(experiment).runs for g in repository.generations(run.id)]
    recorded = {(g.run_id, g.position): (g.id, g.created_at, g.text) for g in found}
    assert len(recorded) == len(found), "a prompt is recorded twice"
    return recorded


def read(url: str) -> Any:
    with urlopen(url, timeout=PATIENCE) as answer:
        assert answer.status == 200
        return answer.read()


def test_a_newcomer_reaches_each_goal_in_few_clicks(page: Page, app: Application, models: Path) -> None:
    hand = Hand(page)
    with hand.reaching("A first answer"):
        page.goto(app.url)
        expect(page.locator("#prompt-text textarea")).to_have_value(re.compile("^Question: "))
        expect(page.locator(".fsd-worker")).to_contain_text("ready")
        hand.click(page.get_by_role("button", name="Generate"))
        for number in (1, 2):
            expect(page.locator(f"#lane-{number} section[data-done=true]")).to_contain_text("finished", timeout=LONG)
    every_token_tells_its_numbers(page, app)

    with hand.reaching("One's own folder of models"):
        hand.click(page.get_by_role("link", name="Experiments", exact=True))
        hand.click(page.get_by_role("button", name="Your own models"))
        hand.fill(page.get_by_label("Pair's name"), "mine")
        hand.fill(page.get_by_label("Target", exact=True), str(models / "target"))
        hand.fill(page.get_by_label("Draft", exact=True), str(models / "draft"))
        hand.click(page.get_by_role("button", name="Add the pair"))
        expect(page.locator("#models-answer")).to_contain_text("mine is added and chosen: here.")
        expect(page.get_by_label("Model pair", exact=True)).to_have_value("mine")

    with hand.reaching("One's own prompts in one's own shape"):
        hand.click(page.get_by_role("button", name="Your own tasks"))
        hand.click(page.get_by_role("button", name="Fields of the file"))
        hand.fill(page.get_by_label("Prompt field"), "frage")
        hand.fill(page.get_by_label("Reference field"), "antwort")
        hand.choose(page.get_by_label("Scorer"), "Number")
        hand.upload(page.get_by_label("File of prompts"), "sums.json", json.dumps(SUMS).encode())
        expect(page.locator("#own-answer")).to_contain_text(f"sums: {len(SUMS)} prompts in order. Scorer: Number.")
        hand.click(page.get_by_role("button", name="Add", exact=True))
        expect(page.locator("#own-answer")).to_contain_text(f"is in the list of tasks, with {len(SUMS)} prompts.")
        expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("^sums"))
        expect(page.get_by_text(f"× {len(SUMS)} prompts =")).to_be_visible()


def test_an_experiment_outlives_its_worker_and_is_compared_and_found_in_mlflow(page: Page, app: Application) -> None:
    with under_way(page, app, "What leniency costs", "0.05, 0.1, 0.3") as (card, name):
        experiment = latest(app).id
        killed = worker_process(app)
        os.kill(killed, signal.SIGKILL)
        before = done(app, experiment)
        assert 3 <= len(before) < len(LABELS) * PROMPTS

    card.get_by_role("link", name="Compare these 5 runs").wait_for(timeout=LONG)
    after = done(app, experiment)
    ended = app.repository.experiment(experiment)
    assert [run.label for run in ended.runs] == LABELS
    assert [run.status for run in ended.runs] == ["finished"] * len(LABELS)
    assert set(after) == {(run.id, position) for run in ended.runs for position in range(PROMPTS)}
    assert {key: after[key] for key in before} == before
    assert ended.job_id is not None
    job = app.repository.job(ended.job_id)
    assert (job.status, job.attempts, job.lost_workers) == ("finished", 2, 1)
    assert awaited(app.worker, "another worker") != killed
    target, sd = ended.runs[:2]
    written = [[text for (run, _), (_, _, text) in sorted(after.items()) if run == r.id] for r in (target, sd)]
    assert written[0] == written[1], "greedy SD writes what the target writes"

    card.get_by_role("link", name="Compare these 5 runs").click()
    expect(page).to_have_url(re.compile(r"/compare\?runs=.*baseline="))
    expect(page.locator(".js-plotly-plot .gtitle")).to_have_text("Accuracy against throughput")
    head(page, "All figures").click()
    rows = page.get_by_role("table", name="Metrics of the runs").locator("tbody tr")
    expect(rows).to_have_count(len(LABELS))
    for i, label in enumerate(LABELS):
        expect(rows.nth(i)).to_contain_text(re.compile(rf"{re.escape(label)}.* prompts.*\d to \d+.*\d to \d+"))

    run = ended.runs[-1]
    page.goto(f"{app.url}/runs")
    page.get_by_role("link", name=run.label, exact=True).click()
    expect(page.locator("h1:visible")).to_contain_text(run.label)
    expect(page.locator("#prompts tbody tr")).to_have_count(PROMPTS)
    expect(page.locator("#prompt .tok").first).to_be_visible()
    link = page.get_by_role("link", name="Open in MLflow")
    expect(link).to_be_visible(timeout=LONG)
    look_into_mlflow(app, app.repository.run(run.id), link.get_attribute("href") or "", name)


def look_into_mlflow(app: Application, run: RunView, link: str, experiment: str) -> None:
    """The link leads to MLflow's pages, and what they show is the run."""
    from mlflow import MlflowClient

    pages, _, copy = link.partition("/#/runs/")
    assert pages == "/mlflow"
    assert copy == run.mlflow_run_id
    pages = f"{app.url}{pages}"
    assert b"<html" in awaited(lambda: suppressed(read, pages), "MLflow's pages")
    served = json.loads(read(f"{pages}/api/2.0/mlflow/runs/get?run_id={copy}"))["run"]
    assert served["info"]["status"] == "FINISHED"

    client = MlflowClient(app.settings.resolved_mlflow_uri)
    found = client.get_run(copy).data
    assert found.params["setting.decoding.acceptance.kind"] == "fsd-reducible"
    assert found.params["setting.decoding.acceptance.threshold"] == "0.3"
    assert run.metrics is not None
    for name in ("accuracy", "acceptance_rate", "tokens_per_second"):
        assert found.metrics[name] == run.metrics[name]
    parent = client.get_run(found.tags["mlflow.parentRunId"])
    assert parent.info.run_name == experiment
    assert parent.data.tags["fsd.experiment_id"] == run.experiment_id


def suppressed(action: Any, *arguments: Any) -> Any:
    """The action's result; ``None`` while nothing answers."""
    with suppress(OSError):
        return action(*arguments)
    return None


def streamed(app: Application) -> Counter[int]:
    """How many pieces the worker wrote of each setting of the latest playground job."""
    with app.database.session(readonly=True) as session:
        newest = select(JobRow.id).where(JobRow.kind == "playground").order_by(JobRow.created_at.desc()).limit(1)
        job_id = session.scalars(newest).one()
    return Counter(chunk.setting for _, chunk in app.repository.chunks(job_id))


def every_token_tells_its_numbers(page: Page, app: Application) -> None:
    """What the Playground shows of two settings that have written."""
    expect(page.locator("#verdict")).to_contain_text("× as fast as SD · γ 5")
    pieces = streamed(app)
    assert set(pieces) == {0, 1}
    assert min(pieces.values()) > 1, f"a text came at once: {pieces}"
    for number in (1, 2):
        lane = page.locator(f"#lane-{number}")
        expect(lane.locator(".toks")).to_contain_text(re.compile(r"#### -?\d+"))
        expect(lane.locator(".live")).to_contain_text(re.compile(r"[1-9]\d*\s*tokens/s"), use_inner_text=True)
        kinds = lane.locator(".tok").evaluate_all("all => all.map(token => token.dataset.kind)")
        assert "strict" in kinds
        assert set(kinds) <= {"strict", "lenient", "correction", "bonus"}
    colour = "element => getComputedStyle(element).backgroundColor"
    token = page.locator("#lane-2 .tok.strict").first
    assert token.evaluate(colour) != page.locator("#lane-2 .toks").evaluate(colour)
    token.click()
    numbers = re.compile(r"divergence\d\.\d{4}p, target[\d.e-]+q, draft[\d.e-]+$")
    expect(page.locator("#tok-detail dl")).to_have_text(numbers)


def test_an_experiment_goes_on_without_its_page_and_without_the_web_process(page: Page, app: Application) -> None:
    with under_way(page, app, "Left alone", "0.1") as (_, name):
        another = page.context.new_page()
        page.close()
        worker = worker_process(app)
        app.kill()
        assert latest(app).status == "running"
    awaited(lambda: latest(app).status == "finished", "the end, while nothing serves the pages")
    app.start()
    assert awaited(app.worker, "the worker") == worker
    another.goto(f"{app.url}/experiments")
    card = another.locator("article.exp", has_text=name)
    card.get_by_role("link", name="Compare these 3 runs").wait_for(timeout=LONG)
    expect(another.locator(".fsd-worker")).to_contain_text("worker ready", timeout=LONG)
    experiment = latest(app)
    assert [run.status for run in experiment.runs] == ["finished"] * 3
    assert len(done(app, experiment.id)) == 3 * PROMPTS
    assert experiment.job_id is not None
    assert app.repository.job(experiment.job_id).attempts == 1
    assert awaited(app.worker, "the worker") == worker
