"""Uses, proposals, verdicts and aliases: what follows from the log, and who may add to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from fsd_core.errors import DataDamaged, InvalidSetting, Overtaken, Refused, UnknownName
from fsd_core.review import history
from fsd_core.review.ballots import left_side, next_position, tally
from fsd_core.review.evidence import evidence
from fsd_core.review.review_service import ReviewService, id_of
from fsd_core.roles import Person
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.database.tables import RunRow
from fsd_core.storage.records import RunView
from fsd_core.storage.review_events import Act, AliasMoved, Remarked, Requirements, UseDescribed, read_act
from tests.tools.copies import copy_of
from tests.tools.plausible import add_finished, new_repository

ANN, BOB, CAT, EVE = (
    Person("Ann", "author"), Person("Bob", "reviewer"), Person("Cat", "admin"), Person("Eve", "viewer"),
)  # fmt: skip
LENIENT = Requirements(margin=20, least_speedup=1.5, longest_answers=1.5)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with a finished experiment."""
    folder = tmp_path_factory.mktemp("measured")
    repository = new_repository(folder)
    add_finished(repository)
    repository._database.close()
    return folder / "fsd.db"


@pytest.fixture
def repository(measured: Path, database_url: str) -> Iterator[Repository]:
    with copy_of(measured, database_url) as repository:
        yield repository


@pytest.fixture
def desk(repository: Repository) -> ReviewService:
    return ReviewService(repository)


@pytest.fixture
def runs(repository: Repository) -> dict[str, RunView]:
    """Measured runs of 24 prompts by a word that tells them apart."""
    (experiment,) = repository.experiments()
    found = repository.experiment(experiment.id).runs
    names = ("target", "draft", "sd", "0.05", "0.1", "0.2", "0.4")
    return dict(zip(names, found, strict=True))


def proposed(
    desk: ReviewService, runs: dict[str, RunView], which: str = "0.05", requirements: Requirements = LENIENT
) -> str:
    try:
        use = desk.use("support-chat")
    except UnknownName:
        use = desk.describe(ANN, "Support chat", "Short answers", requirements, approvals=1)
    return desk.propose(ANN, use.id, [runs[which].id], [runs["target"].id], "As fast as we need", requirements)


def judge(desk: ReviewService, person: Person, proposal: str, verdict: Any = "approve", comment: str = "") -> None:
    case = desk.case(proposal)
    desk.judge(person, case, verdict, comment, case.use.sequence)


