"""The pages of a review show one state, and what a person says is about what they were shown."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from sqlalchemy import update

from dashboard.review.blind_vote import pairing_of
from fsd_core.review.history import Proposal
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import LOCAL, Person
from fsd_core.storage.records import RunView
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import GenerationRow, RunRow
from tests.tools import plausible
from tests.tools.settled import Held, go, settled
from tests.tools.site import Site

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_review_in_one_state.py")]

ANN = Person("Ann", "author")


@pytest.fixture
def runs(site: Site) -> Sequence[RunView]:
    """The runs of a new finished experiment: the target alone first, and a lenient setting fourth."""
    experiment = plausible.add_finished(site.repository, f"State-{uuid4().hex}", limit=40)
    return site.repository.experiment(experiment).runs


@pytest.fixture
def use(site: Site) -> str:
    """The id of a new use."""
    return ReviewService(site.repository).describe(ANN, f"Use {uuid4().hex}", requirements=Requirements(margin=20)).id


@pytest.fixture
def proposal(site: Site, runs: Sequence[RunView], use: str) -> str:
    """The id of a proposal by Ann."""
    return ReviewService(site.repository).propose(ANN, use, [runs[3].id], [runs[0].id])


@pytest.fixture
def voted(site: Site, proposal: str) -> str:
    """The id of a proposal on which whoever looks has voted, except on two prompts: the other 38 are shown."""
    service = ReviewService(site.repository)
    review = service.review(proposal)
    pairing = pairing_of(service, review)
    assert pairing is not None
    for pair in pairing.filtered("text")[:-2]:
        service.vote(LOCAL, review, pair.a.position, "tie", "setting")
    return proposal


def read(site: Site, proposal: str) -> Proposal:
    return ReviewService(site.repository).review(proposal).proposal


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True).locator("visible=true")


def field(page: Page, label: str) -> Locator:
    return page.get_by_label(label).locator("visible=true")


def ballot(page: Page) -> Locator:
    return page.locator("article.pair").first.locator(".prompt")


def notices(page: Page) -> Locator:
    return page.locator(".fsd-notice").locator("visible=true")


def open_form(page: Page, site: Site, run: RunView, use: str) -> None:
    """Open the form that proposes a run's setting, and choose this use."""
    go(page, f"{site.url}/review?propose={run.setting_id}")
    field(page, "Use").click()
    page.get_by_role("option", name=ReviewService(site.repository).use(use).name).click()


def remeasured(site: Site, run: RunView, seconds: float) -> None:
    """Change the figures of a run, as a worker does that resumed it."""
    with site.repository._database.session() as session:
        session.execute(update(RunRow).where(RunRow.id == run.id).values(decoding_seconds=seconds))


def lose_answer(page: Page, name: str) -> list[str]:
    """Let the server do the next act of this name, and keep the answer from the page. Returns what was lost."""
    lost: list[str] = []

    def lose(route: Route) -> None:
        if lost or f'\\"name\\":\\"{name}\\"' not in (route.request.post_data or ""):
            route.continue_()
            return
        lost.append(route.fetch().text())
        route.abort()

    page.route("**/gradio_api/run/**", lose)
    return lost


@pytest.mark.parametrize("choice", ["Left", "Both bad"])
def test_a_double_click_votes_once(page: Page, site: Site, proposal: str, choice: str) -> None:
    go(page, f"{site.url}/review?proposal={proposal}")
    first = ballot(page).inner_text()
    button(page, choice).dblclick()
    expect(ballot(page)).not_to_have_text(first)
    settled(page)
    assert len(read(site, proposal).votes) == 1


def test_votes_on_a_slow_line_are_on_what_was_read(page: Page, site: Site, proposal: str) -> None:
    go(page, f"{site.url}/review?proposal={proposal}")
    first = ballot(page).inner_text()
    held = Held(page)
    button(page, "Tie").dblclick()
    held.wait()
    button(page, "Both bad").press("Enter")  # thinks better of it: the same answers are still displayed
    held.release()
    expect(ballot(page)).not_to_have_text(first)
    settled(page)
    (vote,) = read(site, proposal).votes.values()
    assert vote.choice == "both bad"


