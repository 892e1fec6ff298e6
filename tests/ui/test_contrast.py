"""Every text of every page, in both themes, has the contrast that WCAG AA asks for: computed from computed styles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.tools.every_page import every_page
from tests.tools.plausible import add_finished, do_prompts, sweep
from tests.tools.site import Site, serving
from tests.tools.worker_process import ROOT
from tests.ui.test_playground import HOSTILE, chunk

pytestmark = pytest.mark.ui
CONTRAST = (ROOT / "tests" / "tools" / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    """The application with a finished experiment, one under way and a proposal; and the addresses of all its pages."""
    with serving(tmp_path_factory.mktemp("home")) as site:
        add_finished(site.repository)
        running = site.repository.create_experiment(sweep("Under way"))
        do_prompts(site.repository, site.repository.experiment(running).runs[0], 5)
        yield site, every_page(site.repository) | {"lost": "/runs?run=unknown"}


SETTLED = """() => Promise.allSettled(document.getAnimations()
  .filter((one) => one.effect.getTiming().iterations !== Infinity).map((one) => one.finished))"""
"""a colour on its way to another is none to judge"""


def failing(page: Page) -> list[str]:
    """The texts of the open page that are too faint; fails if there is hardly any text."""
    page.evaluate(SETTLED)
    found = page.evaluate(CONTRAST)
    assert found["texts"] > 2
    return found["failing"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read(browser: Browser, filled: tuple[Site, dict[str, str]], theme: str) -> None:
    site, addresses = filled
    faint = {}
    with closing(browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme=theme)) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(30_000)
        for name, address in addresses.items():
            page.goto(site.url + address)
            expect(page.locator("h1, .fsd-on").first).to_be_visible()
            if name == "compare":
                expect(page.locator(".js-plotly-plot .legend").first).to_be_visible()
            page.wait_for_timeout(1200)
            for part in page.locator("details").all():
                part.evaluate("part => { part.open = true; }")
            faint[name] = failing(page)
        page.goto(site.url)
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#lane-1")).to_contain_text("tokens/s")
        job = site.repository.claim(("playground",), 60)
        assert job is not None
        site.repository.append_chunks(job.id, [chunk(0, HOSTILE), chunk(1, HOSTILE)])
        site.repository.finish_job(job.id, job.claim_token or "", "finished", None)
        expect(page.locator("#lane-2 .tok")).to_have_count(len(HOSTILE))
        page.locator("#lane-1 .tok").first.click()
        faint["tokens"] = failing(page)
    assert not {name: texts for name, texts in faint.items() if texts}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_to_sign_in_can_be_read(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, theme: str
) -> None:
    with (
        serving(tmp_path_factory.mktemp("home"), FSD_ACCESS="password") as site,
        closing(browser.new_context(color_scheme=theme)) as context,  # type: ignore[arg-type]
    ):
        page = context.new_page()
        page.goto(f"{site.url}/login")
        page.get_by_label("Name").fill("Somebody")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert not failing(page)


def test_a_faint_text_is_found(page: Page) -> None:
    page.set_content('<p style="color: #999">One</p><p style="color: #000">Two three</p><p>4</p><p>5</p>')
    assert failing(page) == ["p. “One” 2.85 of 4.5"]
