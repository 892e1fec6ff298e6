"""What leaves the pages: figures as files, links that lead back to what was seen, the review log."""

from __future__ import annotations

import io
import json
import re
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

from fsd_core.roles import Person
from fsd_core.storage.review_events import UseDescribed
from tests.tools import plausible
from tests.tools.folds import open_tab
from tests.tools.real_tokens import HOSTILE
from tests.tools.settled import go
from tests.tools.site import Site
from tests.ui.test_doors import Blank

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def experiment(site: Site) -> str:
    return plausible.add_finished(site.repository, "Find the knee", limit=12)


def saved(page: Page, figure: str, kind: str) -> tuple[str, bytes]:
    """The name and the bytes of a figure's file."""
    plot = page.locator(".js-plotly-plot", has_text=figure).first
    expect(plot.locator(".main-svg").first).to_be_visible()
    with page.expect_download() as download:
        plot.locator("+ .fsd-figure-files").get_by_label(f"Save this figure as {kind}").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("address", "figure", "name"),
    [
        ("/compare?experiment={experiment}", "Accuracy against throughput", "accuracy-against-throughput"),
        ("/runs?run={run}", "Acceptance at each draft position", "acceptance-at-each-draft-position-run-{run:.8}"),
    ],
)
def test_a_figure_is_saved_for_paper(
    page: Page, site: Site, experiment: str, address: str, figure: str, name: str
) -> None:
    run = site.repository.experiment(experiment).runs[3].id
    go(page, site.url + address.format(experiment=experiment, run=run))
    name = name.format(run=run)
    page.evaluate("document.body.classList.add('dark')")  # whatever the theme
    called, data = saved(page, figure, "PNG")
    assert (called, data[:8]) == (f"{name}.png", b"\x89PNG\r\n\x1a\n")
    picture = Image.open(io.BytesIO(data)).convert("RGBA")
    assert picture.getpixel((0, 0)) == (255, 255, 255, 255)
    assert picture.width == 6.5 * 300
    called, data = saved(page, figure, "SVG")
    assert called == f"{name}.svg"
    assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"
    called, data = saved(page, figure, "PDF")
    assert (called, data[:5]) == (f"{name}.pdf", b"%PDF-")


@pytest.mark.wide
def test_a_figure_that_no_address_draws_is_saved_by_the_browser_on_white(page: Page, site: Site) -> None:
    go(page, f"{site.url}/theory?__theme=dark")
    plot = page.locator(".js-plotly-plot").first
    expect(plot.locator("+ .fsd-figure-files").get_by_text("PDF")).to_have_count(0)
    title = plot.locator(".gtitle").first.text_content()
    assert title
    called, data = saved(page, title, "PNG")
    assert called.endswith(".png")
    picture = Image.open(io.BytesIO(data)).convert("RGBA")
    assert picture.size[0] == 2 * 900
    assert picture.getpixel((0, 0)) == (255, 255, 255, 255)
    _, data = saved(page, title, "SVG")
    text = data.decode()
    assert "fill: rgb(27, 29, 33)" in text  # dark ink
    assert title in "".join(ElementTree.fromstring(data).itertext())


def test_a_figure_is_shown_in_a_frame_of_another_site_and_the_pages_are_not(
    page: Page, profile: BrowserContext, site: Site, experiment: str
) -> None:
    profile.grant_permissions(["clipboard-read", "clipboard-write"])
    go(page, f"{site.url}/compare?experiment={experiment}")
    plot = page.locator(".js-plotly-plot", has_text="Accuracy against throughput").first
    plot.locator("+ .fsd-figure-files").get_by_role("button", name="Copy the address of this figure").click()
    expect(plot.locator("+ .fsd-figure-files").get_by_text("Copied")).to_be_visible()
    address = page.evaluate("navigator.clipboard.readText()")
    assert address.startswith(f"{site.url}/embed/figure?figure=tradeoff&runs=")
    frames = (
        f'<iframe id="figure" src="{address}" width="700" height="480"></iframe><iframe src="{site.url}/"></iframe>'
    )

    class Wiki(Blank):
        page = frames.encode()

    with ThreadingHTTPServer(("127.0.0.1", 0), Wiki) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        elsewhere = profile.new_page()
        refused: list[str] = []
        elsewhere.on("console", lambda message: refused.append(message.text))
        elsewhere.goto(f"http://localhost:{server.server_port}/")
        shown = elsewhere.frame_locator("#figure")
        expect(shown.locator(".main-svg").first).to_be_visible()
        expect(shown.get_by_text("n = 12 prompts")).to_be_in_viewport()
        server.shutdown()
    assert any("frame-ancestors 'self'" in text for text in refused)
    assert not any("embed" in text for text in refused)


@pytest.mark.wide
def test_a_link_leads_to_one_prompt_side_by_side(
    page: Page, profile: BrowserContext, site: Site, experiment: str
) -> None:
    profile.grant_permissions(["clipboard-read", "clipboard-write"])
    runs = [run.id for run in site.repository.experiment(experiment).runs]
    go(page, f"{site.url}/compare?runs={runs[0]},{runs[4]}&__theme=dark&__sign=secret")
    open_tab(page, "Prompts")
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
    open_tab(other, "Prompts")
    expect(other.get_by_text("Of 12 shared prompts")).to_be_visible()
    expect(other.locator("article.pair.linked")).to_have_count(0)


@pytest.mark.wide
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


@pytest.mark.wide
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
        text = Path(download.value.path()).read_text(encoding="utf-8-sig")
        assert text.startswith(begins)
        assert HOSTILE in text
    assert json.loads(text)["act"]["description"] == described.description
