"""The pages of a review show one state, and what a person says is about what they were shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import update

from dashboard.review.blind_vote import pairing_of
from fsd_core.errors import UnknownName
from fsd_core.review.approvals import check_setting
from fsd_core.review.history import Proposal
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements, written_text
from fsd_core.storage.tables import GenerationRow, RunRow
from tests.tools.shown_page import Application, ShownPage

ANN, BOB, CAT = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Cat", "admin")
BACK = "Roll back to what was approved before"


@pytest.fixture
def service(repository: Repository) -> ReviewService:
    return ReviewService(repository)


@pytest.fixture
def runs(repository: Repository) -> Sequence[RunView]:
    """The target alone first, and a lenient setting fourth."""
    return repository.experiments()[0].runs


@pytest.fixture
def use(service: ReviewService) -> str:
    return service.describe(ANN, "Sums", requirements=Requirements(margin=20)).id


@pytest.fixture
def proposal(service: ReviewService, runs: Sequence[RunView], use: str) -> str:
    """The id of a proposal by Ann."""
    return service.propose(ANN, use, [runs[3].id], [runs[0].id])


@pytest.fixture
def page(application: Application, proposal: str) -> ShownPage:
    """The proposal, as Bob sees it."""
    return application.open(f"review?proposal={proposal}", BOB)


def remeasured(repository: Repository, run: RunView, seconds: float) -> None:
    """Change the figures of a run, as a worker does that resumed it."""
    with repository._database.session() as session:
        session.execute(update(RunRow).where(RunRow.id == run.id).values(decoding_seconds=seconds))


def read(service: ReviewService, proposal: str) -> Proposal:
    return service.review(proposal).proposal


def ballot(page: ShownPage) -> str:
    """The prompt that is voted on."""
    return next(one.text for one in page.elements("article") if "Left" in one.text)


def asking(use: str, runs: Sequence[RunView], application: Application) -> ShownPage:
    """The form that proposes a run's setting, filled in."""
    page = application.open(f"review?propose={runs[3].setting_id}", ANN)
    page.choose("Use", "Sums")
    return page


@pytest.mark.parametrize("choice", ["Left", "Right", "Tie", "Both bad"])
def test_a_vote_whose_answer_is_lost_counts_once(
    page: ShownPage, service: ReviewService, proposal: str, choice: str
) -> None:
    first = ballot(page)
    page.press(choice, lost=True)
    page.again()
    assert ballot(page) != first
    assert len(read(service, proposal).votes) == 1


def test_a_vote_is_on_the_answers_that_were_read_at_the_click(
    page: ShownPage, service: ReviewService, proposal: str
) -> None:
    name, fields = page.built.buttons[page.button("Tie")]
    read_then = [page.values[part] for part in fields]
    page.do(name, read_then)
    page.do("vote Both bad", read_then)  # thinks better of it, on a slow line
    (vote,) = read(service, proposal).votes.values()
    assert vote.choice == "both bad"


def test_a_vote_on_answers_that_were_replaced_is_refused(
    page: ShownPage, repository: Repository, service: ReviewService, runs: Sequence[RunView], proposal: str
) -> None:
    with repository._database.session() as session:
        session.execute(update(GenerationRow).where(GenerationRow.run_id == runs[3].id).values(text="Another text."))
    page.press("Left")
    assert "These answers were replaced since they were shown" in page.text
    assert "Another text." in ballot(page)
    assert read(service, proposal).votes == {}
    page.press("Tie")
    assert "1 tie" in page.text
    assert "replaced" not in page.text


def test_voting_shows_no_names_until_somebody_stops(page: ShownPage, service: ReviewService, proposal: str) -> None:
    assert "FSD" not in ballot(page)
    assert "correct" not in ballot(page)
    assert "prompts are not shown: the answers are put to a blind vote" in page.text
    assert not [one for one in page.elements("section", "div", "article") if "data-run" in one.attributes]
    page.press("Stop voting, show the names", lost=True)
    assert "You stopped voting on this proposal" in page.text
    assert "blind vote" not in page.answered
    assert [one for one in page.elements("section", "div", "article") if "data-run" in one.attributes]


def test_a_proposal_whose_answer_is_lost_is_made_once(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str
) -> None:
    page = asking(use, runs, application)
    page.type("Rationale", "As fast as we need it.")
    page.press("Propose", lost=True)
    (made,) = service.use(use).proposals
    assert f"review?proposal={made}" in page.links()
    page.again()
    assert f"review?proposal={made}" in page.links()
    assert len(service.use(use).proposals) == 1
    with pytest.raises(AssertionError, match="0 buttons 'Propose'"):
        page.button("Propose")


