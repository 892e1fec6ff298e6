"""Two people and a setting: one proposes, the other asks for changes and approves, a third may only look."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fsd_core import accounts
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import ReviewEventRow
from fsd_plugins.notices.notifier import Channels, Notifier, WebhookChannel, signature
from tests.tools.plausible import PROVENANCE, add_finished
from tests.tools.receivers import webhook_receiver
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE
from tests.tools.visitor import Visitor
from tests.tools.worker_process import until
from tests.ui.test_sign_in import PASSWORD, sign_in

HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"
Window = Callable[[str], Page]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application where people sign in, with a finished experiment of 120 prompts."""
    with serving(tmp_path_factory.mktemp("home"), FSD_ACCESS="password") as site:
        for name, role in (("Ann", "author"), ("Bob", "reviewer"), ("Cat", "admin"), ("Eve", "viewer")):
            accounts.add_user(site.repository, name, role, PASSWORD)
        add_finished(site.repository, limit=120)
        yield site


@pytest.fixture(scope="module")
def window(browser: Browser, team: Site) -> Iterator[Window]:
    """A browser of somebody's own, signed in, on the page Review; each has one for the whole module."""
    pages: dict[str, Page] = {}

    def opened(name: str) -> Page:
        if name in pages:
            pages[name].goto(f"{team.url}/review")
            return pages[name]
        context = browser.new_context(viewport={"width": 1440, "height": 1000})
        context.set_default_timeout(1000 * PATIENCE)
        page = pages[name] = context.new_page()
        page.on("pageerror", lambda error: pytest.fail(f"script error: {error}"))
        page.on("dialog", lambda dialog: pytest.fail(f"a script said {dialog.message}"))
        sign_in(page, team, name, "/review")
        return page

    yield opened
    for page in pages.values():
        page.context.close()


def notices(page: Page) -> Locator:
    return page.locator(".fsd-notice:visible")


def press(page: Page, button: str) -> None:
    """With the keyboard, because a click at once behind another one would count as a double click."""
    page.get_by_role("button", name=button, exact=True).press("Enter")


def comment_on_a_passage(page: Page, words: str) -> None:
    """Stop voting, select some characters of the first answer that is then shown, comment, and open the comment."""
    sides = page.locator(".side[data-run]")
    expect(page.get_by_text("prompts are not shown: the answers are put to a blind vote")).to_be_visible()
    expect(sides).to_have_count(0)
    press(page, "Stop voting, show the names")
    expect(sides).to_have_count(10)
    prompt = sides.first.get_attribute("data-position")
    quote = sides.first.locator("pre").evaluate(
        """(text) => {
            const range = document.createRange();
            const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT), nodes = [];
            while (walker.nextNode()) nodes.push(walker.currentNode);
            const last = nodes[Math.min(2, nodes.length - 1)];  // across what is marked as different
            range.setStart(nodes[0], 0);
            range.setEnd(last, last.length);
            getSelection().removeAllRanges();
            getSelection().addRange(range);
            return range.toString();
        }"""
    )
    sides.first.get_by_role("button", name="Comment on it").click()
    dialog = page.get_by_role("dialog", name="Comment")
    expect(dialog.locator("blockquote")).to_have_text(quote)
    dialog.get_by_role("textbox", name="Comment on this passage").fill(words)
    dialog.get_by_role("button", name="Say it").click()
    comment = page.locator(".rev-thread > li")
    expect(comment).to_contain_text(f"Bob commented on prompt {int(prompt or 0) + 1}")
    expect(comment.locator("blockquote")).to_have_text(quote)
    comment.get_by_role("link", name="Show it in the answer").click()
    expect(page.locator(".pair.linked mark.quoted").first).to_be_visible()
    assert "".join(page.locator("mark.quoted").all_text_contents()) == quote