def test_an_approval_moves_the_alias(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    setting = runs["0.05"].setting_id
    use = desk.use("support-chat")
    assert (use.named("candidate"), use.named("approved")) == (setting, None)
    judge(desk, BOB, proposal, "approve", "Good.")
    use = desk.use("support-chat")
    assert use.named("approved") == setting
    assert use.proposals[proposal].state == "approved"
    assert [logged.act.kind for logged in use.log] == [
        "use-described", "proposed", "alias-moved", "judged", "alias-moved",
    ]  # fmt: skip
    moved = use.aliases["approved"].moved
    assert isinstance(moved.act, AliasMoved)
    assert (moved.who, moved.role, moved.act.former, moved.act.comment) == ("Bob", "reviewer", None, "Good.")
    assert moved.act.evidence == desk.case(proposal).hash


def test_the_evidence_is_held_against_each_requirement(desk: ReviewService, runs: dict[str, RunView]) -> None:
    told = Requirements(margin=0, least_speedup=50, longest_answers=0.5)
    case = desk.case(proposed(desk, runs, "0.05", told))
    (evidence,) = case.evidence
    assert (evidence.run.id, evidence.baseline.id) == (runs["0.05"].id, runs["target"].id)
    assert [finding.outcome for finding in evidence.findings] == ["undecided", "not met", "not met"]
    assert "on 24 prompts: Not enough prompts" in evidence.findings[0].told
    assert "times as fast [" in evidence.findings[1].told
    assert "times as long [" in evidence.findings[2].told
    assert case.open_requirements == ("margin", "least_speedup", "longest_answers")
    with pytest.raises(InvalidSetting, match="does not settle accuracy, speed, answers"):
        judge(desk, BOB, case.proposal.id)
    for requirement in case.open_requirements:
        desk.waive(ANN, desk.case(case.proposal.id), requirement, f"We can live with the {requirement}.")
    case = desk.case(case.proposal.id)
    assert case.open_requirements == ()
    waiver = case.proposal.waived("margin", case.hash)
    assert waiver is not None
    assert (waiver.who, waiver.words) == ("Ann", "We can live with the margin.")
    judge(desk, BOB, case.proposal.id)
    assert desk.use("support-chat").named("approved") == runs["0.05"].setting_id


def test_a_lossless_setting_keeps_the_accuracy_however_few_prompts_there_are(
    desk: ReviewService, repository: Repository, runs: dict[str, RunView]
) -> None:
    close = Requirements(margin=0)
    (exact,) = desk.case(proposed(desk, runs, "sd", close)).evidence[0].findings
    assert exact.outcome == "met"
    assert "on 24 prompts: Lossless" in exact.told
    measured_with(repository, runs["target"], target="t1", draft="d1")
    measured_with(repository, runs["sd"], target="t2", draft="d1")  # not the same target
    ours, theirs = repository.run(runs["sd"].id), repository.run(runs["target"].id)
    unlike = evidence(close, [ours], [theirs], repository.prompts([ours.id, theirs.id]))
    assert [finding.outcome for finding in unlike[0].findings] == ["undecided"]


def test_what_is_far_from_a_bound_is_met_or_not(desk: ReviewService, runs: dict[str, RunView]) -> None:
    case = desk.case(proposed(desk, runs, "0.4", Requirements(margin=2, least_speedup=1.01, longest_answers=5)))
    assert [finding.outcome for finding in case.evidence[0].findings] == ["not met", "met", "met"]


def test_nobody_judges_their_own_and_roles_are_kept(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    with pytest.raises(Refused, match="Nobody judges their own proposal"):
        judge(desk, Person("Ann", "admin"), proposal)
    for person in (EVE, Person("Dan", "author")):
        with pytest.raises(Refused, match=f"A verdict needs the role reviewer, and {person.name} is {person.role}"):
            judge(desk, person, proposal)
    case = desk.case(proposal)
    for forbidden in (
        lambda: desk.describe(EVE, "Mine"),
        lambda: desk.propose(EVE, case.use.id, [runs["0.1"].id], [runs["target"].id]),
        lambda: desk.remark(EVE, case, "Hello"),
        lambda: desk.waive(EVE, case, "margin", "So be it"),
        lambda: desk.withdraw(BOB, case),
        lambda: desk.describe(ANN, "Support chat", use_id=case.use.id, seen=case.use.sequence),
        lambda: desk.roll_back(BOB, case.use.id, "No", case.use.sequence),
    ):
        with pytest.raises(Refused):
            forbidden()
    assert desk.use(case.use.id).sequence == case.use.sequence


def test_changes_are_asked_for_and_block_until_taken_back(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    with pytest.raises(InvalidSetting, match="Say what is missing"):
        judge(desk, BOB, proposal, "request changes", " ")
    judge(desk, BOB, proposal, "request changes", "Measure seed 1 too.")
    judge(desk, CAT, proposal)
    case = desk.case(proposal)
    assert (case.standing.approved_by, case.standing.against) == (("Cat",), ("Bob",))
    assert case.use.named("approved") is None
    judge(desk, BOB, proposal)  # satisfied now
    assert desk.use(case.use.id).named("approved") == runs["0.05"].setting_id
    with pytest.raises(InvalidSetting, match="This proposal is approved: make a new one"):
        judge(desk, CAT, proposal, "decline", "Too late")


def test_a_use_may_need_two_approvals_of_different_people(desk: ReviewService, runs: dict[str, RunView]) -> None:
    desk.describe(ANN, "Support chat", approvals=2)
    proposal = proposed(desk, runs)
    judge(desk, BOB, proposal)
    judge(desk, BOB, proposal)
    assert desk.case(proposal).standing.approved_by == ("Bob",)
    assert desk.use("support-chat").named("approved") is None
    judge(desk, CAT, proposal)
    assert desk.use("support-chat").named("approved") == runs["0.05"].setting_id


def test_evidence_that_changed_makes_an_approval_stale(
    desk: ReviewService, runs: dict[str, RunView], repository: Repository
) -> None:
    desk.describe(ANN, "Support chat", approvals=2)
    baselines = [runs["target"].id, runs["sd"].id]
    proposal = desk.propose(ANN, "support-chat", [runs["0.05"].id], baselines, "", LENIENT)
    judge(desk, BOB, proposal)
    with repository._database.session() as session:  # a baseline that went on
        session.execute(update(RunRow).where(RunRow.id == runs["sd"].id).values(decoding_seconds=99.0))
    assert desk.case(proposal).standing[:2] == ((), ("Bob",))
    judge(desk, CAT, proposal)
    assert desk.use("support-chat").named("approved") is None  # one of two
    judge(desk, BOB, proposal)
    assert desk.use("support-chat").named("approved") is not None
    repository.delete_run(runs["sd"].id)
    case = desk.case(proposal)
    assert case.missing == (runs["sd"].id,)
    assert case.standing.stale == ("Bob", "Cat")
    another = desk.propose(ANN, "support-chat", [runs["0.1"].id], [runs["target"].id], "", LENIENT)
    repository.delete_run(runs["target"].id)
    with pytest.raises(InvalidSetting, match="Runs of its evidence were deleted"):
        judge(desk, BOB, another)


def test_an_approval_expires(desk: ReviewService, runs: dict[str, RunView]) -> None:
    desk.describe(ANN, "Support chat", approvals=2, days=30)
    proposal = proposed(desk, runs)
    judge(desk, BOB, proposal)
    case = desk.case(proposal)
    later = datetime.now(UTC) + timedelta(days=31)
    assert case.use.standing(case.proposal, case.hash, later)[:3] == ((), (), ("Bob",))
    assert case.use.standing(case.proposal, case.hash, datetime.now(UTC))[:3] == (("Bob",), (), ())


def test_rolling_back_names_what_was_approved_before(desk: ReviewService, runs: dict[str, RunView]) -> None:
    for which in ("0.05", "0.1", "0.2"):
        proposal = proposed(desk, runs, which)
        for requirement in desk.case(proposal).open_requirements:
            desk.waive(ANN, desk.case(proposal), requirement, "Known")
        judge(desk, BOB, proposal)
    settings = [runs[which].setting_id for which in ("0.05", "0.1", "0.2")]

    def roll_back() -> str | None:
        return desk.roll_back(CAT, "support-chat", "It repeats itself.", desk.use("support-chat").sequence)

    assert desk.use("support-chat").named("approved") == settings[2]
    assert [roll_back(), roll_back(), roll_back()] == [settings[1], settings[0], None]
    with pytest.raises(InvalidSetting, match="Nothing is approved"):
        roll_back()
    with pytest.raises(InvalidSetting, match="Say why"):
        desk.roll_back(CAT, "support-chat", " ", desk.use("support-chat").sequence)
    with pytest.raises(Overtaken, match="reload it"):
        desk.roll_back(CAT, "support-chat", "Again", 3)


def test_what_cannot_be_proposed(desk: ReviewService, runs: dict[str, RunView], repository: Repository) -> None:
    desk.describe(ANN, "Support chat")
    unmeasured = repository.experiment(repository.create_experiment(_other_sweep(), enqueue=False)).runs[0]
    a, b, target = (runs[name].id for name in ("0.05", "0.1", "target"))
    for own, baselines, told in (
        ([], [target], "rests on measured runs"),
        ([a, b], [target], "of several settings"),
        ([a], [a], "A baseline is of another setting"),
        ([a], ["f" * 32], "There is no run 'ffff"),
        ([a], [unmeasured.id], "has no figures yet"),
    ):
        with pytest.raises((InvalidSetting, UnknownName), match=told):
            desk.propose(ANN, "support-chat", own, baselines)
    desk.propose(ANN, "support-chat", [a], [target])
    with pytest.raises(InvalidSetting, match="under review for this use already"):
        desk.propose(ANN, "support-chat", [a], [target])
    with pytest.raises(InvalidSetting, match="There is a use of the name"):
        desk.describe(ANN, "support  CHAT!")
    with pytest.raises(InvalidSetting, match="has no letter or digit"):
        desk.describe(ANN, "日本")
    with pytest.raises(InvalidSetting, match="Approvals is 0: expected at least 1"):
        desk.describe(ANN, "Another", approvals=0)
    assert id_of("GSM8K-like traffic, on one L4 – Zürich") == "gsm8k-like-traffic-on-one-l4-zurich"


def _other_sweep() -> Any:
    from tests.tools.plausible import sweep

    return sweep("Not done")


def test_withdrawn_is_withdrawn(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    desk.withdraw(ANN, desk.case(proposal), "A better one is measured.")
    assert desk.case(proposal).proposal.state == "withdrawn"
    with pytest.raises(InvalidSetting, match="This proposal is withdrawn"):
        judge(desk, BOB, proposal)
    desk.remark(BOB, desk.case(proposal), "A pity.")  # words are still welcome


def test_comments_of_many_at_once_are_all_kept(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    case = desk.case(proposal)
    together = threading.Barrier(6)

    def say(i: int) -> None:
        together.wait()
        desk.remark(Person(f"P{i}", "author"), case, f"Word {i}")

    threads = [threading.Thread(target=say, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    remarks = desk.case(proposal).proposal.remarks
    assert {logged.act.words for logged in remarks if isinstance(logged.act, Remarked)} == {
        f"Word {i}" for i in range(6)
    }
    assert [logged.sequence for logged in desk.use("support-chat").log] == list(range(1, 10))


def test_a_verdict_on_an_outdated_page_is_refused(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    seen = desk.case(proposal).use.sequence
    desk.remark(CAT, desk.case(proposal), "Prompt 7 is worse now.")
    with pytest.raises(Overtaken, match="Since you opened this page Cat acted here"):
        desk.judge(BOB, desk.case(proposal), "approve", "", seen)
    stale = desk.case(proposal)
    desk.remark(CAT, stale, "And 9.")
    with pytest.raises(Overtaken, match="Somebody else acted here in the meantime"):
        desk.judge(BOB, stale, "approve", "", stale.use.sequence)  # between reading and writing
    assert desk.case(proposal).standing.approved_by == ()


def test_comments_answer_comments_and_stand_at_prompts(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    desk.remark(BOB, desk.case(proposal), "Why is it wrong?", run=runs["0.05"].id, position=7)
    first = desk.case(proposal).proposal.remarks[0]
    desk.remark(ANN, desk.case(proposal), "A slip.", reply_to=first.sequence)
    acts = [logged.act for logged in desk.case(proposal).proposal.remarks]
    assert [(act.position, act.reply_to) for act in acts if isinstance(act, Remarked)] == [
        (7, None),
        (None, first.sequence),
    ]
    with pytest.raises(InvalidSetting, match="The comment that this answers is not there"):
        desk.remark(ANN, desk.case(proposal), "What?", reply_to=1)
    with pytest.raises(InvalidSetting, match="Words"):
        desk.remark(ANN, desk.case(proposal), "  ")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE review_log SET who = 'Eve'",
        "DELETE FROM review_log",
        "INSERT OR REPLACE INTO review_log SELECT id, use_id, sequence, at, 'Eve', role, kind, act FROM review_log",
    ],
)
def test_the_database_refuses_to_change_the_log(desk: ReviewService, repository: Repository, statement: str) -> None:
    desk.describe(ANN, "Support chat")
    before = repository.review_log()
    with pytest.raises(Exception, match="the review log only grows"), repository._database.session() as session:
        session.execute(text(statement))
    assert repository.review_log() == before


def test_a_damaged_row_is_told(desk: ReviewService) -> None:
    with pytest.raises(DataDamaged, match="A row of the review log cannot be read"):
        read_act({"kind": "praised", "proposal": "x"})
    act: Act = UseDescribed(name="A use")
    assert read_act(act.as_json()) == act
    assert history.uses([]) == []
    assert desk.uses() == []
    with pytest.raises(UnknownName, match="There is no proposal 'ffff"):
        desk.case("f" * 32)


def test_blind_votes_are_counted_once_for_each_person_and_prompt(desk: ReviewService, runs: dict[str, RunView]) -> None:
    proposal = proposed(desk, runs)
    answered = dict.fromkeys(range(5), runs["0.05"].id)
    case = desk.case(proposal)
    assert sum(tally(case.proposal)) == 0
    assert tally(case.proposal).preference is None
    order = []
    for choice in ("setting", "setting", "baseline", "tie", "both bad"):
        case = desk.case(proposal)
        position = next_position(case.proposal, answered, "Bob")
        assert position is not None
        order.append(position)
        desk.vote(BOB, case, position, choice, left_side(case.proposal, "Bob", position))
    case = desk.case(proposal)
    assert sorted(order) == list(range(5))
    assert next_position(case.proposal, answered, "Bob") is None
    assert next_position(case.proposal, answered, "Ann") is not None
    assert tally(case.proposal) == (2, 1, 1, 1)
    share, interval = tally(case.proposal).preference or (0, (0, 0))
    assert share == pytest.approx(2 / 3)
    assert interval[0] < share < interval[1]
    seen = case.use.sequence
    desk.vote(BOB, case, order[2], "setting", "baseline")  # thinks better of it
    desk.vote(ANN, desk.case(proposal), 3, "tie", "baseline")
    assert tally(desk.case(proposal).proposal) == (3, 0, 2, 1)
    desk.judge(BOB, desk.case(proposal), "request changes", "More prompts.", seen)  # no vote is in a verdict's way
    sides = [left_side(case.proposal, name, position) for name in ("Ann", "Bob", "Cat") for position in range(200)]
    assert 250 < sides.count("setting") < 350
    others = dict.fromkeys(range(8), "0" * 32)
    firsts = {next_position(case.proposal, others, f"P{i}") for i in range(20)}
    assert len(firsts) > 3  # not everybody begins with the same prompt
    with pytest.raises(Refused):
        desk.vote(EVE, case, 0, "tie", "setting")
    with pytest.raises(InvalidSetting, match="Choice"):
        desk.vote(BOB, case, 0, "neither", "setting")  # pyright: ignore[reportArgumentType]


def measured_with(repository: Repository, run: RunView, **weights: str) -> None:
    with repository._database.session() as session:
        row = session.get(RunRow, run.id)
        assert row is not None
        row.provenance = {**(row.provenance or {}), "weights": weights}


def test_runs_of_other_weights_are_no_evidence(
    desk: ReviewService, repository: Repository, runs: dict[str, RunView]
) -> None:
    measured_with(repository, runs["target"], target="aa https://huggingface.co/a/b/tree/1", draft="cc")
    measured_with(repository, runs["0.05"], target="bb https://huggingface.co/a/b/tree/2", draft="cc")
    with pytest.raises(InvalidSetting, match=r"weights of the target \(aa .*tree/1 and bb .*tree/2\)"):
        proposed(desk, runs)


def test_what_is_approved_is_told_with_its_weights_also_after_a_rollback(
    desk: ReviewService, repository: Repository, runs: dict[str, RunView]
) -> None:
    def approved(name: str, draft: str) -> dict[str, str]:
        for each in ("target", name):
            measured_with(repository, runs[each], target="t1", draft=draft)
        judge(desk, BOB, proposed(desk, runs, name))
        return desk.approved_weights(desk.use("support-chat"))

    def rolled_back() -> dict[str, str]:
        desk.roll_back(CAT, "support-chat", "It repeats itself.", desk.use("support-chat").sequence)
        return desk.approved_weights(desk.use("support-chat"))

    assert approved("0.05", "d1") == {"target": "t1", "draft": "d1"}
    assert approved("0.05", "d2") == {"target": "t1", "draft": "d2"}  # the same setting, measured with another draft
    assert approved("0.1", "d3") == {"target": "t1", "draft": "d3"}
    for run in ("0.05", "0.1", "target"):
        repository.delete_run(runs[run].id)
    assert desk.approved_weights(desk.use("support-chat")) == {"target": "t1", "draft": "d3"}  # the log keeps it
    assert rolled_back() == {"target": "t1", "draft": "d2"}
    assert rolled_back() == {"target": "t1", "draft": "d1"}
    assert desk.use("support-chat").named("approved") == runs["0.05"].setting_id
    assert rolled_back() == {}


def test_an_approval_of_an_earlier_version_has_the_weights_of_its_runs(
    desk: ReviewService, repository: Repository, runs: dict[str, RunView]
) -> None:
    proposal = proposed(desk, runs)
    moved = AliasMoved(alias="approved", setting=runs["0.05"].setting_id, former=None, proposal=proposal)
    assert "weights" not in moved.as_json()  # as it was written then
    repository.append_acts("support-chat", "Bob", "reviewer", [moved], desk.use("support-chat").sequence)
    assert desk.approved_weights(desk.use("support-chat")) == runs["0.05"].weights != {}
    desk.roll_back(CAT, "support-chat", "No.", desk.use("support-chat").sequence)
    repository.append_acts("support-chat", "Bob", "reviewer", [moved], desk.use("support-chat").sequence)
    judge(desk, BOB, proposed(desk, runs, "0.1"))
    desk.roll_back(CAT, "support-chat", "No.", desk.use("support-chat").sequence)
    assert desk.approved_weights(desk.use("support-chat")) == runs["0.05"].weights


def test_weights_that_changed_or_are_not_known_are_not_approved(
    desk: ReviewService, repository: Repository, runs: dict[str, RunView]
) -> None:
    proposal = proposed(desk, runs)
    measured_with(repository, runs["0.05"], target="other")
    with pytest.raises(InvalidSetting, match="different weights of the target"):
        judge(desk, BOB, proposal)
    measured_with(repository, runs["0.05"])
    with pytest.raises(InvalidSetting, match=r"the run FSD .* was measured were not recorded, so nobody could tell"):
        judge(desk, BOB, proposal)
    assert desk.use("support-chat").named("approved") is None