def test_what_was_answered_is_not_said_to_be_proposed_once_more(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str, proposal: str
) -> None:
    review = service.review(proposal)
    service.submit_review(BOB, review, "request changes", "Which prompts are these?", review.use.sequence)
    page = asking(use, runs, application)
    page.press("Propose")
    assert "This setting is under review for this use already" in page.text
    assert "Proposed." not in page.text
    assert f"review?proposal={proposal}" in page.links()


def test_figures_that_changed_are_drawn_before_they_are_approved(
    application: Application, repository: Repository, service: ReviewService, runs: Sequence[RunView], use: str
) -> None:
    asked = Requirements(margin=20, longest_answers=0.01)  # somebody answers for the second
    proposal = service.propose(ANN, use, [runs[3].id], [runs[0].id], requirements=asked)
    page = application.open(f"review?proposal={proposal}", BOB)
    changed = "The evidence has changed since this page showed it"
    before = page.html
    remeasured(repository, runs[0], 9999.0)
    page.press("Approve")
    assert changed in page.text
    assert page.html != before
    assert read(service, proposal).state == "open"

    remeasured(repository, runs[0], 99.0)
    page.type("Why that is acceptable", "So be it")
    page.press("Answer for it")
    assert changed in page.text
    assert page.field("Why that is acceptable") == "So be it"
    assert read(service, proposal).waivers == {}
    page.press("Answer for it")
    assert "Noted with your name." in page.text
    assert page.field("Why that is acceptable") == ""
    page.press("Approve", lost=True)
    assert "Approved: the setting is the approved one for" in page.text
    assert read(service, proposal).state == "approved"
    assert not page.can_press("Decline")


def test_a_verdict_that_somebody_overtook_is_refused_and_its_words_stay(
    page: ShownPage, service: ReviewService, proposal: str
) -> None:
    page.type("Comment on the verdict", "Fine.")
    service.comment(ANN, service.review(proposal), "One slip of the baseline.")
    page.press("Approve")
    assert "Since this page was shown Ann acted here: look at what is new" in page.text
    assert "One slip of the baseline." in page.text
    assert (page.field("Comment on the verdict"), read(service, proposal).state) == ("Fine.", "open")


def test_a_comment_that_is_typed_after_a_click_stays(page: ShownPage, service: ReviewService, proposal: str) -> None:
    page.type("Comment", "The second")
    page.press("Comment", Comment="The first")
    assert "The first" in page.text
    assert page.field("Comment") == "The second"
    page.press("Comment", lost=True)
    assert page.field("Comment") == ""
    assert [written_text(one.event) for one in read(service, proposal).comments] == ["The first", "The second"]


def test_acts_keep_the_prompts_that_are_read(
    application: Application, service: ReviewService, runs: Sequence[RunView], proposal: str
) -> None:
    review = service.review(proposal)
    pairing = pairing_of(service, review)
    assert pairing is not None
    differing = pairing.filtered("text")
    for pair in differing[:-2]:
        service.vote(BOB, review, pair.a.position, "tie", "setting")
    page = application.open(f"review?proposal={proposal}", BOB)
    page.choose("Prompts", "All")
    readable = len(pairing.pairs) - 2
    assert f"{readable} prompts of {readable}" in page.text
    page.press("Next prompts")
    assert "6 to 10 shown" in page.text
    page.type("Comment", "Read so far.")
    page.press("Comment")
    page.press("Tie")
    page.type("Comment on the verdict", "More prompts, please.")
    page.press("Request changes")
    assert "Changes are asked for." in page.text
    assert "6 to 10 shown" in page.text
    assert page.field("Prompts") == "all"
    page.press("Next prompts")
    assert "11 to 15 shown" in page.text


