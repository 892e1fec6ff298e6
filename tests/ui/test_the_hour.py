"""The real thing: a newcomer's first hour with ``python app.py``, its worker and MLflow, from an empty home.

Each goal has a number of clicks, which docs/pages.md names. The pair is two folders that the test makes.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import select

import fsd_core
from fsd_core import accounts
from fsd_core.config.model_names import name_of_models
from fsd_core.review.review_service import ReviewService
from fsd_core.settings import Settings
from fsd_core.storage.opening import upgrade
from fsd_core.storage.records import ExperimentView, RunView
from fsd_core.storage.tables import JobRow
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.rows import FieldNames
from fsd_core.testing import save_toy_pair
from fsd_core.worker.pair_names import add_checked
from tests.tools import sizes
from tests.tools.counted_hand import Hand
from tests.tools.folds import unfold
from tests.tools.rule_boxes import rule_box
from tests.tools.settled import settled
from tests.tools.sizes import PATIENCE
from tests.tools.whole_application import Application
from tests.tools.worker_process import ROOT, free_port, until
from tests.ui.test_sign_in import PASSWORD, sign_in

pytestmark = pytest.mark.ui
T = TypeVar("T")
Recorded = TypeVar("Recorded", RunView, ExperimentView)

PROMPTS, TOKENS = 16, 3
SUMS = [{"frage": f"{i} + {i % 7} = ?", "antwort": str(i + i % 7)} for i in range(240)]
SUMS_FILE = json.dumps(SUMS).encode()
RUN = [
    sys.executable, "-m", "fsd_core", "run", "--pair", "mine", "--task", "sums", "--acceptance", "autoregressive",
    "--max-new-tokens", str(TOKENS), "--limit", str(len(SUMS)),
]  # fmt: skip
"""the page's run of the target alone, from the command line"""
LONG = 1000 * PATIENCE  # in milliseconds, as the browser counts


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and a draft."""
    folder = tmp_path_factory.mktemp("models")
    save_toy_pair(folder, noise=0.15)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Application]:
    """One application for all tests of this file, where people sign in; it is ready, and its worker is."""
    settings = Settings(
        home=tmp_path_factory.mktemp("home"), port=free_port(7960), threads=1, device="cpu", access="password",
        model_roots=str(models),
    )  # fmt: skip
    upgrade(settings.resolved_database_url)
    app = Application(settings)
    for name, role in (("Ann", "author"), ("Bob", "reviewer")):
        accounts.add_user(app.repository, name, role, PASSWORD)
    try:
        app.start()
        awaited(app.worker, "a worker")
        yield app
    finally:
        app.close()


@pytest.fixture(scope="module")
def token(app: Application) -> str:
    """What a program of Ann's shows."""
    return accounts.add_token(app.repository, "her program", "viewer", "Ann")


@pytest.fixture
def page(page: Page, app: Application) -> Page:
    """The window of Ann, who is new."""
    page.set_default_timeout(LONG)
    sign_in(page, app, "Ann")
    expect(page).to_have_url(f"{app.url}/")
    return page


@pytest.fixture
def fresh(fresh: Page, app: Application) -> Page:
    """The window of Bob, who reviews."""
    fresh.set_default_timeout(LONG)
    sign_in(fresh, app, "Bob")
    expect(fresh).to_have_url(f"{app.url}/")
    return fresh


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
        rule_box(page, baseline).uncheck()
    settings = 2 + thresholds.count(",") + 1
    expect(page.get_by_text(f"{settings} settings × 1 seed × {PROMPTS} prompts =")).to_be_visible()
    with closing(sqlite3.connect(app.settings.home / "fsd.db", isolation_level=None, timeout=PATIENCE)) as blocker:
        names = itertools.count(1)

        def start() -> None:
            page.get_by_label("Name").fill(f"{name} {next(names)}")
            page.get_by_role("button", name="Start experiment").click()

        called = met_midway(blocker, start, lambda: app.repository.experiments(limit=1)).name
        card = page.locator("article.exp", has_text=called)
        line = re.compile(r"^Bundled arithmetic pair · arithmetic · [1-9]\d* of \d+ texts .*, .* left$")
        expect(card.locator(".exp-foot p")).to_have_text(line, timeout=LONG)
        expect(card.get_by_role("progressbar")).to_be_visible()
        yield card, called
        blocker.execute("ROLLBACK")