def test_a_vote_on_answers_that_were_replaced_is_refused(
    page: Page, site: Site, runs: Sequence[RunView], proposal: str
) -> None:
    go(page, f"{site.url}/review?proposal={proposal}")
    with site.repository._database.session() as session:
        session.execute(update(GenerationRow).where(GenerationRow.run_id == runs[3].id).values(text="Another text."))
    button(page, "Left").click()
    expect(notices(page).filter(has_text="These answers were replaced since they were shown")).to_be_visible()
    expect(page.locator("article.pair").first).to_contain_text("Another text.")
    assert read(site, proposal).votes == {}
    button(page, "Tie").press("Enter")
    expect(page.get_by_text("1 tie")).to_be_visible()
    expect(notices(page).filter(has_text="replaced")).to_have_count(0)


def test_a_double_click_on_propose_leaves_the_link(page: Page, site: Site, runs: Sequence[RunView], use: str) -> None:
    open_form(page, site, runs[3], use)
    button(page, "Propose").dblclick()
    link = page.get_by_role("link", name="Open it")
    expect(link).to_be_visible()
    settled(page)
    expect(link).to_be_visible()
    (proposal,) = ReviewService(site.repository).use(use).proposals
    expect(link).to_have_attribute("href", f"review?proposal={proposal}")
    expect(button(page, "Propose")).to_have_count(0)
    assert len(ReviewService(site.repository).use(use).proposals) == 1


def test_a_proposal_whose_answer_is_lost_is_made_once(
    page: Page, site: Site, runs: Sequence[RunView], use: str
) -> None:
    open_form(page, site, runs[3], use)
    lost = lose_answer(page, "propose")
    with page.expect_event("requestfailed"):
        button(page, "Propose").click()
    settled(page)
    assert len(lost) == 1
    assert len(ReviewService(site.repository).use(use).proposals) == 1
    (proposal,) = ReviewService(site.repository).use(use).proposals
    expect(page.get_by_role("link", name="Open it")).to_have_attribute("href", f"review?proposal={proposal}")


def test_figures_that_changed_are_drawn_before_they_are_approved(
    page: Page, site: Site, runs: Sequence[RunView], use: str
) -> None:
    asked = Requirements(margin=20, longest_answers=0.01)
    service = ReviewService(site.repository)
    proposal = service.propose(ANN, use, [runs[3].id], [runs[0].id], requirements=asked)
    go(page, f"{site.url}/review?proposal={proposal}")
    speed = page.locator(".fsd-tile, .tile").filter(has_text="Times as fast").first
    before = speed.inner_text()
    remeasured(site, runs[0], 9999.0)
    button(page, "Approve").click()
    expect(notices(page).filter(has_text="The evidence has changed since this page showed it")).to_be_visible()
    expect(speed).not_to_have_text(before)
    assert read(site, proposal).state == "open"

    remeasured(site, runs[0], 99.0)
    field(page, "Why that is acceptable").fill("So be it")
    button(page, "Answer for it").click()
    expect(notices(page).filter(has_text="The evidence has changed since this page showed it")).to_be_visible()
    settled(page)
    expect(field(page, "Why that is acceptable")).to_have_value("So be it")
    assert read(site, proposal).waivers == {}
    button(page, "Answer for it").press("Enter")
    expect(notices(page).filter(has_text="Noted with your name.")).to_be_visible()
    expect(field(page, "Why that is acceptable")).to_have_value("")
    button(page, "Approve").press("Enter")
    expect(notices(page).filter(has_text="Approved: the setting is the approved one for")).to_be_visible()
    assert read(site, proposal).state == "approved"


