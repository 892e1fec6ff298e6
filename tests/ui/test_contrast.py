"""Every text of every page, in both themes, has the contrast that WCAG AA asks for, computed from computed styles.

No page begins with more words than somebody reads, and none scrolls sideways, whatever the window's width.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.tools.every_page import EVERY_TAB, every_page
from tests.tools.plausible import add_finished, do_prompts, sweep
from tests.tools.settled import settled
from tests.tools.site import Site, serving
from tests.tools.worker_process import ROOT
from tests.ui.test_playground import HOSTILE, chunk
from tools.first_sight import MOST_WORDS, first_sight

pytestmark = pytest.mark.ui
CONTRAST = (ROOT / "tests" / "tools" / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def addresses(site: Site) -> dict[str, str]:
    """All pages of a lab with a finished experiment, one under way and a proposal."""
    add_finished(site.repository)
    running = site.repository.create_experiment(sweep("Under way"))
    do_prompts(site.repository, site.repository.experiment(running).runs[0], 5)
    return every_page(site.repository) | {"lost": "/runs?run=unknown"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application where people sign in."""
    with serving(tmp_path_factory.mktemp("home"), FSD_ACCESS="password") as site:
        yield site


STILL = """() => Promise.allSettled(document.getAnimations()
  .filter((one) => one.effect.getTiming().iterations !== Infinity).map((one) => one.finished))"""
"""a colour on its way to another is none to judge"""


WIDE, WIDTHS = {"width": 1440, "height": 1000}, (1024, 400)
"""the window, and what else it is narrowed to"""


def sideways(page: Page) -> dict[int, int]:
    """How far the open page reaches in a narrower window that it does not fit, by the width of the window."""
    reaches = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        settled(page)
        reaches[width] = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size(WIDE)
    return {width: reach for width, reach in reaches.items() if reach > width}


def failing(page: Page) -> list[str]:
    """The texts of the open page that are too faint; fails if there is hardly any text."""
    page.evaluate(STILL)
    found = page.evaluate(CONTRAST)
    assert found["texts"] > 2
    return found["failing"]


def failing_in_a_theme(page: Page) -> dict[str, list[str]]:
    """The same by theme: the open page takes over what the browser prefers."""
    faint: dict[str, list[str]] = {}
    for theme, dark in (("light", 0), ("dark", 1)):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        if page.locator(".gradio-container").count():  # other pages leave that to the style sheet
            expect(page.locator("body.dark, html.dark")).to_have_count(dark)
        faint[theme] = failing(page)
    return {theme: texts for theme, texts in faint.items() if texts}


@pytest.mark.wide
def test_every_text_can_be_read(page: Page, site: Site, addresses: dict[str, str]) -> None:
    faint, words, wide = {}, {}, {}
    tabs = {f"compare{tab}": addresses["compare"] + tab for tab in EVERY_TAB}
    for name, address in (addresses | tabs).items():
        page.goto(site.url + address)
        expect(page.locator("h1, .fsd-on").first).to_be_visible()
        settled(page)
        if name in addresses:
            words[name] = first_sight(page).words
        if name == "compare":
            expect(page.locator(".js-plotly-plot .legend").first).to_be_visible()
        for part in page.locator("details").all():
            part.evaluate("part => { part.open = true; }")
        faint[name] = failing_in_a_theme(page)
        wide[name] = sideways(page)
    page.goto(f"{site.url}/playground")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#lane-1")).to_contain_text("tokens/s")
    job = site.repository.claim(("playground",), 60)
    assert job is not None
    site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
    site.repository.finish_job(job.id, job.claim_token or "", "finished", None)
    expect(page.locator("#lane-2 .tok")).to_have_count(len(HOSTILE))
    page.locator("#lane-1 .tok").first.click()
    faint["tokens"] = failing_in_a_theme(page)
    assert not {name: texts for name, texts in faint.items() if texts}
    assert not {name: reaches for name, reaches in wide.items() if reaches}
    assert not {name: (len(read), read) for name, read in words.items() if len(read) > MOST_WORDS}
    assert sum(map(len, words.values())) > 200, "hardly any word was counted"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_to_sign_in_can_be_read(fresh: Page, closed: Site, theme: str) -> None:
    fresh.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    fresh.goto(f"{closed.url}/login")
    fresh.get_by_label("Name").fill("Somebody")
    fresh.get_by_label("Password").fill("wrong")
    fresh.get_by_role("button", name="Sign in").click()
    expect(fresh.get_by_role("alert")).to_be_visible()
    assert not failing(fresh)


def test_a_faint_text_is_found(page: Page) -> None:
    page.set_content('<p style="color: #999">One</p><p style="color: #000">Two three</p><p>4</p><p>5</p>')
    assert failing(page) == ["p. “One” 2.85 of 4.5"]
