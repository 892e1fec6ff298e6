"""The playground in a browser. The test writes to the stream what a worker would."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Response, Route, expect

from fsd_core.storage.messages import Chunk, EmittedToken, StreamFigures
from fsd_core.storage.tables import JobRow
from tests.tools.settled import acts, go, meanwhile, settled, watch
from tests.tools.site import Site
from tests.tools.sizes import PATIENCE

pytestmark = pytest.mark.ui

HOSTILE = ["<img src=x", " onerror=alert(1)>", " ${alert(1)}", " {{7*7}}", " `ls`", "\n#### 31"]
KINDS = ["strict", "lenient", "correction", "bonus", "strict", "strict"]


@pytest.fixture(autouse=True)
def worker_that_is_there(site: Site) -> Iterator[None]:
    """A worker that reports itself every second, as the test last said of it."""
    site.repository.report_worker(1, "host", "cpu", "idle")
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(1):
            if worker := site.repository.worker():
                site.repository.report_worker(worker.pid, worker.host, worker.device, worker.activity)

    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    yield
    ended.set()
    heart.join()


def claim(page: Page, site: Site) -> JobRow:
    """The job that the page has just written."""
    return meanwhile(page, lambda: site.repository.claim(("playground",), PATIENCE), "a job of the page's")


def chunk(setting: int, texts: list[str], *, done: bool = True, error: str | None = None) -> Chunk:
    """What the worker appends: one token per text, of all kinds in turn."""
    tokens = [
        EmittedToken(text, ord(text[-1]), kind, 0.1234, 0.4567, 0.75, 0.6)
        if kind != "bonus"
        else EmittedToken(text, ord(text[-1]), kind, probability=0.6)
        for text, kind in zip(texts, KINDS, strict=False)
    ]
    tokens = [token._replace(rejected="<b>7") if token.kind == "correction" else token for token in tokens]
    figures = StreamFigures(len(tokens), 2, 0.1, 100.0 + 31 * setting, 0.8, 3.0)
    return Chunk(setting, tuple(tokens), figures, done, "eos" if done else None, error)


def finish(site: Site, job: JobRow, status: str = "finished", error: str | None = None) -> None:
    assert job.claim_token is not None
    site.repository.finish_job(job.id, job.claim_token, status, error)


def prompt(page: Page) -> Locator:
    return page.locator("#prompt-text textarea")


def start(page: Page, site: Site) -> JobRow:
    page.get_by_role("button", name="Generate").click()
    return claim(page, site)


def test_the_page_is_marked_tells_of_the_worker_and_two_settings_are_asked_for_written_compared_and_shown_as_they_are(
    page: Page, site: Site
) -> None:
    page.goto(f"{site.url}/playground")
    expect(page.locator(".fsd-worker")).to_contain_text("worker ready")
    expect(page.locator(".fsd-nav a[aria-current=page]")).to_have_text("Playground")
    site.repository.report_worker(1, "host", "cpu", "SD · γ 5: prompt 3 of 50")
    expect(page.locator(".fsd-worker")).to_contain_text("SD · γ 5: prompt 3 of 50")

    legend = page.get_by_role("list", name="What the colours mean").locator(".tok")
    expect(legend).to_have_count(0)  # there is nothing to explain yet
    prompt(page).fill("Question: 2 + 2?\nAnswer:")
    job = start(page, site)
    assert job.payload["prompt"] == "Question: 2 + 2?\nAnswer:"
    assert [s["acceptance"]["kind"] for s in job.payload["settings"]] == ["speculative", "fsd-reducible"]
    assert job.priority == 10
    expect(page.locator("#verdict")).to_contain_text("is loading the models")

    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[:2], done=False)])
    expect(page.locator("#lane-1 .tok")).to_have_count(2)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[2:]), chunk(1, HOSTILE)])
    finish(site, job)
    expect(page.locator("#verdict")).to_contain_text("1.31× as fast as SD · γ 5; their texts are identical")
    expect(page.locator("#verdict")).to_contain_text("one timing of one text")
    expect(page.locator("#lane-2 .live")).to_contain_text("131")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()

    expect(legend).to_have_count(5)
    lines = legend.evaluate_all(
        "all => all.map(e => getComputedStyle(e)).map(s => [s.textDecorationLine, s.textDecorationStyle])"
    )
    assert sorted(style for line, style in lines if line == "underline") == ["dashed", "dotted", "double", "solid"]
    assert [line for line, _ in lines].count("none") == 1  # plain tokens

    # A text that would do harm is shown as it is, and its tokens tell their numbers.
    prompt(page).fill("".join(HOSTILE))
    job = start(page, site)
    assert job.payload["prompt"] == "".join(HOSTILE)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, [], error="No <b>${alert(2)}</b>")])
    finish(site, job)
    expect(page.locator("#lane-1 .toks")).to_have_text("".join(HOSTILE), use_inner_text=True)
    expect(page.locator("#lane-2")).to_contain_text("No <b>${alert(2)}</b>")
    detail = page.locator("#tok-detail")
    page.locator("#lane-1 .tok.correction").click()
    expect(detail).to_contain_text('Rejected: "<b>7"')
    assert page.locator(".lane img, .lane b, #tok-detail dl b").count() == 0

    page.locator("#lane-1 .tok.lenient").click()
    expect(detail).to_contain_text("only because the rule is lenient")
    for number in ("0.1234", "0.457", "0.750"):
        expect(detail).to_contain_text(number)

    page.locator("#lane-1 .tok").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("one token more")
    expect(detail).not_to_contain_text("divergence")
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()


@pytest.mark.wide
def test_controls_follow_the_algorithm_up_to_four_settings_and_bad_input_is_told(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/playground")
    prompt(page).fill("  ")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The prompt is empty: write one, or pick an example.")).to_be_visible()
    prompt(page).fill("Hello")
    second = page.locator(".setting").nth(1)
    expect(second.get_by_label("Threshold")).to_be_hidden()
    unfold_settings(page)
    expect(second).to_contain_text("0 to 0.693 nats")
    second.get_by_label("Threshold").fill("0.9")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("alert")).to_contain_text("beyond the range of the divergence 'js'")
    assert site.repository.claim(("playground",), 1) is None  # neither of them began anything

    second.get_by_label("Rule").click()
    page.get_by_role("option", name="Target alone").click()
    expect(second).to_contain_text("lossless")
    expect(second.locator(".setting-line p")).to_have_text("Target alone")
    for label in ("Threshold", "Divergence", "Drafter", "Draft length γ"):
        expect(second.get_by_label(label, exact=True)).to_be_hidden()

    more = page.get_by_role("button", name="Add a setting")
    for shown in (3, 4):
        more.click()
        expect(page.locator(".setting:visible")).to_have_count(shown)
    expect(more).to_be_disabled()
    job = start(page, site)
    assert len(job.payload["settings"]) == 4
    finish(site, job, "failed", "The models of the pair cannot be read.")
    expect(page.locator("#verdict")).to_contain_text("The models of the pair cannot be read.")


@pytest.mark.wide
def test_what_is_chosen_while_an_answer_is_on_its_way_is_followed_asked_for_and_found_again(
    page: Page, site: Site
) -> None:
    held: list[Route] = []
    released = False
    go(page, f"{site.url}/playground")
    unfold_settings(page)
    second = page.locator(".setting").nth(1)
    expect(second.get_by_label("Tree tokens")).to_be_hidden()
    asked = acts(page)
    page.route(
        "**/gradio_api/run/**",
        lambda route: held.append(route) if not released and len(asked) > len(held) else route.continue_(),
    )
    for label, option in (("Drafter", "EAGLE head"), ("Topology", "Tree")):
        second.get_by_label(label, exact=True).click()
        page.get_by_role("option", name=option, exact=True).click()
        expect(second.get_by_label(label, exact=True)).to_have_value(option)
        meanwhile(page, lambda: held, "a question")
    assert len(held) == 1  # the second choice waits for the answer to the first, which is asked for once
    released = True
    held[0].continue_()
    second.get_by_label("Tree tokens").fill("17")

    job = start(page, site)
    asked = job.payload["settings"][1]
    assert asked["drafter"] == {"kind": "eagle"}
    assert asked["topology"] == {"kind": "dynamic-tree", "length": 16, "top_k": 10, "total_tokens": 17}
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[:2], done=False)])
    expect(page.locator("#lane-1 .tok")).to_have_count(2)
    page.reload()
    expect(page.locator("#lane-1 .tok")).to_have_count(2)
    unfold_settings(page)
    expect(second.get_by_label("Topology")).to_have_value("Tree")
    expect(second.get_by_label("Drafter")).to_have_value("EAGLE head")
    expect(second.get_by_label("Tree tokens")).to_have_value("17")
    finish(site, job)


@pytest.mark.wide
def test_a_search_tree_of_a_table_is_offered_and_asked_for(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    unfold_settings(page)
    second = page.locator(".setting").nth(1)
    for label, option in (("Drafter", "Tri-gram table"), ("Topology", "Search tree")):
        second.get_by_label(label, exact=True).click()
        page.get_by_role("option", name=option, exact=True).click()
        expect(second.get_by_label(label, exact=True)).to_have_value(option)
    for label in ("Learning window", "Copies from", "Tree tokens", "Search"):
        expect(second.get_by_label(label, exact=True)).to_be_visible()
    for label in ("Iterations", "Tree width", "Longest match"):
        expect(second.get_by_label(label, exact=True)).to_be_hidden()
    second.get_by_label("Tree tokens").fill("9")
    job = start(page, site)
    asked = job.payload["settings"][1]
    assert asked["drafter"]["kind"] == "trigram"
    assert (asked["topology"]["kind"], asked["topology"]["total_tokens"]) == ("search-tree", 9)
    finish(site, job)


def choose(page: Page, label: str, option: str | int) -> None:
    page.get_by_label(label, exact=True).click()
    options = page.get_by_role("option")
    (options.nth(option) if isinstance(option, int) else options.filter(has_text=option)).click()


def unfold_settings(page: Page) -> None:
    """Opens the lines of the settings, and what is rarely changed of them."""
    expect(page.locator(".setting-head details").first).to_be_visible()
    for lines in (".setting-head details", ".rare details"):
        for line in page.locator(lines).all():
            if line.is_visible() and line.get_attribute("open") is None:
                line.locator("summary").click()
    expect(page.get_by_label("Rule").first).to_be_visible()


def unfold_sampling(page: Page) -> None:
    """Opens the line that the sampling folds to while it is the usual one."""
    page.locator("#sampling button").first.click()
    expect(page.get_by_label("Temperature")).to_be_visible()


@pytest.mark.wide
def test_examples_fill_the_prompt_are_of_what_the_pair_knows_and_a_list_that_is_merely_left_changes_nothing(
    page: Page, site: Site
) -> None:
    page.goto(f"{site.url}/playground")
    expect(prompt(page)).to_have_value(re.compile(r"^Question: "))
    example = page.get_by_label("Example", exact=True)
    first = example.input_value()
    assert first
    assert f"Question: {first}" in prompt(page).input_value()  # the one that is loaded
    expect(page.get_by_label("Temperature")).to_be_hidden()
    expect(page.locator(".setting:visible").first).to_be_visible()
    assert len({round(one.bounding_box()["height"]) for one in page.locator(".setting:visible").all()}) == 1  # type: ignore[index]
    top = page.locator("#lane-1").bounding_box()
    assert top is not None
    assert top["y"] < 450, "the texts begin on the upper half of the first screen"
    prompt(page).fill("My own")
    expect(example).to_have_value("")
    for _ in range(2):  # the same once more
        prompt(page).fill("")
        choose(page, "Example", 2)
        expect(prompt(page)).to_have_value(re.compile(r"^Question: .+\nAnswer:$"))
    page.get_by_label("Example", exact=True).press("ArrowDown")
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_label("Example", exact=True)).to_have_value(re.compile("."))

    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(prompt(page)).to_have_value(re.compile(r"^Why is the sky blue"))
    expect(example).to_have_value(re.compile(r"^Why is the sky blue"))
    prompt(page).fill("My own words.")
    choose(page, "Model pair", "Bundled arithmetic pair")
    page.get_by_label("Example", exact=True).click()
    expect(page.get_by_role("option").nth(2)).to_contain_text(re.compile("How many|How much|left|each"))
    expect(prompt(page)).to_have_value("My own words.")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    settled(page)

    choose(page, "Example", 2)
    expect(prompt(page)).to_have_value(re.compile(r"^Question: .+\nAnswer:$"))
    prompt(page).fill("My own words.")
    settled(page)
    asked = acts(page)
    for label in ("Example", "Model pair"):
        page.get_by_label(label, exact=True).click()
        expect(page.get_by_role("option").first).to_be_visible()
        page.keyboard.press("Escape")
        page.locator("h1").click()
    settled(page)
    assert asked == []
    page.get_by_role("button", name="Add a setting").click()
    expect(page.locator(".setting:visible")).to_have_count(3)
    expect(prompt(page)).to_have_value("My own words.")
    assert len(asked) == 1


@pytest.mark.wide
def test_stop_asks_the_worker_and_keeps_what_is_written_after_a_reload_too(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/playground")
    for reloaded in (False, True):
        job = start(page, site)
        expect(page.locator("#verdict")).to_contain_text("is loading the models")  # the browser has heard of its job
        if reloaded:
            page.reload()
        site.repository.append_chunks(job.id, [chunk(0, HOSTILE[:2], done=False)])
        expect(page.locator("#lane-1 .tok")).to_have_count(2)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        assert site.repository.cancel_requested(job.id)
        finish(site, job, "cancelled")
        expect(page.locator("#verdict")).to_contain_text("Stopped.")
        expect(page.locator("#lane-1 .tok")).to_have_count(2)


@pytest.mark.wide
def test_a_reload_finds_the_job_again_with_the_form_that_asked_for_it(page: Page, site: Site) -> None:
    go(page, f"{site.url}/playground")
    prompt(page).fill("".join(HOSTILE))
    page.get_by_role("button", name="Add a setting").click()
    expect(page.locator(".setting:visible")).to_have_count(3)
    settled(page)
    unfold_settings(page)
    page.locator(".setting").nth(1).get_by_label("Threshold").fill("0.25")
    unfold_sampling(page)
    page.get_by_label("Temperature").fill("0.5")
    expect(page.locator("#sampling")).to_contain_text("Sampling: temperature 0.5, at most 128 tokens, seed 0")
    job = start(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[:2], done=False)])
    expect(page.locator("#lane-1 .tok")).to_have_count(2)

    page.reload()
    expect(page.locator("#lane-1 .tok")).to_have_count(2)
    expect(prompt(page)).to_have_value("".join(HOSTILE))
    expect(page.locator(".setting:visible")).to_have_count(3)
    unfold_settings(page)
    expect(page.locator(".setting").nth(1).get_by_label("Threshold")).to_have_value("0.25")
    expect(page.get_by_label("Temperature")).to_have_value("0.5")
    expect(page.get_by_role("button", name="Generate")).to_be_disabled()
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE[2:]), chunk(1, HOSTILE), chunk(2, HOSTILE)])
    expect(page.locator("#lane-3 .tok")).to_have_count(len(HOSTILE))

    page.get_by_role("link", name="Runs", exact=True).click()
    finish(site, job)
    page.get_by_role("link", name="Playground").click()
    expect(page.locator("#lane-1 .toks")).to_have_text("".join(HOSTILE), use_inner_text=True)
    expect(page.locator("#verdict")).to_contain_text("their texts are identical")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()


def found_again(response: Response) -> bool:
    """Whether it is the answer of what the page shows."""
    return questions(response.request)


def questions(request: Request) -> bool:
    """Whether the page asks what it shows: with all that is filled in."""
    asks = request.method == "POST" and "/gradio_api/run/" in request.url
    return asks and len((request.post_data_json or {})["data"]) > 20


def remember(page: Page, job: str) -> None:
    """A tab that knows nothing, in a browser that has shown this job."""
    page.evaluate(
        "([job, name]) => { for (const kept of [sessionStorage, localStorage]) kept.clear();"
        " if (job) localStorage.setItem(name, JSON.stringify({job})); }",
        [job, remembered_name(page.evaluate("fetch('/').then((answer) => answer.text())"))],
    )


def remembered_name(html: str) -> str:
    """Under which name the browser remembers a job for the person of a page."""
    person, installation = re.findall('name="fsd-person" content="(.*?)" data-installation="(.*?)"', html)[0]
    return f"fsd {installation} {person} remembered /playground"


@pytest.mark.wide
def test_no_browser_sees_the_job_of_another(page: Page, site: Site, browser: Browser) -> None:
    page.goto(f"{site.url}/playground")
    job = start(page, site)
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    expect(page.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))
    tab = page.context.new_page()
    with tab.expect_response(found_again) as told:
        tab.goto(f"{site.url}/playground")
    assert job.id in told.value.text()
    expect(tab.locator("#lane-1 .tok")).to_have_count(len(HOSTILE))  # the same browser
    tab.close()

    with closing(browser.new_context()) as other:
        other.set_default_timeout(1000 * PATIENCE)
        watch(other)
        stranger = other.new_page()
        stranger.goto(f"{site.url}/theme.css")
        for kept in ("", "f" * 32, "<img src=x>"):
            remember(stranger, kept)
            with stranger.expect_response(found_again) as told:
                stranger.goto(f"{site.url}/playground")
            assert job.id not in told.value.text()
            settled(stranger)
            expect(stranger.locator("#lane-1")).to_contain_text("appears here")
            expect(stranger.get_by_role("button", name="Generate")).to_be_enabled()
    finish(site, job)
