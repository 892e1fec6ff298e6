"""What pages say: what to do next where there is nothing, how sure a figure is, and why something is as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import update

from dashboard.compare.export import export_routes
from dashboard.review.review_page import log_routes
from fsd_core.config import RunConfig
from fsd_core.errors import DatabaseUnavailable
from fsd_core.metrics import conditions_of
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import GenerationRow, MeasurementSessionRow
from fsd_plugins.reports.page import routes as report_routes
from tests.tools.every_page import every_page
from tests.tools.plausible import PROVENANCE, do_prompts, finish, sweep
from tests.tools.real_tokens import TEXTS, add_run
from tests.tools.shown_page import Application, ShownPage

ANN, BOB, CAT = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Cat", "admin")
HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"


@pytest.fixture
def runs(repository: Repository) -> Sequence[RunView]:
    return repository.experiments()[0].runs


# --- nothing yet -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "sentence", "leads"),
    [
        ("experiments", "No experiment yet", "playground"),
        ("compare", "Nothing to compare yet", "experiments"),
        ("runs", "No runs yet", "experiments"),
        ("settings", "No setting was measured yet", "experiments"),
        ("review", "No use yet", "settings"),
        ("reports", "No reports yet", "compare"),
        ("theory", "No run has ended yet: start an experiment, and choose its runs here.", None),
        ("", "Find it for your prompts", "experiments"),
        ("playground", "Choose Generate to begin.", None),
        ("people", "No tokens yet", None),
    ],
)
def test_where_there_is_nothing_a_page_says_what_to_do(
    application: Application, empty: Repository, address: str, sentence: str, leads: str | None
) -> None:
    page = application.open(address, ANN)
    assert sentence in page.text
    states = [one.text for one in page.elements("div", "section") if "fsd-empty" in (one.attributes.get("class") or "")]
    assert all(len(text) > len(sentence) for text in states if sentence in text), "more than that nothing is there"
    assert leads is None or leads in page.links()


@pytest.mark.parametrize(
    ("address", "sentence", "leads"),
    [
        ("runs?run=unknown", "There is no run 'unknown'", "runs"),
        ("runs?experiment=unknown", "There is no experiment 'unknown'", "runs"),
        ("runs?search=nothing+such", "No run matches", "runs"),
        ("compare?runs=unknown", "is not in this database: unknown", "compare?experiment="),
        ("compare?experiment=unknown", "There is no experiment 'unknown'", "compare?experiment="),
        *(
            (f"settings?setting={id}", "There is no setting", "settings")
            for id in ("unknown", "f" * 16, "%3Cscript%3E")
        ),
        ("review?use=unknown", "There is no use 'unknown'", "review"),
        ("review?proposal=unknown", "There is no proposal 'unknown'", "review"),
        ("review?propose=unknown", "There is no setting 'unknown'", "review"),
        ("reports?report=unknown", "There is no report 'unknown'", "reports"),
    ],
)
def test_an_address_that_leads_nowhere_says_so_and_where_to_go(
    application: Application, repository: Repository, address: str, sentence: str, leads: str
) -> None:
    page = application.open(address, ANN)
    assert sentence in page.text
    assert any(link.startswith(leads) for link in page.links()), "beside the navigation, whose links begin with ./"
    assert "Playground Experiments Compare Runs Settings Review Reports Theory" in page.text


def test_a_page_whose_database_does_not_answer_says_so_and_opens_later(
    application: Application, repository: Repository, runs: Sequence[RunView], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("The database does not answer.")

    pages = every_page(repository)
    for name in ("experiments", "compare", "runs", "run", "settings", "review", "proposal", "reports", "theory"):
        with monkeypatch.context() as patch:
            patch.setattr(repository._database, "session", failing)
            page = application.open(pages[name], ANN)
            assert "The database does not answer." in page.text, name
        page.look()
        if name not in ("settings", "runs", "run", "review", "proposal", "reports"):
            assert "The database does not answer." not in page.text, name


# --- figures ---------------------------------------------------------------------------------------------------------


def test_accuracy_is_told_with_its_interval(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    run = runs[2]
    solved = sum(one.outcome == "correct" for one in repository.generations(run.id))
    low, high = wilson(solved, 24)
    ends = f"{100 * low:.0f} to {100 * high:.0f}"
    assert f"Accuracy {100 * solved / 24:.0f} % 95 %: {ends}" in application.open(f"runs?run={run.id}", ANN).text
    page = application.open(f"compare?experiment={run.experiment_id}", ANN)
    assert ends in page.rows("Metrics of the runs")[2]


def test_accuracy_is_told_while_an_experiment_runs(application: Application, repository: Repository) -> None:
    running = repository.create_experiment(sweep("Under way"))
    page = application.open("experiments", ANN)
    assert "0/24" in page.text
    generations = do_prompts(repository, repository.experiment(running).runs[0], 10)
    solved = sum(generation.outcome == "correct" for generation in generations)
    low, high = wilson(solved, 10)
    page.look()
    assert "10/24" in page.text
    assert f"{10 * solved} % {100 * low:.0f} to {100 * high:.0f}" in page.text


def test_a_run_that_is_slower_than_the_target_alone_says_why(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    target, sd = runs[0], runs[2]
    why = "Slower than the target alone."
    assert why not in application.open(f"runs?run={sd.id}", ANN).text
    with repository._database.session() as session:
        slower = update(GenerationRow).where(GenerationRow.run_id == sd.id).values(seconds=3 * GenerationRow.seconds)
        session.execute(slower)
    _, _, reason = application.open(f"runs?run={sd.id}", ANN).text.partition(why)
    assert re.match(r" \d\.\d+× the baseline's time per answer: the \w+ is too dear\.", reason)
    assert why not in application.open(f"runs?run={target.id}", ANN).text


def test_a_run_that_failed_tells_why(application: Application, repository: Repository) -> None:
    why = "The folder of the <b>pair</b> is empty: put the weights back."
    run = repository.create_run(RunConfig(limit=3))
    repository.fail_run(run, why)
    page = application.open(f"runs?run={run}", ANN)
    assert why in page.text
    assert "failed" in page.elements("h1")[0].text


def test_an_experiment_tells_which_of_its_runs_failed_and_why(application: Application, repository: Repository) -> None:
    id = repository.create_experiment(sweep("<i>First</i>", limit=3))
    page = application.open("experiments", ANN)
    job = repository.claim(("experiment",), 600)
    assert job is not None
    first, second, *others = repository.experiment(id).runs
    finish(repository, first)
    do_prompts(repository, second, 2)
    page.look()
    assert "5 of 21 texts" in page.text
    repository.fail_run(second.id, "The <b>draft</b> model is damaged.")
    for run in others:
        finish(repository, run)
    repository.finish_job(job.id, str(job.claim_token), "finished")
    page.look()
    assert "Draft alone: The <b>draft</b> model is damaged." in page.text
    assert "Resume" in [one.text for one in page.elements("button")]
    compared = application.open(f"compare?experiment={id}", ANN)
    assert "1 run failed" in compared.text
    assert len(compared.rows("Answers of the runs")) == 7


def test_a_run_that_went_on_with_other_threads_says_so(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    run = runs[2]
    with repository._database.session() as session:
        conditions = conditions_of(PROVENANCE | {"threads": 1})
        session.add(sitting := MeasurementSessionRow(run_id=run.id, conditions=conditions))
        session.flush()
        last = GenerationRow.run_id == run.id, GenerationRow.position == 23
        session.execute(update(GenerationRow).where(*last).values(sitting_id=sitting.id))
    page = application.open(f"runs?run={run.id}", ANN)
    assert "Prompts 1 to 23 were measured with 2 threads, the other with 1 thread." in page.text
    assert "differ in number of threads" in page.html
    page = application.open(f"compare?experiment={run.experiment_id}", ANN)
    assert "The runs differ in number of threads (1, 2)" in page.text


def test_a_run_is_read_token_by_token_as_text(application: Application, repository: Repository, tmp_path: Path) -> None:
    run = add_run(repository, tmp_path)
    page = application.open(f"runs?run={run}", ANN)
    assert "FSD reducible" in page.elements("h1")[0].text
    assert "Accuracy 50 %" in page.text
    for position, text in enumerate(TEXTS):
        page.want(prompt=position)
        assert "".join(text.split()) in "".join(page.part("prompt").split())  # each token is an element
    assert page.elements("img") == []
    page.choose("Outcome", "Wrong")
    assert len(page.rows("Prompts")) == 1
    page.type("Search", "no such words")
    assert "No prompt matches" in page.part("prompts")
    assert "Target passes" not in page.text
    page.unfold("All figures")
    assert "Target passes" in page.text
    assert "torch 2.13.0" in page.text


# --- comparisons -----------------------------------------------------------------------------------------------------


def test_unknown_runs_of_a_link_are_named_and_the_rest_is_shown(
    application: Application, runs: Sequence[RunView]
) -> None:
    page = application.open(f"compare?runs={runs[0].id},nothing-of-ours,{'f' * 32}&baseline=neither", ANN)
    assert len(page.rows("Answers of the runs")) == 1
    assert "2 runs of the link are not in this database" in page.text
    assert "nothing-of-ours" in page.text
    assert "The baseline neither is not among the chosen runs" in page.text


def test_the_answer_of_a_comparison_is_a_sentence_with_the_way_on(
    application: Application, runs: Sequence[RunView]
) -> None:
    page = application.open(f"compare?experiment={runs[0].experiment_id}", ANN)
    assert "No lossy setting is within 2 points of the target yet" in page.part("answer")
    assert "Fastest without loss: SD · γ 5" in page.part("answer")
    (again,) = (link for link in page.links() if link.startswith("experiments?again="))
    assert "3 settings × 1 seed × 600 prompts" in application.open(again, ANN).text  # all that the task has


def test_a_draft_alone_tells_that_its_likelihood_is_its_own(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open(f"compare?experiment={runs[0].experiment_id}", ANN)
    assert "under the draft" in next(row for row in page.rows("Metrics of the runs") if "Draft alone" in row)
    page.choose("Details", "Settings")
    assert "Threshold" in headings(page)
    assert "Temperature" not in headings(page)
    page.type("Differences only", False)
    assert "Temperature" in headings(page)


def headings(page: ShownPage) -> list[str]:
    return [one.text for one in page.elements("th")]


# --- settings, reports, the team -------------------------------------------------------------------------------------


def test_settings_are_searched_and_opened(application: Application, runs: Sequence[RunView]) -> None:
    page = application.open("settings", ANN)
    assert len(page.rows("Settings")) == 7
    page.type("Search", "js ≤ 0.2")
    (line,) = page.rows("Settings")
    assert line.startswith("FSD reducible · js ≤ 0.2 · γ 5")
    page.type("Search", "nothing of that kind")
    assert "No setting matches" in page.text
    opened = application.open(f"settings?setting={runs[5].setting_id}", ANN)
    assert opened.elements("h1")[0].text == "FSD reducible · js ≤ 0.2 · γ 5"
    (line,) = opened.rows("Runs of the setting")
    assert "24/24" in line
    assert re.search(r"1\.\d+ × \d\.\d+ to \d\.\d+ 1\.\d+ ×", line)
    assert "Nobody proposed this setting yet" in opened.text
    assert any(link.startswith("compare?runs=") for link in opened.links())


def test_what_was_decided_is_told_and_is_no_markup(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    service, ann = ReviewService(repository), Person(HOSTILE, "author")
    use = service.describe(ann, HOSTILE, HOSTILE, Requirements(margin=20))
    proposal = service.propose(ann, use.id, [runs[3].id], [runs[0].id], HOSTILE)
    service.comment(BOB, service.review(proposal), HOSTILE)
    for requirement in service.review(proposal).open_requirements:
        service.waive(BOB, service.review(proposal), requirement, HOSTILE)
    review = service.review(proposal)
    service.submit_review(BOB, review, "approve", HOSTILE, review.use.sequence)
    page = application.open(f"settings?setting={runs[3].setting_id}", ANN)
    assert f"approved for {HOSTILE}" in page.text
    log = page.rows("What was decided")
    assert "approved: nothing →" in log[0]
    assert HOSTILE in log[0]
    assert "proposed" in log[-1]
    assert page.elements("img") == []
    (listed,) = (row for row in application.open("settings", ANN).rows("Settings") if HOSTILE in row)
    assert runs[3].label in listed


def test_a_report_is_read_tells_what_changed_since_and_is_deleted_by_who_may(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    page = application.open(f"compare?experiment={runs[0].experiment_id}", ANN)
    page.unfold("Save as a report")
    page.type("Report title", "Which threshold")
    page.type("Report text", f"## Finding\n\nKeep **js ≤ 0.2**.\n\n<script>alert(1)</script> {HOSTILE}")
    page.press("Save the report")
    (saved,) = repository.reports()
    address = f"reports?report={saved.id}"
    report = application.open(address, BOB)
    assert "Finding" in [one.text for one in report.elements("h2", "h3")]
    assert f"<script>alert(1)</script> {HOSTILE}" in report.text
    assert [
        one.attributes["src"] for one in report.elements("img") if "export/report.svg" not in str(one.attributes)
    ] == []
    assert "Delete" not in [one.text for one in report.elements("button")]
    gone = runs[1]
    repository.delete_run(gone.id)
    report.look()
    assert "Since then 1 of its runs was deleted" in report.text
    assert gone.id in report.text
    own = application.open(address, ANN)
    own.click("Delete")
    assert "There is no report" in own.text
    own.again()
    assert "There is no report" in own.text
    assert "No reports yet" in application.open("reports", ANN).text


def test_what_the_evidence_leaves_open_is_answered_by_name(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    service = ReviewService(repository)
    service.describe(ANN, "Anything goes")
    page = application.open(f"review?proposal={service.propose(ANN, 'anything-goes', [runs[6].id], [runs[0].id])}", BOB)
    (line,) = page.rows("Requirements")
    assert "not met" in line
    page.press("Approve")
    assert "The evidence does not settle accuracy: measure more prompts" in page.text
    page.type("Why that is acceptable", "A toy for the lobby.")
    page.press("Answer for it")
    assert "Bob: A toy for the lobby." in page.rows("Requirements")[0]
    page.press("Approve")
    assert "approved" in page.elements("h1")[0].text
    with pytest.raises(AssertionError, match="0 buttons 'Both bad'"):
        page.press("Both bad")


def test_a_setting_is_proposed_for_the_first_use_which_the_form_makes(
    application: Application, repository: Repository, runs: Sequence[RunView]
) -> None:
    page = application.open(f"review?propose={runs[3].setting_id}", ANN)
    assert "Propose FSD reducible · js ≤ 0.05" in page.elements("h1")[0].text
    with pytest.raises(AssertionError, match="0 fields 'Use'"):
        page.field("Use")
    page.press("Propose")
    assert "fsd-notice bad" in page.html
    assert repository.review_log() == []
    page.type("Name", "Support chat")
    page.type("Accuracy", "10")
    page.type("Rationale", HOSTILE)
    page.press("Propose", lost=True)
    assert "Proposed. Open it" in page.text
    use = ReviewService(repository).use("support-chat")
    assert len(use.proposals) == 1
    with pytest.raises(AssertionError, match="0 fields 'Name'"):
        page.field("Name")
    shown = application.open(f"review?proposal={next(iter(use.proposals))}", BOB)
    assert re.match(r"Accuracy undecided \S+ points \[.*\] on 24 prompts: Not enough", shown.rows("Requirements")[0])
    assert HOSTILE in shown.text


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(application: Application, repository: Repository) -> TestClient:
    app = FastAPI()
    for router in (export_routes(repository), report_routes(repository, Settings()), log_routes(repository)):
        app.include_router(router)
    return TestClient(app)


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("", 400, "No run is named"),
        ("runs=,%20,", 400, "No run is named"),
        (f"runs={'f' * 32},nonsense", 404, "None of these runs is in this database"),
        ("runs=%00%27%3Cb%3E", 404, "None of these runs is in this database"),
    ],
)
@pytest.mark.parametrize("name", ["csv", "html", "tex", "matched.csv"])
def test_an_export_that_cannot_be_is_told(files: TestClient, name: str, query: str, status: int, sentence: str) -> None:
    answer = files.get(f"/export/comparison.{name}?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert answer.text.startswith(sentence)


def test_an_export_has_every_run_and_follows_the_baseline(
    application: Application, files: TestClient, runs: Sequence[RunView]
) -> None:
    page = application.open(f"compare?experiment={runs[0].experiment_id}", ANN)
    for baseline in (0, 2):
        page.choose("Baseline", runs[baseline].label)
        (link,) = (link for link in page.links() if link.startswith("export/comparison.csv"))
        answer = files.get(f"/{link}")
        assert "comparison.csv" in answer.headers["content-disposition"]
        head, *lines = answer.content.decode("utf-8-sig").splitlines()
        marked = head.split(",").index("baseline")
        assert [run.id for run in runs] == [line.split(",")[head.split(",").index("run")] for line in lines]
        assert [line.split(",")[marked] == "True" for line in lines] == [run is runs[baseline] for run in runs]


@pytest.mark.parametrize("address", ["/export/report.html?report=unknown", "/export/review.csv?use=unknown"])
def test_a_file_of_something_unknown_is_told(files: TestClient, address: str) -> None:
    answer = files.get(address)
    assert answer.status_code == 404
    assert answer.text.startswith("There is no ")