def met_midway(
    blocker: sqlite3.Connection, start: Callable[[], None], found: Callable[[], Sequence[Recorded]]
) -> Recorded:
    """Start what is ``found`` first then, until one is met in its midst; the database stays locked for writers.

    One is not met if the test was paused for so long that it ended.
    """
    while True:
        former = [one.id for one in found()]
        start()

        def three_prompts(former: Sequence[str] = former) -> Recorded | None:
            blocker.execute("BEGIN IMMEDIATE")
            if (newest := [*found()][:1]) and newest[0].id not in former and newest[0].prompts_done >= 3:
                return newest[0]
            blocker.execute("ROLLBACK")
            return None

        if (newest := awaited(three_prompts, "three prompts")).status == "running":
            return newest
        blocker.execute("ROLLBACK")


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


def read(url: str, token: str) -> Any:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"}), timeout=PATIENCE) as answer:
        assert answer.status == 200
        return answer.read()


def measured_though_its_worker_dies(hand: Hand, page: Page, app: Application) -> ExperimentView:
    """Starts the form's experiment, kills the worker in its midst, and waits for the end: nothing is lost or done
    twice."""
    start = page.get_by_role("button", name="Start experiment")
    with closing(sqlite3.connect(app.settings.home / "fsd.db", isolation_level=None, timeout=PATIENCE)) as blocker:
        experiment = met_midway(blocker, start.click, lambda: app.repository.experiments(limit=1)).id
        hand.count += 1  # one click, also where a pause of the machine made more of them
        killed = app.worker_process()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        before = done(app, experiment)
        blocker.execute("ROLLBACK")
    awaited(lambda: app.repository.experiment(experiment).status == "finished", "the end of the experiment")
    after, ended = done(app, experiment), app.repository.experiment(experiment)
    assert 3 <= len(before) < len(after) == len(ended.runs) * PROMPTS
    assert {key: after[key] for key in before} == before
    assert {run.status for run in ended.runs} == {"finished"}
    assert ended.job_id is not None
    job = app.repository.job(ended.job_id)
    assert (job.status, job.attempts, job.lost_workers) == ("finished", 2, 1)
    assert awaited(app.worker, "another worker") != killed
    target, sd = (
        next(run for run in ended.runs if run.decoding.acceptance.kind == kind)
        for kind in ("autoregressive", "speculative")
    )
    written = [[text for (run, _), (_, _, text) in sorted(after.items()) if run == r.id] for r in (target, sd)]
    assert written[0] == written[1], "greedy SD writes what the target writes"
    return ended


