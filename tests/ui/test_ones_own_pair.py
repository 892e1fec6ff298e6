"""One's own pair from its folders to a setting in force, and on to another machine: an author, a reviewer, an admin.

The pair is a copy of the bundled one, so that it solves prompts of the form that it knows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Locator, Page, expect

from fsd_core import accounts
from fsd_core.models.model_pairs import ASSETS
from fsd_core.settings import Settings
from fsd_core.storage.opening import upgrade
from tests.tools.counted_hand import GOALS, Hand
from tests.tools.folds import unfold
from tests.tools.rule_boxes import rule_box
from tests.tools.settled import go, settled
from tests.tools.sizes import PATIENCE
from tests.tools.whole_application import Application
from tests.tools.worker_process import ROOT, free_port, until
from tests.ui.conftest import forget
from tests.ui.test_sign_in import PASSWORD, sign_in

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_model_pairs.py")]

PAIR, USE = "support-7b", "support-chat"
PROMPTS, MARGIN = 120, 15
LONG = 1000 * PATIENCE  # in milliseconds, as the browser counts
BY_MODELS = "target with draft"
"""what the pair is called where nobody has named it"""
FORM = "Question: {}\nAnswer:"
WISH = "Say in the rationale which prompts these are."
THRESHOLDS = "0.1, 0.2"


def file_of(form: str) -> bytes:
    """Prompts with references as GSM8K has them: the reasoning, and behind ``####`` the number."""
    examples = map(json.loads, (ASSETS / "bundled" / "arithmetic.jsonl").read_text().splitlines()[:PROMPTS])
    rows = [
        {"question": form.format(one["question"]), "answer": f"{'; '.join(one['steps'])}\n#### {one['answer']}"}
        for one in examples
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@contextmanager
def running(home: Path, pair: Path, name: str) -> Iterator[Application]:
    """An application in a home with the pair's folders below it, where an author, a reviewer and an admin sign in."""
    settings = Settings(
        home=home, port=free_port(7960), threads=1, device="cpu", access="password", mlflow_uri="http://127.0.0.1:9"
    )
    (home / "own-models").mkdir(parents=True)
    shutil.move(pair, home / "own-models" / name)
    upgrade(settings.resolved_database_url)
    app = Application(settings)
    for name, role in (("Ann", "author"), ("Bob", "reviewer"), ("Cat", "admin")):
        accounts.add_user(app.repository, name, role, PASSWORD)
    try:
        app.start()
        until(app.worker, "a worker", PATIENCE)
        yield app
    finally:
        app.close()


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with the two models."""
    for role in ("target", "draft"):
        shutil.copytree(ASSETS / "bundled" / role, tmp_path / "pair" / role)
    return tmp_path / "pair"


def enter(page: Page, app: Application, name: str) -> None:
    """Sign in, in place of whoever was signed in."""
    page.set_default_timeout(LONG)
    if (leave := page.get_by_role("button", name="Sign out")).count():
        leave.click()
        expect(page).to_have_url(re.compile("/login"))
    sign_in(page, app, name)
    expect(page).to_have_url(f"{app.url}/")


def press(page: Page, button: str) -> None:
    """With the keyboard, because a click at once behind another one would count as a double click."""
    page.get_by_role("button", name=button, exact=True).press("Enter")


def told(page: Page) -> Locator:
    return page.locator(".fsd-notice:visible").last


def drop(page: Page, name: str, data: bytes) -> Locator:
    """Drops a file on the form; returns what is said of it."""
    dropped = page.evaluate_handle(
        "([name, text]) => { const all = new DataTransfer(); all.items.add(new File([text], name)); return all; }",
        [name, data.decode()],
    )
    page.get_by_label("Or drop your own file").dispatch_event("drop", {"dataTransfer": dropped})
    return page.locator("#drop-answer")


def ask(app: Application, token: str, path: str, **arguments: Any) -> tuple[int, Any]:
    """The status and what a program reads at an address: JSON, or else a text. Arguments are posted."""
    headers = {"Authorization": f"Bearer {token}"} | ({"Content-Type": "application/json"} if arguments else {})
    body = json.dumps(arguments).encode() if arguments else None
    try:
        with urlopen(Request(f"{app.url}{path}", body, headers), timeout=PATIENCE) as answer:
            status, text = answer.status, answer.read().decode()
    except HTTPError as error:
        status, text = error.code, error.read().decode()
    return status, json.loads(text) if text.startswith("{") else text


def states(page: Page, app: Application, token: str) -> list[str]:
    """The states of the use's proposals, newest first, on its page; a program is told the same."""
    go(page, f"{app.url}/review?use={USE}")
    rows = page.get_by_label("Proposals", exact=True).locator("tbody tr")
    shown = rows.locator(".fsd-pill").all_inner_texts()
    status, use = ask(app, token, "/api/v1/calls/read_use", use=USE)
    assert (status, [one["state"] for one in reversed(use["proposals"])]) == (200, shown)
    return shown


def the_form_that_the_pair_lacks_is_told(ann: Page, app: Application) -> None:
    """The program's own pair is chosen at first, and says what it knows."""
    ann.goto(f"{app.url}/experiments")
    expect(ann.get_by_text("= 2,400 generations")).to_be_visible()
    answer = drop(ann, "gsm8k.jsonl", file_of("{}"))
    expect(answer).to_contain_text(f"gsm8k: {PROMPTS} prompts in order. Scorer: Number.")
    hint = (
        f"This pair knows only problems of the form “Question: … Answer:”. {PROMPTS} prompts of this file have another."
    )
    expect(ann.get_by_text(hint)).to_be_visible()


def a_pair_is_added_under_a_name(ann: Page, app: Application, folder: Path) -> None:
    """By default from below the home alone."""
    ann.get_by_role("button", name="Your own models").click()
    ann.get_by_label("Pair's name").fill(PAIR)
    answer = ann.locator("#models-answer")
    for where, said in (
        (ASSETS / "bundled", f"Models are taken from folders below {app.settings.home}/own-models here"),
        (folder, f"{PAIR} is added and chosen: here."),
    ):
        ann.get_by_label("Target", exact=True).fill(str(where / "target"))
        ann.get_by_label("Draft", exact=True).fill(str(where / "draft"))
        ann.get_by_role("button", name="Add the pair").click()
        expect(answer).to_contain_text(said)
    expect(ann.get_by_label("Model pair", exact=True)).to_have_value(PAIR)
    expect(ann.locator("#own-pairs .more-task")).to_contain_text("here · target")


def little_is_asked(ann: Page) -> None:
    """Two thresholds at one draft length, and a wide margin, which is no part of the way."""
    for label, few in (("Thresholds", THRESHOLDS), ("Draft lengths", "8")):
        ann.get_by_label(label).first.fill(few)
    ann.get_by_label("Accuracy margin").fill(str(MARGIN))
    for baseline in ("Draft alone", "Block"):
        rule_box(ann, baseline).uncheck()
    unfold(ann, "More")
    ann.get_by_label("Choose draft lengths by replay").uncheck()


def a_setting_is_found(ann: Page) -> None:
    """One click leads from the dropped file to the verdict: the search by the margin that the file does for."""
    hand = Hand(ann)
    answer = drop(ann, "word-problems.jsonl", file_of(FORM))
    hand.count += 1
    expect(answer).to_contain_text("Reference: answer. Scorer: Number, since every reference is a number.")
    expect(answer.locator("li").first).to_contain_text("#### 63")
    expect(answer).to_contain_text(
        f"To be sure of 2 points a search takes 309 prompts, and these are {PROMPTS}: they do for 8 points or more."
    )
    expect(ann.get_by_text("This pair knows only")).to_have_count(0)
    hand.click(answer.get_by_role("button", name=f"Find the setting within {MARGIN} points"))
    expect(answer).to_contain_text(f"is in the list of tasks, with {PROMPTS} prompts. Added: ")
    expect(ann.get_by_label("Task", exact=True)).to_have_value(re.compile("^word-problems"))
    expect(ann.get_by_label("Accuracy margin")).to_have_value(str(MARGIN))
    found = ann.locator("article.exp").first
    expect(found.locator(".exp-foot p")).to_contain_text(f"{PAIR} · word-problems")
    expect(found).to_contain_text(f"Wanted: within {MARGIN} points of the target's accuracy.")
    it_is_cancelled_and_continued(ann, found)
    expect(found.locator(".exp-verdict")).to_contain_text("Use ", timeout=3 * LONG)
    expect(found.locator(".exp-verdict")).to_contain_text("The target alone solves")
    assert hand.count == GOALS["From one's own file to the verdict"]
    expect(found.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    expect(found.get_by_role("button", name="Delete", exact=True)).to_have_attribute(
        "title", re.compile("Deleting needs the role admin, and Ann is author")
    )


def it_is_cancelled_and_continued(ann: Page, found: Locator) -> None:
    expect(found.locator(".exp-foot p")).to_contain_text(re.compile(r" [1-9]\d* texts written"))
    found.get_by_role("button", name="Cancel", exact=True).click()
    again = found.get_by_role("button", name="Resume")
    expect(again).to_be_visible(timeout=LONG)
    expect(found.locator(".fsd-pill").first).to_have_text("cancelled")
    again.click()
    expect(found.locator(".fsd-pill").first).not_to_have_text("cancelled")


def it_is_proposed(ann: Page, app: Application, rationale: str = "") -> None:
    """By the link beside the verdict; the use is made with the first proposal. Bob is asked."""
    ann.goto(f"{app.url}/experiments")
    ann.locator("article.exp").first.get_by_role("link", name=re.compile("^Propose ")).click()
    propose(ann, rationale)


def propose(ann: Page, rationale: str) -> None:
    expect(ann.locator(".fsd-lead:visible").first).to_contain_text(f"of the pair {PAIR}.")
    settled(ann)
    if (name := ann.get_by_label("Name")).is_visible():
        name.fill("Support chat")
        expect(ann.get_by_label("Accuracy")).to_have_value(str(MARGIN))
    if rationale:
        ann.get_by_label("Rationale").fill(rationale)
    ann.get_by_label("Reviewers").locator("visible=true").click()
    ann.get_by_role("option", name="Bob", exact=True).click()
    press(ann, "Propose")
    ann.get_by_role("link", name="Open it").click()
    expect(ann.locator("h1:visible")).to_contain_text(PAIR)
    expect(ann.get_by_label("Requirements").locator("tbody tr")).to_contain_text("met")
    expect(ann.get_by_text("This proposal is your own: somebody else gives the verdict.")).to_be_visible()
    expect(ann.locator(".fsd-lead", has_text="Waits for")).to_have_text("Waits for the verdict of Bob.")


def changes_are_asked_for(ann: Page, bob: Page, app: Application) -> None:
    """The author has the words, a number in the header, and a line under *Waiting for me*."""
    bob.goto(f"{app.url}/review")
    expect(bob.get_by_role("link", name="1 waits for you")).to_be_visible()
    bob.get_by_label("Waiting for me").get_by_role("link", name=PAIR).click()
    expect(bob.get_by_label("Requirements").locator("tbody tr")).to_contain_text("met")
    settled(bob)
    bob.get_by_label("Comment on the verdict").fill(WISH)
    press(bob, "Request changes")
    expect(told(bob)).to_contain_text("Changes are asked for.")
    expect(bob.get_by_role("link", name="1 waits for you")).to_have_count(0)

    ann.get_by_role("link", name="1 waits for you").click()
    waiting = ann.get_by_label("Waiting for me").locator("tbody tr")
    expect(waiting).to_contain_text("your changes")
    waiting.get_by_role("link", name=PAIR).click()
    said = ann.locator(".rev-thread > li")
    expect(said).to_contain_text("Bob asked for changes")
    expect(said.locator(".rev-words")).to_have_text(WISH)
    expect(ann.locator(".fsd-lead", has_text="Waits for")).to_have_text("Waits for the changes of Ann.")


def it_is_proposed_again(ann: Page, app: Application) -> None:
    expect(ann.get_by_role("button", name="Withdraw")).to_be_enabled()
    settled(ann)
    ann.get_by_label("Comment on the verdict").fill("With a rationale.")
    press(ann, "Withdraw")
    expect(told(ann)).to_contain_text("Withdrawn.")
    expect(ann.locator("h1:visible")).to_contain_text("withdrawn")
    it_is_proposed(ann, app, "Of the arithmetic that ships with the program.")


def it_is_approved_while_it_is_withdrawn(ann: Page, bob: Page, app: Application) -> None:
    """Ann's window still shows the proposal as open: what she does there leads on."""
    approve(bob, ann.url, app)
    press(ann, "Withdraw")
    expect(told(ann)).to_contain_text("This proposal is approved, so nothing is decided on it any more")
    expect(told(ann)).to_contain_text("its use says what is in force, and the setting's page proposes it anew.")
    expect(ann.locator("h1:visible")).to_contain_text("approved")


def approve(bob: Page, proposal: str, app: Application) -> None:
    bob.goto(proposal)
    expect(bob.get_by_label("Requirements").locator("tbody tr")).to_contain_text("met")
    settled(bob)
    press(bob, "Approve")
    expect(told(bob)).to_have_text("Approved: the setting is the approved one for Support chat now.")
    expect(bob.locator("h1:visible")).to_contain_text("approved")


def it_is_called_by_its_name_at_every_door(ann: Page, app: Application) -> None:
    """On every page that names it, and in what is exported."""
    for path in ("/", "/experiments", "/runs?turns=true", "/settings", "/review", f"/review?use={USE}"):
        go(ann, f"{app.url}{path}")
        expect(ann.locator("body")).to_contain_text(PAIR)
        expect(ann.locator("body")).not_to_contain_text(BY_MODELS)
    runs = ",".join(run.id for run in app.repository.runs(limit=4))
    for export in (f"comparison.tex?runs={runs}", f"comparison.html?runs={runs}", f"review.csv?use={USE}"):
        answer = ann.request.get(f"{app.url}/export/{export}")
        assert (answer.status, BY_MODELS in answer.text()) == (200, False)
        assert PAIR in answer.text() or "review.csv" in export


def another_replaces_it(ann: Page, bob: Page, app: Application) -> None:
    """From the page of the setting that is not in force, of the two that were tried."""
    ann.goto(f"{app.url}/settings")
    rows = ann.locator("#settings tbody tr")
    expect(rows.filter(has_text="Support chat")).to_have_count(1)
    rows.filter(has_text="≤").filter(has_not_text="Support chat").first.get_by_role("link").first.click()
    ann.get_by_role("link", name="Propose it for a use").click()
    propose(ann, "The other one.")
    approve(bob, ann.url, app)


def reviewers_do_not_roll_back(bob: Page, app: Application) -> None:
    go(bob, f"{app.url}/review?use={USE}")
    expect(bob.get_by_role("button", name="Roll back to what was approved before")).to_be_disabled()
    expect(bob.get_by_text("Rolling back needs the role admin, and Bob is reviewer")).to_be_visible()


def roll_back(cat: Page, app: Application, button: str, field: str, why: str, logged: str) -> None:
    go(cat, f"{app.url}/review?use={USE}")
    cat.get_by_label(field).fill(why)
    press(cat, button)
    newest = cat.get_by_label("What was decided").locator("tbody tr").first
    expect(newest).to_contain_text(why)
    expect(newest).to_contain_text(logged)


def delivered(ann: Page, app: Application, setting: str) -> str:
    """The Python of the setting's page. It names the folders of this machine once, to be replaced."""
    go(ann, f"{app.url}/settings?setting={setting}")
    expect(ann.locator("h1:visible + .fsd-lead")).to_contain_text(f"{PAIR} · setting {setting}")
    form = ann.locator("details", has=ann.locator("summary", has_text="Python"))
    form.locator("summary").click()
    return form.locator("pre").inner_text()


def measured_settings(page: Page, app: Application) -> list[str]:
    """The addresses of the settings, as their page lists them under the pair's name."""
    go(page, f"{app.url}/settings")
    rows = page.locator("#settings tbody tr")
    expect(rows.filter(has_text=PAIR)).to_have_count(rows.count())
    return sorted(link.get_attribute("href") or "" for link in rows.locator("td:first-child a").all())


def the_workspace_is_exported(cat: Page, app: Application, file: Path) -> None:
    go(cat, f"{app.url}/runs")
    with cat.expect_download() as download:
        cat.get_by_role("link", name="Export everything").click()
    download.value.save_as(file)


def the_new_folders_are_named(bob: Page, app: Application, former: Path, folder: Path) -> None:
    """Where the models were looked for is told. They are taken from elsewhere, for they are the same."""
    bob.goto(f"{app.url}/experiments")
    expect(bob.get_by_text("generations").first).to_be_visible()
    settled(bob)
    bob.get_by_role("button", name="Your own models").click()
    line = bob.locator("#own-pairs .more-task")
    expect(line).to_contain_text("cannot be used")
    expect(line).to_contain_text(f"The folder {former}/target holds no target: config.json is missing.")
    expect(line).to_contain_text("add it again under its name, with the folder where they are.")
    bob.get_by_label("Pair's name").fill(PAIR)
    for role in ("target", "draft"):
        bob.get_by_label(role.capitalize(), exact=True).fill(f"{folder}/{role}")
    bob.get_by_role("button", name="Add the pair").click()
    answer = bob.locator("#models-answer")
    expect(answer).to_contain_text(f"{PAIR} is added and chosen: here.")
    expect(answer).to_contain_text(
        f"Its weights are those that were measured: they were in {former}/target, {former}/draft."
    )
    expect(line).to_contain_text(f"here · target {folder}/target, draft {folder}/draft")


def answered(code: str, home: Path) -> str:
    """What the delivered code writes to a prompt, on a machine with this home."""
    home.mkdir(exist_ok=True)
    prompt = json.loads(file_of(FORM).splitlines()[0])["question"]
    code = f"prompt = {prompt!r}\n{code}\nprint(pair.tokenizer.decode(output[0]))\n"
    environment = os.environ | {"FSD_HOME": str(home), "FSD_THREADS": "1", "FSD_DEVICE": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pair_goes_from_its_folders_to_a_setting_in_force_and_to_another_machine(
    page: Page, fresh: Page, tmp_path: Path, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FSD_MODEL_ROOTS", raising=False)
    workspace = tmp_path / "workspace.zip"
    with running(tmp_path / "a" / "home", pair, "seven") as app:
        folder = app.settings.home / "own-models" / "seven"
        token = accounts.add_token(app.repository, "fleet", "viewer")
        enter(page, app, "Ann")
        enter(fresh, app, "Bob")
        the_form_that_the_pair_lacks_is_told(page, app)
        a_pair_is_added_under_a_name(page, app, folder)
        little_is_asked(page)
        a_setting_is_found(page)
        it_is_proposed(page, app)
        changes_are_asked_for(page, fresh, app)
        it_is_proposed_again(page, app)
        it_is_approved_while_it_is_withdrawn(page, fresh, app)
        it_is_called_by_its_name_at_every_door(page, app)
        assert states(page, app, token) == ["approved", "withdrawn"]
        status, approved = ask(app, token, f"/api/v1/uses/{USE}/approved")
        assert status == 200

        another_replaces_it(page, fresh, app)
        assert states(page, app, token) == ["approved", "replaced", "withdrawn"]
        reviewers_do_not_roll_back(fresh, app)
        enter(fresh, app, "Cat")
        roll_back(
            fresh, app, "Roll back to what was approved before", "Why it is rolled back", "No faster.", "rolled back: "
        )
        assert states(page, app, token) == ["taken back", "approved", "withdrawn"]
        _, former = ask(app, token, f"/api/v1/uses/{USE}/approved")
        assert (former["setting"], former["weights"]) == (approved["setting"], approved["weights"])
        roll_back(
            fresh, app, "Take the approval back", "Why the approval is taken back", "No more chat.", "taken back: "
        )
        assert states(page, app, token) == ["taken back", "taken back", "withdrawn"]
        status, refused = ask(app, token, f"/api/v1/uses/{USE}/approved")
        assert (status, "Cat took back what was approved" in refused["detail"]) == (404, True)

        code = delivered(page, app, approved["setting"])
        assert [line.partition(" = ")[0] for line in code.splitlines() if str(tmp_path) in line] == ["models"]
        settings, decided = measured_settings(page, app), app.repository.review_log()
        the_workspace_is_exported(fresh, app, workspace)

    with running(tmp_path / "b" / "home", folder, "moved") as app:
        there = app.settings.home / "own-models" / "moved"
        command = [sys.executable, "-m", "fsd_core", "import", str(workspace)]
        subprocess.run(command, cwd=ROOT, env=app.environment, check=True, capture_output=True)
        forget(fresh.context)
        fresh = fresh.context.new_page()
        enter(fresh, app, "Bob")
        the_new_folders_are_named(fresh, app, folder, there)
        assert measured_settings(fresh, app) == settings
        assert app.repository.review_log() == decided
        assert delivered(fresh, app, approved["setting"]) == code
    assert "#### 63" in answered(code, app.settings.home)
    models = {role: f"{there}/{role}" for role in ("target", "draft")}
    assert "#### 63" in answered(re.sub("(?m)^models = .*$", f"models = {models}", code), tmp_path / "c")