@pytest.mark.wide
def test_a_team_agrees_on_a_setting(window: Window, team: Site) -> None:
    ann = window("Ann")
    expect(ann.locator("body")).to_contain_text("No use yet")
    # The setting's page leads to the form, in which its runs and their baselines are chosen already.
    setting = next(run for run in team.repository.runs() if run.label.startswith("FSD reducible · js ≤ 0.05"))
    ann.goto(f"{team.url}/settings?setting={setting.setting_id}")
    ann.get_by_role("link", name="Propose it for a use").click()
    expect(ann.locator("h1")).to_contain_text("Propose FSD reducible · js ≤ 0.05")
    # There is no use yet, so the form makes one.
    expect(ann.get_by_label("Use", exact=True)).to_have_count(0)
    press(ann, "Propose")
    expect(notices(ann).last).to_have_class(re.compile("bad"))
    assert team.repository.review_log() == []
    ann.get_by_label("Name").fill("Support chat")
    ann.get_by_label("Description").fill(HOSTILE)
    ann.get_by_label("Accuracy").fill("10")
    ann.get_by_label("Speed").fill("1.05")
    ann.get_by_label("Rationale").fill(f"As fast as we need. {HOSTILE}")
    ann.get_by_label("Reviewers").locator("visible=true").click()
    ann.get_by_role("option", name="Bob", exact=True).click()
    press(ann, "Propose")
    expect(ann.get_by_role("link", name="Open it")).to_be_visible()
    expect(ann.get_by_role("button", name="Propose", exact=True)).to_have_count(0)
    expect(notices(ann).last).to_have_text("Proposed. Open it")
    expect(ann.get_by_label("Name")).to_have_count(0)
    ann.get_by_role("link", name="Open it").click()
    expect(ann.locator("h1")).to_contain_text("FSD reducible · js ≤ 0.05 · γ 5 · Bundled arithmetic pair open")
    requirements = ann.get_by_label("Requirements").locator("tbody tr")
    expect(requirements).to_have_count(2)
    expect(requirements.nth(0)).to_contain_text(
        re.compile(r"Accuracymet[+−]?\d+\.\d points \[.*\] on 120 prompts: Non-inf")
    )
    speed = r"Speedmet\d\.\d+ times as fast \[\d.*, \d.*\] by time per answer; up to 3 % of answers could be overlong"
    expect(requirements.nth(1)).to_contain_text(re.compile(speed))
    proposal = ann.url
    expect(ann.get_by_role("button", name="Approve")).to_be_disabled()
    expect(ann.get_by_text("This proposal is your own: somebody else gives the verdict.")).to_be_visible()

    # Bob asks about one prompt, and for changes; Ann answers; he is satisfied.
    bob = window("Bob")
    expect(bob.get_by_label("Waiting for me").locator("tbody tr")).to_contain_text("Support chat")
    expect(bob.get_by_role("link", name="1 waits for you")).to_be_visible()
    bob.goto(proposal)
    comment_on_a_passage(bob, "Why is this one wrong?")
    press(bob, "Request changes")
    expect(notices(bob).last).to_contain_text("Say what is missing")
    bob.get_by_label("Comment on the verdict").fill(f"Explain prompt 3. {HOSTILE}")
    press(bob, "Request changes")
    expect(notices(bob).last).to_contain_text("Changes are asked for.")
    number = 1  # what Bob said first
    expect(bob.get_by_role("link", name="1 waits for you")).to_have_count(0)
    ann.reload()
    expect(ann.locator("body")).to_contain_text("changes asked or declined by Bob")
    ann.get_by_label("Comment Kept with your name").fill("A slip of the baseline, too.")
    ann.get_by_label("Answers #").fill(str(number))
    press(ann, "Comment")
    expect(ann.locator(".rev-thread ol li")).to_contain_text("A slip of the baseline, too.")
    press(bob, "Approve")  # on the page as it was before Ann's answer
    expect(notices(bob).last).to_contain_text("Since this page was shown Ann acted here: look at what is new")
    expect(bob.locator(".rev-thread ol li")).to_contain_text("A slip of the baseline, too.")
    press(bob, "Approve")
    expect(notices(bob).last).to_have_text("Approved: the setting is the approved one for Support chat now.")
    expect(bob.locator("h1")).to_contain_text("approved")
    expect(bob.get_by_role("button", name="Decline", exact=True)).to_be_disabled()
    use = ReviewService(team.repository).use("support-chat")
    assert use.named("approved") == setting.setting_id
    notices(bob).last.get_by_role("link", name="the setting").click()
    expect(bob.locator("h1:visible")).to_have_text(f"{setting.label} approved")
    expect(bob.locator(".set-aliases")).to_contain_text("approved for Support chat")

    # Cat mends what the use asks for while Ann's page has the old values: nothing is replaced unseen.
    cat = window("Cat")
    address = f"{team.url}/review?use=support-chat"
    cat.goto(address)
    cat.get_by_role("button", name="Change what it asks for").click()
    expect(cat.get_by_label("Accuracy")).to_have_value("10")
    ReviewService(team.repository).change_use(
        Person("Dan", "admin"), "support-chat", {"requirements": {"least_speedup": 1.6}}, use.sequence
    )
    cat.get_by_label("Accuracy").fill("12")
    press(cat, "Change the use")
    expect(notices(cat).last).to_contain_text("Since this page was shown Dan acted here")
    expect(cat.get_by_label("Speed")).to_have_value("1.6")
    expect(cat.get_by_label("Accuracy")).to_have_value("12")
    press(cat, "Change the use")
    expect(notices(cat).last).to_contain_text("Changed, with your name in the log.")
    expect(cat.locator("body")).to_contain_text("What the use asks for was changed since it was approved")
    changed = ReviewService(team.repository).use("support-chat").requirements
    assert (changed.margin, changed.least_speedup) == (12, 1.6)
    # A token of Bob's is refused at the same button, whatever its role.
    token = accounts.add_token(team.repository, "bobs", "admin", "Bob")
    with Visitor(team.url, "review", {"Authorization": f"Bearer {token}"}, use="support-chat") as program:
        program.open()
        assert "is for people, and Bob/bobs is a program" in program.act("change the use", [None] * 8)
    use = ReviewService(team.repository).use("support-chat")
    assert use.requirements == changed

    # Eve looks at all of it and changes nothing, whatever she presses.
    eve = window("Eve")
    listed = eve.get_by_label("Uses").locator("tbody tr")
    expect(listed).to_contain_text("FSD reducible · js ≤ 0.05 · γ 5 · Bundled arithmetic pair")
    expect(listed).to_contain_text("accuracy within 12 points, at least 1.6 × as")
    expect(eve.get_by_role("button", name="Make the use")).to_be_disabled()
    expect(notices(eve)).to_contain_text("Making a use needs the role author, and Eve is viewer")
    eve.goto(proposal)
    expect(eve.get_by_role("button", name="Comment", exact=True)).to_be_disabled()
    expect(eve.get_by_text("Commenting needs the role author")).to_be_visible()
    eve.goto(f"{team.url}/review?use=support-chat")
    expect(eve.get_by_label("What was decided").locator("tbody tr")).to_have_count(12)
    expect(eve.get_by_role("button", name="Take the approval back")).to_be_disabled()  # nothing was approved before
    expect(eve.get_by_text("Rolling back needs the role admin")).to_be_visible()
    assert ReviewService(team.repository).use("support-chat").sequence == use.sequence

    cat = window("Cat")
    cat.goto(f"{team.url}/review?use=support-chat")
    cat.get_by_label("Why the approval is taken back").fill("It repeats itself.")
    press(cat, "Take the approval back")
    expect(notices(cat).last).to_contain_text("The approval is taken back.")
    assert ReviewService(team.repository).use("support-chat").named("approved") is None
    for page in (ann, bob, eve, cat):
        expect(page.locator(".fsd-html img")).to_have_count(0)