@pytest.mark.wide
def test_a_newcomer_reaches_each_goal_in_few_clicks(page: Page, app: Application, token: str, models: Path) -> None:
    hand = Hand(page)
    with hand.reaching("A first text"):
        page.goto(app.url)
        hand.click(page.get_by_role("link", name="Try it on a prompt"))
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
        hand.upload(page.get_by_label("File of prompts"), "sums.json", SUMS_FILE)
        expect(page.locator("#own-answer")).to_contain_text(f"sums: {len(SUMS)} prompts in order. Scorer: Number.")
        hand.click(page.get_by_role("button", name="Add", exact=True))
        expect(page.locator("#own-answer")).to_contain_text(f"is in the list of tasks, with {len(SUMS)} prompts.")
        expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("^sums"))

    ask_for_little(page)
    with hand.reaching("Compare and export"):
        experiment = measured_though_its_worker_dies(hand, page, app)
        compared = page.locator("article.exp").first.get_by_role("link", name=re.compile("^Compare these"))
        expect(compared).to_be_visible(timeout=LONG)
        hand.click(compared)
        expect(page).to_have_url(re.compile(r"/compare\?runs=.*baseline="))
        rows = page.get_by_role("table", name="Answers of the runs").locator("tbody tr")
        expect(rows).to_have_count(len(experiment.runs))
        with page.expect_download() as download:
            hand.click(page.get_by_role("link", name="Export CSV"))
        assert all(run.id in download.value.path().read_text() for run in experiment.runs)

    with hand.reaching("The same in MLflow"):
        hand.click(page.get_by_role("link", name="Runs", exact=True))
        run = experiment.runs[-1]
        hand.click(page.get_by_role("link", name=run.label, exact=True).first)
        expect(page.locator("#prompts tbody tr")).to_have_count(PROMPTS)
        expect(page.locator("#prompt .tok").first).to_be_visible()
        link = page.get_by_role("link", name="Open in MLflow")
        expect(link).to_be_visible(timeout=LONG)
        hand.count += 1  # the click on the link, whose page is MLflow's
        look_into_mlflow(app, token, app.repository.run(run.id), link.get_attribute("href") or "", experiment.name)
    with hand.reaching("The same from the command line and Python, with Ctrl-C in the middle"):
        the_same_without_a_page(app, models, experiment.runs[0])


@pytest.mark.long
def test_the_setting_that_is_found_is_proposed_approved_and_fetched(
    page: Page, fresh: Page, app: Application, token: str, models: Path
) -> None:
    """On a machine that pauses no setting may be faster than exact SD, and then none is proposed."""
    pair = name_of_models({role: str(models / role) for role in ("target", "draft")})
    add_checked(app.repository, "mine", pair, "Ann")  # those of the test above, also where it is not run
    solvable = json.dumps([{"frage": f"{i} + 1 = ?", "antwort": "(?s)."} for i in range(260)]).encode()  # by a toy, too
    sums = CustomTask.of("sums", check(solvable, "regex", FieldNames("frage", "antwort")))
    keep(app.repository, sums, "Ann")
    page.goto(f"{app.url}/experiments")
    hand = Hand(page)
    hand.choose(page.get_by_label("Model pair", exact=True), "mine")
    settled(page)  # the tasks are those of the pair by then
    hand.choose(page.get_by_label("Task", exact=True), sums.title)
    expect(page.get_by_label("Task", exact=True)).to_have_value(sums.title)
    ask_for_little(page)
    with hand.reaching("The fastest setting within 2 points"):
        page.get_by_label("Minutes").fill("600")  # so that no pause of the machine ends it
        unfold(page, "More")
        page.get_by_label("Choose draft lengths by replay").uncheck()
        hand.click(page.get_by_role("button", name="Find the setting"))
        found = page.locator("article.exp").first
        expect(found.locator(".exp-verdict")).to_contain_text("Use ", timeout=LONG)
        expect(found.get_by_role("link", name="Propose")).to_be_visible()

    assert ReviewService(app.repository).uses() == [], "the first use is made with the proposal"
    with hand.reaching("Propose, approve, fetch"):
        hand.click(found.get_by_role("link", name="Propose"))
        hand.fill(page.get_by_label("Name"), "Sums")
        hand.click(page.get_by_role("button", name="Propose", exact=True))
        hand.click(page.get_by_role("link", name="Open it"))
        expect(page.get_by_text("This proposal is your own")).to_be_visible()
        fresh.goto(page.url)
        hand.click(fresh.get_by_role("button", name="Approve", exact=True))
        told = fresh.locator(".fsd-notice", has_text="Approved: the setting is the approved one for Sums now.")
        expect(told).to_be_visible()
    approved = json.loads(read(f"{app.url}/api/v1/uses/sums/approved", token))
    assert approved["setting"] == ReviewService(app.repository).use("sums").named("approved")