def test_a_use_of_two_tabs_is_rolled_back_once(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str
) -> None:
    for run in runs[2:4]:
        review = service.review(
            service.propose(ANN, use, [run.id], [runs[0].id], requirements=Requirements(margin=None))
        )
        service.submit_review(BOB, review, "approve", "", review.use.sequence)
    tabs = [application.open(f"review?use={use}", CAT) for _ in range(2)]
    for tab in tabs:
        tab.type("Why it is rolled back", "It repeats itself.")
    tabs[0].press(BACK, lost=True)
    tabs[0].again()
    assert "Rolled back." in tabs[0].text
    tabs[1].press(BACK)
    assert "acted here: look at what is new" in tabs[1].text
    assert tabs[1].button("Take the approval back")
    assert tabs[1].field("Why the approval is taken back") == "It repeats itself."
    assert service.use(use).named("approved") == runs[2].setting_id
    assert "rolled back: " in tabs[1].rows("What was decided")[0]
    tabs[1].press("Take the approval back")
    assert f"taken back: {runs[2].setting_id[:8]} → nothing" in tabs[1].rows("What was decided")[0]
    assert "taken back" in tabs[1].rows("Proposals")[-1]


def test_where_nothing_is_in_force_the_page_says_who_took_it_back_and_offers_no_way_back(
    application: Application, service: ReviewService, use: str, proposal: str
) -> None:
    def told(address: str) -> str:
        return application.open(address, BOB).text

    address, why = f"review?use={use}", "Rolling back needs the role admin, and Bob is reviewer"
    assert "Nothing is approved for the use 'sums' yet." in told(address)
    assert why not in told(address)
    service.submit_review(BOB, service.review(proposal), "approve", "", service.use(use).sequence)
    page = application.open(address, BOB)
    assert why in page.text
    service.roll_back(CAT, use, "It repeats itself.", service.use(use).sequence)
    page.look()
    for text in (page.text, told(address)):
        assert "Nothing is in force for the use 'sums': Cat took back what was approved, on 20" in text
        assert why not in text
    with pytest.raises(UnknownName, match="Cat took back what was approved"):
        check_setting(service.repository, service.use(use))


def test_a_use_that_somebody_changed_is_not_replaced_unseen(
    application: Application, service: ReviewService, use: str
) -> None:
    page = application.open(f"review?use={use}", CAT)
    page.type("Accuracy", "12")
    service.change_use(Person("Dan", "admin"), use, {"requirements": {"least_speedup": 1.6}}, service.use(use).sequence)
    page.press("Change the use")
    assert "Since this page was shown Dan acted here" in page.text
    assert (page.field("Accuracy"), page.field("Speed")) == ("12", "1.6")
    page.press("Change the use", lost=True)
    assert "Changed, with your name in the log." in page.text
    asked = service.use(use).requirements
    assert (asked.margin, asked.least_speedup) == (12, 1.6)


def test_a_verdict_that_asks_for_changes_says_what_is_missing(
    page: ShownPage, service: ReviewService, proposal: str
) -> None:
    page.press("Request changes")
    assert "Say what is missing" in page.text
    assert read(service, proposal).state == "open"


def test_nobody_judges_their_own(application: Application, proposal: str) -> None:
    page = application.open(f"review?proposal={proposal}", ANN)
    assert "This proposal is your own: somebody else gives the verdict." in page.text
    barred = ("Approve", "Request changes", "Decline", "Answer for it")
    assert not any(page.can_press(label) for label in barred)
    assert page.can_press("Withdraw")


def test_the_owner_of_a_program_does_not_judge_what_it_proposes(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str
) -> None:
    id = service.propose(Person("Bob/bot", "author", owner="Bob"), use, [runs[3].id], [runs[0].id])
    page = application.open(f"review?proposal={id}", BOB)
    assert "This proposal is your own: somebody else gives the verdict." in page.text
    assert not page.can_press("Approve")
    assert page.can_press("Withdraw")


def test_others_see_why_they_do_not_withdraw_it(page: ShownPage, application: Application, proposal: str) -> None:
    for act in ("", "Request changes", "Comment"):
        page.type("Comment on the verdict", "More prompts, please.")
        page.type("Comment", "They are too easy.")
        if act:
            page.press(act)
        assert not page.can_press("Withdraw")
        assert "Withdrawing it is for its author, Ann, and for admins." in page.text
    assert application.open(f"review?proposal={proposal}", CAT).can_press("Withdraw")


def test_the_form_answers_for_a_requirement_that_is_open(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str
) -> None:
    asked = Requirements(margin=20, least_speedup=900, longest_answers=0.01)
    id = service.propose(ANN, use, [runs[3].id], [runs[0].id], requirements=asked)
    page = application.open(f"review?proposal={id}", BOB)
    for requirement in service.review(id).open_requirements:
        assert requirement != "margin"
        assert page.field("Answer for") == requirement
        page.type("Why that is acceptable", "A toy.")
        page.press("Answer for it")
    assert service.review(id).open_requirements == ()
    assert not page.can_press("Answer for it")


