"""An engine that others wrote, transformers' own server, in a browser: added, measured beside our own loop, compared.

The server and our loop have the same target, so their greedy answers are the same, and the pages must say so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.building import method
from fsd_core.models.loading import load_pair
from tests.tools.folds import unfold
from tests.tools.played_worker import measured
from tests.tools.settled import settled
from tests.tools.site import Site
from tests.tools.transformers_server import serving_bundled_target

pytestmark = pytest.mark.ui

PROMPTS = 4


def test_an_engine_of_others_answers_as_our_loop_does_and_compare_says_so(
    page: Page, site: Site, tmp_path: Path
) -> None:
    for known in site.repository.engines():  # of a test that is repeated
        site.repository.remove_engine(known.name)
    alone = method({"acceptance": "autoregressive", "max_new_tokens": 48})
    ours = RunConfig(setting=SettingConfig(pair="bundled", decoding=alone), task="arithmetic", limit=PROMPTS)
    with serving_bundled_target(tmp_path) as (address, model):
        page.goto(f"{site.url}/experiments?like={site.repository.create_run(ours)}")
        settled(page)
        page.get_by_role("button", name="Running engines").click()
        page.get_by_label("Endpoint's name").fill("tf")
        page.get_by_label("Kind").click()
        page.get_by_role("option", name="transformers serve").click()
        page.get_by_label("Address", exact=True).fill(address)
        page.get_by_label("Model, as the engine calls it").fill(model)
        page.get_by_role("button", name="Add the endpoint").click()
        expect(page.locator("#engines-answer")).to_contain_text("It is chosen under")
        page.get_by_role("button", name="Start experiment").click()
        expect(page.locator("#experiments article").first).to_contain_text("Served · transformers")
        experiment = measured(site.repository, lambda *_: load_pair("bundled", "cpu"))

    runs = experiment.runs
    assert [run.status for run in runs] == ["finished"] * len(runs)
    served = next(run for run in runs if run.decoding.acceptance.by_endpoint)
    target = next(run for run in runs if run.decoding.acceptance.kind == "autoregressive")
    answers = [
        [(one.text, one.tokens, one.outcome) for one in site.repository.generations(run.id)] for run in (served, target)
    ]
    assert answers[0] == answers[1]
    page.goto(f"{site.url}/compare?experiment={experiment.id}")
    unfold(page, "All figures")
    row = page.get_by_role("table", name="Metrics of the runs").locator("tbody tr", has_text="Served · transformers")
    expect(row).to_contain_text(f"Texts identical on all {PROMPTS} prompts")