def test_a_comment_that_is_typed_meanwhile_stays(page: Page, site: Site, proposal: str) -> None:
    go(page, f"{site.url}/review?proposal={proposal}")
    comment = field(page, "Comment Kept with your name")
    comment.fill("The first")
    held = Held(page)
    button(page, "Comment").click()
    held.wait()
    comment.fill("The second")
    held.release()
    expect(page.locator(".rev-thread > li")).to_contain_text("The first")
    expect(comment).to_have_value("The second")
    button(page, "Comment").press("Enter")
    expect(page.locator(".rev-thread > li")).to_have_count(2)
    expect(comment).to_have_value("")


def test_acts_on_a_proposal_keep_the_prompts_that_are_read(page: Page, site: Site, voted: str) -> None:
    go(page, f"{site.url}/review?proposal={voted}")
    page.get_by_label("All", exact=True).check()
    expect(page.get_by_text("38 prompts of 38")).to_be_visible()
    button(page, "Next prompts").click()
    second = page.get_by_text("6 to 10 shown")
    expect(second).to_be_visible()
    comment = field(page, "Comment Kept with your name")
    comment.fill("Read so far.")
    button(page, "Comment").click()
    expect(page.locator(".rev-thread > li")).to_have_count(1)
    first = ballot(page).inner_text()
    button(page, "Tie").click()
    expect(ballot(page)).not_to_have_text(first)
    field(page, "Comment on the verdict").fill("More prompts, please.")
    button(page, "Request changes").click()
    expect(notices(page).filter(has_text="Changes are asked for.")).to_be_visible()
    settled(page)
    expect(second).to_be_visible()
    expect(page.get_by_label("All", exact=True)).to_be_checked()


def test_a_page_that_is_turned_beside_another_act_is_turned_once(page: Page, site: Site, voted: str) -> None:
    go(page, f"{site.url}/review?proposal={voted}")
    held = Held(page)
    button(page, "Next prompts").click()
    held.wait()
    field(page, "Comment Kept with your name").fill("Meanwhile.")
    button(page, "Comment").click()
    held.release()
    expect(page.locator(".rev-thread > li")).to_have_count(1)
    settled(page)
    expect(page.get_by_text("6 to 10 shown")).to_be_visible()


def test_a_late_answer_to_a_filter_does_not_undo_a_comment(page: Page, site: Site, voted: str) -> None:
    go(page, f"{site.url}/review?proposal={voted}")
    held = Held(page, answers=True)
    page.get_by_label("All", exact=True).check()
    held.wait()
    field(page, "Comment Kept with your name").fill("Meanwhile.")
    button(page, "Comment").click()
    page.get_by_label("Different outcome", exact=True).check()
    held.release()
    expect(page.locator(".rev-thread > li")).to_have_count(1)
    settled(page)
    expect(page.get_by_label("Different outcome", exact=True)).to_be_checked()
    expect(page.get_by_text("38 prompts of 38")).to_have_count(0)


def test_a_use_of_two_tabs_is_rolled_back_once(page: Page, site: Site, runs: Sequence[RunView], use: str) -> None:
    service = ReviewService(site.repository)
    for run in runs[2:4]:
        review = service.review(
            service.propose(ANN, use, [run.id], [runs[0].id], requirements=Requirements(margin=None))
        )
        service.submit_review(Person("Bob", "reviewer"), review, "approve", "", review.use.sequence)
    back = "Roll back to what was approved before"
    tabs = [page, page.context.new_page()]
    for tab in tabs:
        go(tab, f"{site.url}/review?use={use}")
        field(tab, "Why it is rolled back").fill("It repeats itself.")
    button(tabs[0], back).dblclick()
    expect(notices(tabs[0]).filter(has_text="Rolled back.")).to_be_visible()
    button(tabs[1], back).click()
    expect(notices(tabs[1]).filter(has_text="acted here: look at what is new")).to_be_visible()
    expect(button(tabs[1], "Take the approval back")).to_be_visible()
    expect(field(tabs[1], "Why the approval is taken back")).to_have_value("It repeats itself.")
    tabs[1].close()
    assert service.use(use).named("approved") == runs[2].setting_id
