"""An engine of others in a browser: added on Experiments, measured beside our own loop, read on Compare."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from fsd_core.config import RunConfig
from fsd_core.models.loading import load_pair
from fsd_core.storage.records import RunView
from tests.tools.played_worker import measured
from tests.tools.settled import settled
from tests.tools.site import Site


def measured_beside(page: Page, site: Site, ours: RunConfig, kind: str, address: str, model: str) -> RunView:
    """The run of an engine, whose greedy texts must be those of our run, on the pages too.

    ``kind``: its title in the menu, with which its label ends too.
    """
    page.goto(f"{site.url}/experiments?like={site.repository.create_run(ours)}")
    settled(page)
    page.get_by_role("button", name="Running engines").click()
    page.get_by_label("Endpoint's name").fill("other")
    page.get_by_label("Kind").click()
    page.get_by_role("option", name=kind, exact=True).click()
    page.get_by_label("Address", exact=True).fill(address)
    page.get_by_label("Model, as the engine calls it").fill(model)
    page.get_by_role("button", name="Add the endpoint").click()
    expect(page.locator("#engines-answer")).to_contain_text("It is chosen under")
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("#experiments article").first).to_contain_text("Served · ")
    experiment = measured(site.repository, lambda *_: load_pair("bundled", "cpu"))

    runs = experiment.runs
    assert [run.status for run in runs] == ["finished"] * len(runs)
    served = next(run for run in runs if run.decoding.acceptance.by_endpoint)
    own = next(run for run in runs if run.config.setting == ours.setting)
    answers = [
        [(one.text, one.tokens, one.outcome) for one in site.repository.generations(run.id)] for run in (served, own)
    ]
    assert answers[0] == answers[1]
    page.goto(f"{site.url}/compare?experiment={experiment.id}")
    row = page.get_by_role("table", name="Metrics of the runs").locator("tbody tr", has_text="Served · ")
    expect(row).to_contain_text(f"Texts identical on all {ours.limit} prompts")
    return served
