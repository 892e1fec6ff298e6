"""Tasks of one's own in a browser: a file is checked, looked at and added, by those who may. It stays text."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from dashboard.ui.fields import LARGEST_UPLOAD, OTHER_TASK
from fsd_core import accounts
from tests.tools.planted import HOSTILE, PLANTED
from tests.tools.settled import Held, acting, settled
from tests.tools.site import Site, serving
from tests.ui.test_sign_in import PASSWORD, sign_in

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_custom_reading.py")]


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def opened(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible()  # the form is alive
    unfold(page)


def unfold(page: Page) -> None:
    page.get_by_role("button", name="Your own tasks").click()
    expect(page.get_by_label("File of prompts")).to_be_visible()


def choose(page: Page, name: str, data: bytes) -> None:
    page.get_by_label("File of prompts").set_input_files({"name": name, "mimeType": "text/plain", "buffer": data})


def test_a_file_is_checked_looked_at_added_and_offered(page: Page, site: Site) -> None:
    opened(page, site)
    answer = page.locator("#own-answer")
    choose(page, "My Sums.jsonl", lines({"prompt": "2 + 3 = ?", "reference": 5}, {"prompt": "", "reference": 1}) + b"x")
    expect(answer.get_by_role("alert")).to_contain_text("The file has 2 problems, so it cannot be added yet.")
    expect(answer.locator("li")).to_contain_text(["Line 2: Its prompt is empty", "Line 3: It is not JSON"])
    page.get_by_role("button", name="Add", exact=True).click()
    expect(answer.locator("li")).to_have_count(2)
    assert site.repository.task_versions() == []

    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "7 × 8 = ?"}]
    content = lines({"scorer": "number"}, {"prompt": "2 + 3 = ?", "reference": 5}, {"messages": asked, "reference": 56})
    choose(page, "My Sums.jsonl", content)
    expect(answer.locator(".fsd-notice")).to_contain_text("my-sums: 2 prompts in order. Scorer: Number.")
    expect(answer.locator("li pre")).to_have_text(["2 + 3 = ?", "System: Be brief.\n\nUser: 7 × 8 = ?"])
    page.get_by_label("Shown as").fill("My <b>sums</b>")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(answer.locator(".fsd-notice")).to_contain_text("is in the list of tasks, with 2 prompts.")
    (kept,) = site.repository.task_versions()
    assert (kept.name, kept.title, kept.scorer, kept.added_by) == ("my-sums", "My <b>sums</b>", "number", "local user")
    expect(page.locator("#own-tasks .more-task")).to_contain_text(kept.full_name)

    expect(page.get_by_label("Task", exact=True)).to_have_value(f"My <b>sums</b> · {kept.version[:8]}")
    expect(page.get_by_label("Prompts", exact=True)).to_have_value("2")
    expect(page.get_by_text("× 2 prompts")).to_be_visible()
    expect(page.get_by_text(OTHER_TASK)).to_be_visible()
    page.get_by_label("Prompts", exact=True).fill("3")
    expect(page.locator(".exp-size .fsd-notice")).to_contain_text("has 2 prompts: expected “Prompts” from 1 to 2.")
    page.get_by_label("Prompts", exact=True).fill("2")
    page.get_by_label("Name", exact=True).fill("On my own")
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("article.exp", has_text="On my own")).to_be_visible()
    experiment = site.repository.experiments()[0]
    assert {run.task for run in experiment.runs} == {kept.full_name}
    page.goto(f"{site.url}/runs?run={experiment.runs[0].id}")
    expect(page.locator(".fsd-lead")).to_contain_text(kept.full_name)
    page.get_by_text("Settings and provenance").click()
    expect(page.locator("details", has_text="Settings and provenance")).to_contain_text(
        f"My <b>sums</b>Version of the task{kept.version}Scorernumber"
    )
    link = page.get_by_role("link", name="Prompts of the task").get_attribute("href")
    file = page.request.get(f"{site.url}/{link}")
    assert file.headers["content-disposition"] == f'attachment; filename="my-sums-{kept.version}.jsonl"'
    assert file.text() == site.repository.task_content(kept.name, kept.version)
    assert page.request.get(f"{site.url}/export/task.jsonl?task=my-sums@0000000000000000").status == 404
    page.goto(f"{site.url}/runs")
    page.get_by_label("Task", exact=True).click()
    page.get_by_role("option", name="My <b>sums</b>").click()
    expect(page.locator("#runs tbody tr")).to_have_count(len(experiment.runs))
    expect(page).to_have_url(re.compile("task=my-sums"))
    page.reload()
    expect(page.locator("#runs tbody tr")).to_have_count(len(experiment.runs))


def test_a_dropped_file_is_guessed_shown_and_used(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible()
    use = page.get_by_role("button", name="Use this file")
    expect(use).to_be_hidden()
    rows = lines({"frage": "2 + 3 = ?", "antwort": "5"}, {"frage": "<b>4</b> + 3 = ?", "antwort": "7"})
    dropped = page.evaluate_handle(
        "text => { const all = new DataTransfer(); all.items.add(new File([text], 'Dropped.jsonl')); return all; }",
        rows.decode(),
    )
    page.get_by_label("Or drop your own file").dispatch_event("drop", {"dataTransfer": dropped})
    answer = page.locator("#drop-answer")
    expect(answer).to_contain_text("dropped: 2 prompts in order. Scorer: Number.")
    expect(answer).to_contain_text(
        "Prompt: frage. Reference: antwort. Scorer: Number, since every reference is a number."
    )
    expect(answer.locator("li pre")).to_have_text(["2 + 3 = ?", "<b>4</b> + 3 = ?"])
    expect(page.get_by_role("button", name="Measure my own list on it")).to_be_visible()  # too few for a search
    page.get_by_label("Model pair", exact=True).fill("smollm2")  # of which no form is told
    page.keyboard.press("Enter")
    expect(page.get_by_text("This pair knows only")).to_have_count(0)
    expect(page.get_by_role("button", name="Measure my own list on it")).to_be_visible()
    assert "dropped" not in {task.name for task in site.repository.task_versions()}
    use.click()
    expect(answer).to_contain_text("is in the list of tasks, with 2 prompts.")
    expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("^dropped · "))
    (kept,) = (task for task in site.repository.task_versions() if task.name == "dropped")
    assert (kept.scorer, kept.prompts) == ("number", 2)


def test_what_is_chosen_while_a_task_is_added_stays(page: Page, site: Site) -> None:
    opened(page, site)
    prompts = page.get_by_label("Prompts", exact=True)
    choose(page, "late.jsonl", lines({"prompt": "2 + 3 = ?"}))
    expect(page.locator("#own-answer li pre")).to_have_text("2 + 3 = ?")
    held = Held(page, answers=True, only=acting)
    page.get_by_role("button", name="Add", exact=True).click()
    held.wait()
    prompts.fill("7")
    held.release()
    expect(page.locator("#own-tasks")).to_contain_text("late@")
    expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("^late · "))
    settled(page)
    expect(prompts).to_have_value("7")
    expect(page.locator(".exp-size .fsd-notice")).to_contain_text("has 1 prompt: expected “Prompts” from 1 to 1.")


def test_fields_are_named_and_those_that_are_not_read_are_told(page: Page, site: Site) -> None:
    opened(page, site)
    answer = page.locator("#own-answer")
    rows = [{"question": "2 + 3 = ?", "answer": 5, HOSTILE[:40]: 1}, {"question": "7 × 8 = ?", "answer": 56}]
    choose(page, "Sums.json.gz", gzip.compress(json.dumps(rows).encode()))
    expect(answer.locator("li pre")).to_have_text(["2 + 3 = ?", "7 × 8 = ?"])
    expect(answer).to_contain_text(f"Fields that are not used: {HOSTILE[:40]!r} (1 row).")
    expect(answer.locator("li")).to_contain_text(["Reference: 5", "Reference: 56"])
    answer.get_by_label("answer").select_option("Left out")
    expect(answer).to_contain_text("Scorer: None: fidelity.")
    expect(answer.get_by_label("answer")).to_have_value("")
    answer.get_by_label("answer").select_option("Reference")
    expect(answer).to_contain_text("Scorer: Number.")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#own-tasks")).to_contain_text("sums@")
    assert page.locator(PLANTED).count() == 0


def test_what_a_file_holds_is_never_run(page: Page, site: Site) -> None:
    opened(page, site)
    choose(page, "evil<img src=x onerror=alert(1)>.jsonl", lines({"prompt": HOSTILE, "id": HOSTILE[:90]}))
    expect(page.locator("#own-answer li pre")).to_have_text(HOSTILE[:400])
    page.get_by_label("Identifier").fill("../../etc/passwd")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#own-answer").get_by_role("alert")).to_contain_text("'../../etc/passwd' cannot be used")
    page.get_by_label("Identifier").fill("evil")
    page.get_by_label("Shown as").fill(HOSTILE[:110])
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#own-tasks")).to_contain_text("evil@")
    choose(page, "x.jsonl", lines({HOSTILE: 1}, {"prompt": "a", "messages": HOSTILE}, {"prompt": "b", "id": [HOSTILE]}))
    expect(page.locator("#own-answer li")).to_have_count(3)
    page.get_by_label("Task", exact=True).click()
    expect(page.get_by_role("option", name=HOSTILE[:60])).to_be_visible()
    # A picture of the test's own that is not there: what was planted before would have been tried before.
    page.evaluate("() => new Promise((done) => Object.assign(new Image(), {src: '/nosuch.png', onerror: done}))")
    assert page.locator(PLANTED).count() == 0


def test_what_is_no_file_of_text_is_told_of(page: Page, site: Site) -> None:
    opened(page, site)
    answer = page.locator("#own-answer").get_by_role("alert")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(answer).to_have_text("No file is chosen: choose one of CSV, TSV, XLSX, Parquet, JSON or JSON Lines first.")
    choose(page, "large.jsonl", b"x" * (LARGEST_UPLOAD + 1))
    expect(answer).to_contain_text("The file has 1,000,001 bytes: expected at most 1,000,000 here.")
    choose(page, "picture.jsonl", b"\xff\xd8\xff")
    expect(page.locator("#own-answer li")).to_contain_text("The file is not UTF-8 from byte 1 on")
    largest = lines({"prompt": "x"}).ljust(LARGEST_UPLOAD, b" ")
    choose(page, "full.jsonl", largest)
    expect(page.locator("#own-answer .fsd-notice")).to_contain_text("full: 1 prompt in order.")
    assert not [path for path in site.temporary.rglob("*") if path.is_file() and path.stat().st_size > 1000]


def test_a_file_in_the_folder_is_a_task_and_a_broken_one_is_told_of(page: Page, site: Site) -> None:
    (site.home / "tasks").mkdir()
    (site.home / "tasks" / "mail.jsonl").write_bytes(lines({"prompt": "Dear all,"}))
    (site.home / "tasks" / "bad.jsonl").write_bytes(b"<script>alert(1)</script>")
    opened(page, site)
    expect(page.locator("#own-tasks")).to_contain_text("mail@")
    expect(page.locator("#own-tasks .fsd-notice.warn")).to_contain_text("bad.jsonl has 1 problem. The file is no JSON")
    (site.home / "tasks" / "mail.jsonl").write_bytes(lines({"prompt": "Dear all, again"}))
    expect(page.locator("#own-tasks")).to_contain_text("2 versions")
    assert [view.added_by for view in site.repository.task_versions("mail")] == ["task folder"] * 2


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application where people sign in."""
    with serving(tmp_path_factory.mktemp("closed"), FSD_ACCESS="password") as site:
        for role in ("viewer", "author"):
            accounts.add_user(site.repository, role.capitalize(), role, PASSWORD)
        yield site


def test_a_viewer_adds_nothing(page: Page, closed: Site) -> None:
    sign_in(page, closed, "Viewer", "/experiments")
    unfold(page)
    why = re.compile("Adding a task needs the role author, and Viewer is viewer")
    for needed in ("custom task", "dropped file"):
        fields = page.locator(f"fieldset[data-needs='{needed}']")
        expect(fields).to_have_attribute("title", why)
        expect(fields.locator("input")).to_be_disabled()
    dropped = page.evaluate_handle(
        "() => { const all = new DataTransfer(); all.items.add(new File(['{}'], 'x.json')); return all; }"
    )
    page.get_by_label("Or drop your own file").dispatch_event("drop", {"dataTransfer": dropped})
    settled(page)
    expect(page.locator("#drop-answer")).to_be_empty()
    assert closed.repository.task_versions() == []


def test_an_author_adds_under_their_name(page: Page, closed: Site) -> None:
    sign_in(page, closed, "Author", "/experiments")
    unfold(page)
    choose(page, "mine.jsonl", lines({"prompt": "x"}))
    expect(page.locator("#own-answer li")).to_have_count(1)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#own-tasks")).to_contain_text("mine@")
    assert [view.added_by for view in closed.repository.task_versions()] == ["Author"]
