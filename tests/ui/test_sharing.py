"""What leaves the pages: figures as files, links that lead back to what was seen, the review log."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from fsd_core.roles import Person
from fsd_core.storage.review_events import UseDescribed
from tests.tools import plausible
from tests.tools.real_tokens import HOSTILE
from tests.tools.settled import go
from tests.tools.site import Site

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    return plausible.add_finished(site.repository, "Find the knee", limit=12)


def saved(page: Page, figure: str, kind: str) -> tuple[str, bytes]:
    """The name and the bytes of a figure's file."""
    plot = page.locator(".js-plotly-plot", has_text=figure).first
    expect(plot.locator(".main-svg").first).to_be_visible()
    with page.expect_download() as download:
        plot.locator("+ .fsd-figure-files").get_by_role("button", name=f"Save this figure as {kind}").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize(
    ("address", "figure", "name"),
    [
        ("/compare?experiment={experiment}", "Accuracy against throughput", "accuracy-against-throughput"),
        ("/runs?run={run}", "Acceptance at each draft position", "acceptance-at-each-draft-position-run-{run:.8}"),
    ],
)
def test_a_figure_is_saved_as_png_and_svg(
    page: Page, site: Site, experiment: str, address: str, figure: str, name: str
) -> None:
    run = site.repository.experiment(experiment).runs[3].id
    go(page, site.url + address.format(experiment=experiment, run=run))
    name = name.format(run=run)
    called, data = saved(page, figure, "PNG")
    assert (called, data[:8]) == (f"{name}.png", b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width > 600
    assert height == 2 * 380 or height > 600  # twice as many pixels as on the page
    assert len(data) > 10_000  # something is drawn
    called, data = saved(page, figure, "SVG")
    assert called == f"{name}.svg"
    root = ElementTree.fromstring(data)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert figure in "".join(root.itertext())


def test_a_link_leads_to_one_prompt_side_by_side(
    page: Page, profile: BrowserContext, site: Site, experiment: str
) -> None:
    profile.grant_permissions(["clipboard-read", "clipboard-write"])
    runs = [run.id for run in site.repository.experiment(experiment).runs]
    go(page, f"{site.url}/compare?runs={runs[0]},{runs[4]}&__theme=dark&__sign=secret")
    page.get_by_label("All", exact=True).check()
    expect(page.get_by_text("12 prompts of 12, 1 to 5 shown.")).to_be_visible()
    page.get_by_role("button", name="Next prompts").click()
    article = page.locator("article.pair", has_text=re.compile(r"Prompt 8\b"))
    article.get_by_role("button", name="Copy link").click()
    expect(article.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{site.url}/compare?runs={runs[0]},{runs[4]}&")
    assert link.endswith(f"&a={runs[0]}&b={runs[4]}&prompt=8")
    assert "__" not in link  # a frame's signature is nobody else's
    other = profile.new_page()
    for _ in range(2):  # and once more by the address that the page itself shows
        other.goto(link)
        linked = other.locator("article.pair.linked")
        expect(linked).to_contain_text("Prompt 8,")
        expect(linked).to_be_in_viewport()
        expect(other.locator("#compare-link :is(input, textarea)")).to_have_value(re.compile("prompt=8$"))
        link = other.locator("#compare-link :is(input, textarea)").input_value()
    other.goto(f"{site.url}/compare?runs={runs[0]},{runs[4]}&a={runs[2]}&b=x&prompt=9999999999")
    expect(other.get_by_text("Of 12 shared prompts")).to_be_visible()
    expect(other.locator("article.pair.linked")).to_have_count(0)


def test_a_run_and_a_proposal_have_a_link_to_copy(
    page: Page, profile: BrowserContext, site: Site, experiment: str
) -> None:
    profile.grant_permissions(["clipboard-read", "clipboard-write"])
    run = site.repository.experiment(experiment).runs[0].id
    for address in (f"{site.url}/runs?run={run}", f"{site.url}/runs?experiment={experiment}"):
        go(page, address)
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == address


def test_without_a_clipboard_the_link_is_shown_to_be_copied(page: Page, site: Site, experiment: str) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.add_init_script("document.execCommand = () => false")
    go(page, f"{site.url}/runs?experiment={experiment}")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_label("Link", exact=True)).to_have_value(f"{site.url}/runs?experiment={experiment}")
    expect(page.get_by_label("Link", exact=True)).to_be_focused()


def test_the_log_of_a_use_is_saved(page: Page, site: Site) -> None:
    described = UseDescribed(name="Support", description=f"={HOSTILE}")
    site.repository.append_events("support", Person("Ann", "admin"), [described], 0)
    go(page, f"{site.url}/review?use=support")
    for title, begins in (("CSV", "use,sequence,at,who"), ("JSON Lines", '{"use": "support"')):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Export {title}").click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert text.startswith(begins)
        assert HOSTILE in text
    assert json.loads(text)["act"]["description"] == described.description
