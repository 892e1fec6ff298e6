"""A proposal on its page: the form that it begins with, and comments on passages of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from sqlalchemy import delete, update

from dashboard.review.opened_proposal import (
    OpenedProposal,
    beside_html,
    compare_with_approved,
    conversation_html,
    wins_html,
)
from dashboard.review.propose_form import ProposeForm
from dashboard.tables.prompt_pairs import DiffPiece, pair_up, quoting
from dashboard.tables.run_record import calibration_text
from dashboard.ui.view import Act, Asked
from fsd_core.actions.action import Ask
from fsd_core.calibration.planning import CalibrationStep
from fsd_core.calibration.summary import calibration_status
from fsd_core.calibration.summary import verdict as verdict_of
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.errors import OutOfRange, Refused, Stale, UnknownName
from fsd_core.frozen import text_hash
from fsd_core.review.approvals import beside_approved
from fsd_core.review.blinding import passage_json, quoted_passages
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import get_settings
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import LONGEST_QUOTE, Commented, Requirements, read_event
from fsd_core.storage.tables import GenerationRow
from tests.tools.asking import asked
from tests.tools.built import built
from tests.tools.plausible import add_finished, finish, new_repository

ANN, BOB, EVE = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Eve", "viewer")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new_repository(tmp_path)
    add_finished(repository, limit=24)
    return repository


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    (experiment,) = repository.experiments()
    return list(repository.experiment(experiment.id).runs)


@pytest.fixture
def service(repository: Repository) -> ReviewService:
    return ReviewService(repository)


@pytest.fixture
def approved(service: ReviewService, runs: list[RunView]) -> str:
    """The id of an approved proposal of the strictest threshold."""
    use = service.describe(ANN, "Support chat", "", Requirements(margin=20))
    id = service.propose(ANN, use.id, [runs[3].id], [runs[0].id])
    review = service.review(id)
    service.submit_review(BOB, review, "approve", "", review.use.sequence)
    return id


@pytest.fixture
def candidate(service: ReviewService, runs: list[RunView], approved: str) -> str:
    """The id of an open proposal of the most lenient threshold, on which Ann votes no more."""
    id = service.propose(ANN, "support-chat", [runs[6].id], [runs[0].id])
    service.stop_voting(ANN, service.review(id))
    return id


def test_a_passage_is_kept_with_its_place_and_told_as_lost_when_it_is_gone(
    repository: Repository, service: ReviewService, runs: list[RunView], candidate: str
) -> None:
    run = runs[6].id
    (answer,) = repository.generations(run, position=2)
    start = len(answer.text) // 2
    quote = answer.text[start : start + 12]
    for near, text in ((start + 1, quote), (0, answer.text[:4])):
        service.comment(ANN, service.review(candidate), "Look.", None, run, 2, quote=(near, text))
    service.comment(ANN, service.review(candidate), "All of it.", None, run, 2)
    first, second, third = service.review(candidate).proposal.comments
    event = first.event
    assert isinstance(event, Commented)
    assert event.passage is not None
    assert answer.text[event.passage.start : event.passage.end] == event.passage.quote == quote
    assert event.passage.text == text_hash(answer.text)
    assert read_event(event.as_json()) == event
    assert "passage" not in third.event.as_json()

    def shown(person: Person) -> tuple[str, dict[str, object]]:
        review = service.review(candidate)
        quoted = quoted_passages(repository, person, review)
        return str(conversation_html(review.proposal, quoted)), passage_json(first, quoted.get(first.sequence))

    html, record = shown(ANN)
    assert html.count("<blockquote") == 2
    assert f"review?proposal={candidate}&amp;comment={first.sequence}" in html
    assert record["answer"] == {
        "run": run, "prompt": 3, "state": "there", "start": event.passage.start, "end": event.passage.end,
        "quote": quote,
    }  # fmt: skip
    html, record = shown(BOB)  # who has yet to vote on it
    assert ("<blockquote" in html, record["answer"]) == (False, {"run": run, "prompt": 3, "state": "hidden"})
    with repository._database.session() as session:
        session.execute(update(GenerationRow).where(GenerationRow.id == answer.id).values(text="Another text."))
    html, record = shown(EVE)
    assert (html.count("The quoted passage is gone"), html.count("comment=")) == (2, 0)
    with repository._database.session() as session:
        session.execute(delete(GenerationRow).where(GenerationRow.id == answer.id))
    assert shown(EVE)[0].count("The quoted passage is gone") == 2
    assert second.sequence != first.sequence


def test_a_passage_that_is_not_there_is_refused(
    repository: Repository, service: ReviewService, runs: list[RunView], candidate: str
) -> None:
    run = runs[6].id

    def comment(person: Person, run: str, position: int, quote: str) -> None:
        service.comment(person, service.review(candidate), "Look.", None, run, position, quote=(0, quote))

    with pytest.raises(Stale):
        comment(ANN, run, 2, "never written")
    with pytest.raises(Stale):
        comment(ANN, runs[5].id, 2, "a")
    with pytest.raises(Stale, match="100"):
        comment(ANN, run, 99, "a")
    with pytest.raises(OutOfRange, match="2,000"):
        comment(ANN, run, 2, "a" * (LONGEST_QUOTE + 1))
    with pytest.raises(Refused):
        comment(BOB, run, 2, "a")
    assert service.review(candidate).proposal.comments == []


def test_a_passage_is_marked_across_differences() -> None:
    pieces = [DiffPiece("one ", False), DiffPiece("two", True), DiffPiece(" three", False)]
    cut = quoting(pieces, 2, 9)
    assert [(piece.text, piece.changed, piece.quoted) for piece in cut] == [
        ("on", False, False), ("e ", False, True), ("two", True, True), (" t", False, True), ("hree", False, False),
    ]  # fmt: skip
    assert quoting(pieces, 4, 7)[1] == DiffPiece("two", True, True)


def test_a_candidate_stands_beside_what_is_approved(
    repository: Repository, service: ReviewService, runs: list[RunView], approved: str, candidate: str
) -> None:
    assert beside_approved(repository, service.review(approved)) is None
    beside = beside_approved(repository, service.review(candidate))
    assert beside is not None
    assert (beside.proposal.id, beside.candidate_runs, beside.approved_runs) == (
        approved, (runs[6].id,), (runs[3].id,),
    )  # fmt: skip
    ((ours, theirs),) = beside.requirements
    assert (ours.requirement, theirs.outcome) == ("margin", "met")
    assert ours.text != theirs.text
    html = str(beside_html(beside))
    assert (ours.text in html, theirs.text in html, runs[3].setting_id in html) == (True, True, True)
    pairing = pair_up(repository, runs[6].id, runs[3].id)
    won, lost = pairing.count(True, False), pairing.count(False, True)
    assert f"Of 24 prompts the candidate alone solves {won}, what is approved alone {lost}" in str(wins_html(pairing))
    record = compare_with_approved(Ask(get_settings(), ANN, repository), candidate, "outcome", 100, 0)
    assert (record["prompts"], record["candidate_alone"], record["approved_alone"]) == (24, won, lost)
    assert (record["found"], record["hidden"]) == (won + lost, 0)
    for pair in record["pairs"]:
        (answer,) = repository.generations(runs[6].id, position=pair["prompt"] - 1)
        assert pair["candidate"]["text"] == answer.text
        assert (pair["candidate"]["outcome"] == "correct") != (pair["approved"]["outcome"] == "correct")
    blind = compare_with_approved(Ask(get_settings(), BOB, repository), candidate, "all", 100, 0)
    assert blind["hidden"] > 0
    assert blind["found"] == 24 - blind["hidden"]
    with pytest.raises(UnknownName):
        compare_with_approved(Ask(get_settings(), ANN, repository), approved, "all", 100, 0)
    with pytest.raises(OutOfRange, match="100"):
        compare_with_approved(Ask(get_settings(), ANN, repository), candidate, "all", 101, 0)


def test_the_page_reads_both_and_opens_the_passage_of_a_comment(
    repository: Repository, service: ReviewService, runs: list[RunView], candidate: str
) -> None:
    def build() -> OpenedProposal:
        with gr.Blocks(analytics_enabled=False):
            return OpenedProposal(service)

    opened = built(build)
    (answer,) = repository.generations(runs[3].id, position=4)
    quote = answer.text[3:9]

    def question(values: dict[Any, Any], shown: dict[str, str], **address: str) -> Asked:
        asking = asked(values, {"proposal": candidate, **address}, shown=shown)
        asking.person = ANN
        return asking

    def pairs(beside: str = "The baseline", **address: str) -> str:
        values = dict.fromkeys([*opened.forms, *opened.fields], "") | {
            opened.beside: beside, opened.reader.filter: "all", opened.reader.size: 50, opened.reviewers: [],
        }  # fmt: skip
        first = question(values, {}, **address)
        opened.redraw(first, candidate)
        second = question(values | first.filled, first.shown, **address)  # the texts come with the second answer
        return str(opened.redraw(second, candidate)[opened.reader.pairs])

    assert "Approved: " not in pairs()
    html = pairs("What is approved")
    assert (html.count("<article"), "Candidate: " in html, "Approved: " in html) == (24, True, True)
    act = Act(
        key="1" * 32, name="comment on",
        data={"run": runs[3].id, "position": 4, "start": 3, "quote": quote, "words": "Odd."},
    )  # fmt: skip
    told = opened.comment_on_answer(act, question({}, {}))
    assert "Said: it stands among the comments" in str(told[opened.reader.answer])
    (comment,) = service.review(candidate).proposal.comments
    html = pairs(comment=str(comment.sequence))
    assert "Approved: " in html
    assert ('<mark class="quoted">' in html, html.count('class="pair linked"')) == (True, 1)


FOUND = tuple(candidates({"acceptance": ["fsd-reducible"], "threshold": "0.2", "draft_length": [5]}))
CONFIG = CalibrationConfig(name="Sums", decodings=FOUND, goal="speed", limit=64, choosing=16)


@pytest.fixture(scope="module")
def propose_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return new_repository(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def calibration(propose_repository: Repository) -> str:
    """The id of a calibration that has ended."""
    id = propose_repository.create_experiment(CONFIG, enqueue=False)
    while isinstance(
        step := calibration_status(propose_repository, CONFIG, propose_repository.experiment(id).runs), CalibrationStep
    ):
        ids = propose_repository.extend_experiment(id, CONFIG.round_runs(step.decodings, step.start, step.end))
        for run in propose_repository.runs(ids, limit=None):
            finish(propose_repository, run)
    return id


def opened(repository: Repository, calibration: str, rationale: str = "") -> tuple[ProposeForm, Asked]:
    def build() -> ProposeForm:
        with gr.Blocks(analytics_enabled=False):
            return ProposeForm(ReviewService(repository))

    form = built(build)
    run = max(repository.experiment(calibration).runs, key=lambda run: run.config.first)
    values = dict.fromkeys((form.use, *form.evidence.both)) | {form.rationale: rationale}
    question = asked(values, {"propose": run.setting_id, "calibration": calibration})
    form.redraw(question, SettingConfig(pair=run.pair, decoding=run.decoding).id)
    return form, question


@pytest.mark.wide
def test_the_rationale_begins_with_the_verdict_of_the_calibration(
    propose_repository: Repository, calibration: str
) -> None:
    verdict = calibration_text(propose_repository, propose_repository.experiment(calibration), verdict_of)
    assert verdict.startswith("Use ")
    form, question = opened(propose_repository, calibration)
    assert question.filled[form.rationale] == verdict


def test_what_was_typed_stays(propose_repository: Repository, calibration: str) -> None:
    form, question = opened(propose_repository, calibration, "Because.")
    assert form.rationale not in question.filled


def test_other_experiments_have_no_verdict(propose_repository: Repository) -> None:
    assert (
        calibration_text(
            propose_repository, propose_repository.experiment(add_finished(propose_repository, limit=3)), verdict_of
        )
        == ""
    )
    waiting = propose_repository.create_experiment(CONFIG, enqueue=False)
    assert calibration_text(propose_repository, propose_repository.experiment(waiting), verdict_of) == ""