@pytest.mark.wide
def test_what_the_evidence_leaves_open_is_answered_by_name(window: Window, team: Site) -> None:
    service, run = ReviewService(team.repository), team.repository.runs(search="0.4")[0]
    target = next(run for run in team.repository.runs() if run.label == "Target alone")
    ann = Person("Ann", "author")
    service.describe(ann, "Anything goes")
    id = service.propose(ann, "anything-goes", [run.id], [target.id])
    bob = window("Bob")
    bob.goto(f"{team.url}/review?proposal={id}")
    expect(bob.get_by_label("Requirements").locator("tbody tr")).to_contain_text("not met")
    press(bob, "Approve")
    expect(notices(bob).last).to_contain_text("The evidence does not settle accuracy: measure more prompts")
    bob.get_by_label("Why that is acceptable").fill("A toy for the lobby.")
    # A blind vote: no name, no outcome, and the next one behind each.
    ballot = bob.locator("article.pair").first
    expect(ballot.locator("h3")).to_have_text(["Left", "Right"])
    expect(ballot).not_to_contain_text("FSD")
    expect(ballot).not_to_contain_text("correct")
    seen = ballot.locator(".prompt").inner_text()
    press(bob, "Left")
    expect(ballot.locator(".prompt")).not_to_have_text(seen)
    press(bob, "Tie")
    expect(bob.locator(".rev-tally")).to_contain_text("1 tie, 0 both bad; where one was preferred, the setting in")
    press(bob, "Both bad")
    expect(bob.locator(".rev-tally")).to_contain_text("1 both bad")
    press(bob, "Answer for it")
    expect(bob.get_by_label("Requirements").locator("tbody tr")).to_contain_text("Bob: A toy for the lobby.")
    press(bob, "Approve")
    expect(bob.locator("h1")).to_contain_text("approved")
    expect(bob.get_by_role("button", name="Both bad")).to_be_hidden()  # what is decided is not voted on
    first = bob.locator("article.pair").first
    expect(first.locator(".side").nth(0)).to_contain_text("wrong")  # a regression before anything else
    expect(first.locator(".side").nth(1)).to_contain_text("correct")