def test_after_a_lost_race_the_page_leads_on(
    page: ShownPage, application: Application, service: ReviewService, use: str, proposal: str
) -> None:
    review = service.review(proposal)
    service.submit_review(CAT, review, "approve", "", review.use.sequence)
    page.type("Comment on the verdict", "Fine.")
    page.press("Decline")
    assert "This proposal is approved, so nothing is decided on it any more" in page.text
    assert "again" not in page.answered
    assert f"review?use={use}" in page.links()
    assert not any(page.can_press(label) for label in ("Approve", "Decline", "Withdraw", "Answer for it"))
    tab = application.open(f"review?use={use}", CAT)
    service.roll_back(CAT, use, "It repeats itself.", service.use(use).sequence)
    tab.type("Why the approval is taken back", "Too slow.")
    tab.press("Take the approval back")
    assert "Nothing is approved here since this page was shown: the log below says who took it back." in tab.text


def test_what_waits_for_somebody_is_told_on_the_page_and_in_its_head(
    application: Application, service: ReviewService, proposal: str
) -> None:
    service.ask_reviewers(ANN, service.review(proposal), ["Bob"])
    page = application.open("review", BOB)
    assert "1 waits for you" in page.text
    (line,) = page.rows("Waiting for me")
    assert "Sums" in line
    assert "for you" not in application.open("review", CAT).text
    opened = application.open(f"review?proposal={proposal}", BOB)
    assert "Waits for the verdict of Bob." in opened.text
    opened.press("Approve")
    assert "Approved: the setting is" in opened.text
    assert "Asked for a verdict" not in opened.text


def test_what_a_reviewer_writes_reaches_the_author(
    application: Application, page: ShownPage, service: ReviewService, runs: Sequence[RunView], proposal: str
) -> None:
    page.type("Comment on the verdict", "The prompts are too easy.")
    page.press("Request changes")
    listed = application.open("review", ANN)
    assert "1 waits for you" in listed.text
    (line,) = listed.rows("Waiting for me")
    assert "your changes" in line
    assert "1 proposal under review" in application.open("", ANN).part("news")
    own = application.open(f"review?proposal={proposal}", ANN)
    assert "Bob asked for changes just now · #1 The prompts are too easy." in own.text
    assert "Waits for the changes of Ann." in own.text
    own.type("Comment", "These are our customers'.")
    own.type("Answers #", "#1")
    own.press("Comment")
    assert "Ann commented just now · #2 These are our customers'." in own.text
    assert "Waits for the verdict of Bob." in own.text
    own.type("Comment", "And?")
    own.type("Answers #", "3")
    own.press("Comment")
    assert "There is no #3 to answer" in own.text
    assert "for you" not in application.open("review", ANN).text
    assert "1 waits for you" in application.open("review", BOB).text


def test_all_that_is_said_to_a_proposal_stands_on_its_page_in_its_order(
    application: Application, service: ReviewService, runs: Sequence[RunView], use: str, proposal: str
) -> None:
    def review() -> Any:
        return service.review(proposal)

    service.submit_review(BOB, review(), "request changes", "Another baseline.", review().use.sequence)
    service.choose_evidence(ANN, review(), [runs[3].id], [runs[1].id], "The draft alone.")
    service.waive(BOB, review(), "margin", "A toy.")
    service.comment(CAT, review(), "Fine.")
    service.submit_review(BOB, review(), "approve", "So be it.", review().use.sequence)
    service.roll_back(CAT, use, "It repeats itself.", review().use.sequence)
    text = application.open(f"review?proposal={proposal}", ANN).text
    said = ["Another baseline.", "The draft alone.", "A toy.", "Fine.", "So be it.", "It repeats itself."]
    deeds = ["Bob asked for changes", "Ann chose other evidence", "Bob answers for accuracy", "Cat commented",
             "Bob approved", "Cat took the approval back"]  # fmt: skip
    places = [text.index(f"· #{number} {words}") for number, words in enumerate(said, start=1)]
    assert places == sorted(places)
    assert [deed for deed in deeds if deed not in text] == []
    other = service.propose(ANN, use, [runs[4].id], [runs[0].id])
    service.withdraw(ANN, service.review(other), "Too slow.")
    assert "Ann withdrew it just now · #1 Too slow." in application.open(f"review?proposal={other}", BOB).text