def ask_for_little(page: Page) -> None:
    """Make the form's measurements short, which is no part of a goal."""
    for label, few in (("Thresholds", "0.3"), ("Draft lengths", "3"), ("Longest answer", TOKENS)):
        page.get_by_label(label).first.fill(str(few))
    page.get_by_label("Prompts", exact=True).fill(str(PROMPTS))
    for baseline in ("Draft alone", "Block"):
        rule_box(page, baseline).uncheck()
    expect(page.get_by_text(f"3 settings × 1 seed × {PROMPTS} prompts =")).to_be_visible()


def the_same_without_a_page(app: Application, models: Path, run: RunView) -> None:
    """The command line and Python write what the page's run of the target alone wrote."""
    written = [generation.text for generation in app.repository.generations(run.id)]
    command = RUN
    if sizes.LONG:  # tests/integration/test_cli_runs.py interrupts one in the gate
        command = [sys.executable, "-m", "fsd_core", "resume", run_that_ctrl_c_interrupts(app).id]
    done = subprocess.run(command, cwd=ROOT, env=app.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    copy = app.repository.runs(limit=1)[0]
    assert (copy.pair, copy.status) == (run.pair, "finished")
    assert [generation.text for generation in app.repository.generations(copy.id)][:PROMPTS] == written
    decoder = fsd_core.Decoder(
        fsd_core.load_pair(models, device="cpu"), acceptance="autoregressive", max_new_tokens=TOKENS
    )
    assert [decoder.generate(row["frage"]).text for row in SUMS[:3]] == written[:3]


def run_that_ctrl_c_interrupts(app: Application) -> RunView:
    """A run of the command line, which keeps what it has done and says how to go on."""
    environment = app.environment | {"PYTHONFAULTHANDLER": "1"}
    with closing(sqlite3.connect(app.settings.home / "fsd.db", isolation_level=None, timeout=PATIENCE)) as blocker:
        processes: list[subprocess.Popen[str]] = []

        def start() -> None:
            for ended in processes:
                ended.communicate()
            processes.append(subprocess.Popen(RUN, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))

        def newest() -> list[RunView]:
            if processes and (status := processes[-1].poll()):
                raise AssertionError(f"The command ended with status {status}: {processes[-1].communicate()[1]}")
            return app.repository.runs(limit=1)

        try:
            run = met_midway(blocker, start, newest)
        except AssertionError as error:
            processes[-1].send_signal(signal.SIGABRT)  # it says where it is
            error.add_note(f"Commands: {len(processes)}. The last one said: {processes[-1].communicate()[1]}")
            raise
        process = processes[-1]
        process.send_signal(signal.SIGINT)
        blocker.execute("ROLLBACK")
    _, told = process.communicate(timeout=PATIENCE)
    run = app.repository.run(run.id)
    assert process.returncode == 130
    assert told.endswith(f"continue with `python -m fsd_core resume {run.id}`.\n")
    assert (run.status, 3 <= run.prompts_done < len(SUMS)) == ("stopped", True)
    return run


def look_into_mlflow(app: Application, token: str, run: RunView, link: str, experiment: str) -> None:
    """The link leads to MLflow's pages, and what they show is the run."""
    from mlflow import MlflowClient

    pages, _, copy = link.partition("/#/runs/")
    assert pages == "/mlflow"
    assert copy == run.mlflow_run_id
    pages = f"{app.url}{pages}"
    assert b"<html" in awaited(lambda: suppressed(read, pages, token), "MLflow's pages")
    served = json.loads(read(f"{pages}/api/2.0/mlflow/runs/get?run_id={copy}", token))["run"]
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


@pytest.mark.wide
def test_an_experiment_goes_on_without_its_page_and_without_the_web_process(page: Page, app: Application) -> None:
    with under_way(page, app, "Left alone", "0.1") as (_, name):
        another = page.context.new_page()
        page.close()
        worker = app.worker_process()
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