@pytest.mark.wide
def test_the_approved_setting_leaves_over_http(team: Site) -> None:
    """After the tests above: one use had its setting rolled back, the other has one."""
    token = f"Bearer {accounts.add_token(team.repository, 'fleet', 'viewer')}"

    def get(path: str, **headers: str) -> tuple[int, str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urlopen(Request(f"{team.url}/api/v1/uses{path}", headers=named), timeout=PATIENCE) as response:
                return response.status, response.headers.get("etag", ""), response.read().decode()
        except HTTPError as error:
            return error.code, error.headers.get("etag", ""), error.read().decode()

    assert get("")[0] == 401
    assert get("", Authorization="Bearer nothing")[0] == 401
    listed = json.loads(get("", Authorization=token)[2])["uses"]
    use = ReviewService(team.repository).use("anything-goes")
    assert [one["use"] for one in listed] == ["support-chat", "anything-goes"]
    assert [one["approved"] for one in listed] == [None, use.named("approved")]
    code, _, told = get("/support-chat/approved", Authorization=token)
    assert (code, "took back what was approved" in json.loads(told)["detail"]) == (404, True)
    assert "There is no use 'nowhere'" in get("/nowhere/approved", Authorization=token)[2]
    code, tag, body = get("/anything-goes/approved", Authorization=token)
    data = json.loads(body)
    assert (code, data["setting"], data["approved"]["by"]) == (200, use.named("approved"), "Bob")
    assert data["options"]["threshold"] == 0.4
    assert data["weights"] == PROVENANCE["weights"]
    assert get("/anything-goes/approved", Authorization=token, If_None_Match=f'"other", {tag}') == (304, tag, "")
    assert get("/anything-goes/approved", Authorization=token, If_None_Match='"other"')[0] == 200
    code, python_tag, told = get("/anything-goes/approved?form=python", Authorization=token)
    assert (code, python_tag != tag, "custom_generate=fsd_core.generate" in told) == (200, True, True)
    assert f"load_pair('bundled', weights={PROVENANCE['weights']})" in told
    code, _, told = get("/anything-goes/approved?form=vllm", Authorization=token)
    assert (code, "models of the Hugging Face hub" in json.loads(told)["detail"]) == (409, True)
    assert get("/anything-goes/approved?form=toml", Authorization=token)[0] == 404


def test_what_happens_reaches_a_webhook_and_an_approval_expires(window: Window, team: Site) -> None:
    service, secret = ReviewService(team.repository), "a secret of some length"
    ann, bob = Person("Ann", "author"), window("Bob")
    run = next(run for run in team.repository.runs() if run.label.startswith("FSD reducible · js ≤ 0.05"))
    target = next(run for run in team.repository.runs() if run.label == "Target alone")
    with webhook_receiver() as hook:
        channels = Channels(WebhookChannel(hook.url, secret, private=True), None)
        with Notifier(team.repository, channels, team.url):
            until(lambda: team.repository.outbox_cursors(channels.names), "the beginning")
            service.describe(ann, "Fast chat", requirements=Requirements(margin=20), days=1)
            id = service.propose(ann, "fast-chat", [run.id], [target.id], reviewers=["Bob"])
            hook.wait_for(1)
            bob.goto(json.loads(hook.posts[0][1])["page"])
            press(bob, "Approve")
            expect(notices(bob).last).to_contain_text("the approved one for Fast chat now.")
            hook.wait_for(2)
        bodies = [json.loads(body) for _, body in hook.posts]
        assert [(body["kind"], body["who"], body["proposal"]) for body in bodies] == [
            ("review-requested", "Ann", id), ("approved", "Bob", id)
        ]  # fmt: skip
        for headers, body in hook.posts:
            assert headers["fsd-signature"] == signature(secret.encode(), headers["fsd-timestamp"], body)
        # Two days later.
        notifier = Notifier(team.repository, channels, team.url)
        notifier.queue(datetime.now(UTC) + timedelta(days=2))
        assert notifier.send_one()
        told = json.loads(hook.posts[-1][1])
        assert (told["kind"], told["use"]) == ("approval-expired", "fast-chat")
    with team.repository._database.session() as session:
        for logged in service.use("fast-chat").log:
            old = json.dumps(logged.event.as_json()).replace(id, "0" * 32)
            session.add(
                ReviewEventRow(
                    use_id="old-chat", sequence=logged.sequence, at=logged.at - timedelta(days=2), who=logged.who,
                    role=logged.role, kind=logged.event.kind, act=json.loads(old),
                )
            )  # fmt: skip
    bob.goto(f"{team.url}/review?use=old-chat")
    expect(notices(bob).first).to_contain_text("The approval expired on")
    bob.goto(f"{team.url}/review?use=fast-chat")
    expect(bob.locator(".rev-aliases")).to_contain_text("until")


@pytest.mark.wide
@pytest.mark.parametrize("query", ["use=nothing", f"proposal={'f' * 32}", "propose=nothing", "proposal=<script>"])
def test_unknown_addresses_are_told(window: Window, team: Site, query: str) -> None:
    page = window("Eve")
    page.goto(f"{team.url}/review?{query}")
    expect(page.locator(".fsd-notice.bad")).to_contain_text("There is no")


@pytest.mark.wide
def test_a_phone_shows_what_the_evidence_says_and_the_buttons_first(window: Window, team: Site) -> None:
    service, ann = ReviewService(team.repository), Person("Ann", "author")
    asked = Requirements(margin=2, least_speedup=1.5, longest_answers=1.2)
    service.describe(ann, "Word problems", requirements=asked)
    runs = {run.label: run.id for run in team.repository.runs()}
    evidence, baselines = [runs["FSD reducible · js ≤ 0.2 · γ 5"]], [runs["Target alone"]]
    id = service.propose(ann, "word-problems", evidence, baselines, reviewers=["Bob"])
    bob = window("Bob")
    bob.set_viewport_size({"width": 400, "height": 800})
    bob.goto(f"{team.url}/review?proposal={id}")
    requirements = bob.get_by_label("Requirements").locator("tbody tr")
    expect(requirements).to_have_count(3)
    expect(bob.get_by_role("button", name="Approve")).to_be_enabled()
    buttons = ("Approve", "Request changes", "Decline", "Withdraw")
    parts = [bob.locator("h1:visible"), requirements.first, requirements.last]
    parts += [bob.get_by_role("button", name=name, exact=True) for name in buttons]
    for part in parts:
        expect(part).to_be_in_viewport(ratio=1)


@pytest.mark.wide
def test_the_name_beside_the_pages_covers_none_of_them(window: Window, team: Site) -> None:
    team.repository.report_worker(1, "host", "cpu", "FSD reducible · js ≤ 0.05 · γ 5: prompt 117 of 120, twice over")
    cat = window("Cat")
    person, pages = cat.locator(".fsd-right"), cat.locator(".fsd-bar a")
    expect(cat.locator(".fsd-worker")).to_contain_text("prompt 117")
    for width in (1440, 1201, 1200, 1024, 901, 640, 400):
        cat.set_viewport_size({"width": width, "height": 800})
        corner = person.bounding_box()
        assert corner is not None
        for page in pages.all():
            if (link := page.bounding_box()) is None:
                assert (page.inner_text(), width) == ("MLflow", 400)
                continue
            beside = link["x"] + link["width"] <= corner["x"] or corner["x"] + corner["width"] <= link["x"]
            apart = link["y"] + link["height"] <= corner["y"] or corner["y"] + corner["height"] <= link["y"]
            assert beside or apart, f"{page.inner_text()} at {width}"
