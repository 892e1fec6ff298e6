"""Running engines in a browser, ours and transformers' own: added, measured beside our own loop, compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.compare.compared_runs import compare
from fsd_core.analysis.recommendation import load_lines, load_sentences
from fsd_core.config import RULES, RunConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import method
from fsd_core.models.loading import LoadedPair
from tests.tools.engine_in_browser import measured_beside
from tests.tools.folds import unfold
from tests.tools.played_worker import claimed, measured
from tests.tools.rule_boxes import rule_box
from tests.tools.settled import settled
from tests.tools.site import Site
from tests.tools.toy_engine import MODEL, ToyEngine
from tests.tools.transformers_server import serving_bundled_target

pytestmark = pytest.mark.ui


SD = method({"acceptance": "speculative", "draft_length": 3, "max_new_tokens": 8})


@pytest.fixture(scope="module")
def engine(pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(pair, SD) as engine:
        yield engine


@pytest.mark.wide("test_served_runs.py")
def test_an_engine_is_added_measured_beside_ours_under_two_loads_and_compared(
    page: Page, site: Site, toy: str, pair: LoadedPair, engine: ToyEngine
) -> None:
    like = RunConfig(setting=SettingConfig(pair=toy, decoding=SD), task="arithmetic", limit=4)
    page.goto(f"{site.url}/experiments?like={site.repository.create_run(like)}")
    expect(page.get_by_text("2 settings × 1 seed × 4 prompts = 8 generations")).to_be_visible()
    settled(page)
    page.get_by_role("button", name="Running engines").click()
    answer = page.locator("#engines-answer")
    page.get_by_label("Endpoint's name").fill("toy")
    page.get_by_label("Address", exact=True).fill(engine.url)
    page.get_by_label("Model, as the engine calls it").fill("another")
    page.get_by_label("Runs on").fill("two <b>cores</b>")
    page.get_by_role("button", name="Add the endpoint").click()
    expect(answer).to_contain_text(f"has no model 'another': it serves {MODEL}.")
    assert site.repository.engines() == []
    page.get_by_label("Model, as the engine calls it").fill(MODEL)
    page.get_by_role("button", name="Add the endpoint").click()
    expect(answer).to_contain_text("toy is vLLM 9.8.7 with toy-model. It is chosen under")
    expect(page.locator("#endpoints .more-task")).to_contain_text(f"vLLM at {engine.url} (two <b>cores</b>)")
    expect(page.get_by_text("3 settings × 1 seed × 4 prompts = 12 generations")).to_be_visible()
    page.locator("#endpoints").get_by_role("button", name="Check").click()
    expect(answer).to_have_text("toy is vLLM 9.8.7 with toy-model.")

    # Its setting can be looked for as well: what the form says of our own drafts is not asked of it.
    unfold(page, "More")
    settled(page)
    page.get_by_label("Setting of").click()
    page.get_by_role("option", name="toy", exact=True).click()
    page.get_by_label("Goal").click()
    page.get_by_role("option", name="The fastest, whatever it costs").click()
    find = page.locator("#find-setting").get_by_role("button", name="Find the setting")
    find.click()
    expect(page.locator("#find-answer")).to_contain_text("No algorithm is chosen")
    page.get_by_role("button", name=f"All {len(RULES)} rules").click()
    rule = rule_box(page, "FSD reducible")
    rule.check()
    find.click()
    expect(page.locator("#find-answer")).to_contain_text("settings to choose from, on up to 600 prompts.")
    rule.uncheck()
    calibration = site.repository.experiments()[0]
    assert isinstance(calibration.config, CalibrationConfig)
    assert calibration.config.endpoint == engine.served()
    assert calibration.config.target.acceptance.is_exact
    job = claimed(site.repository, calibration.id)
    site.repository.finish_job(job.id, str(job.claim_token), "cancelled")

    page.get_by_label("Request rates").fill("1, 2")
    expect(page.get_by_text("Prompts arrive at a rate at running engines alone, and 'Target alone'")).to_be_visible()
    page.get_by_label("Request rates").fill("")
    page.get_by_role("button", name="Drafting and sampling").click()
    settled(page)  # its fields are drawn by then
    page.get_by_label("Batch sizes").fill("1, 2")
    expect(page.get_by_text("3 settings × 2 loads × 1 seed × 4 prompts = 24 generations")).to_be_visible()
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("#experiments article").first).to_contain_text("Served · vLLM toy")
    experiment = measured(site.repository, lambda *_: pair)
    runs = experiment.runs
    assert [(run.status, run.config.batch) for run in runs] == [("finished", load) for load in (1, 1, 1, 2, 2, 2)]

    page.goto(f"{site.url}/compare?experiment={experiment.id}")
    place = re.escape(engine.url.removeprefix("http://"))
    table = page.get_by_role("table", name="Metrics of the runs")
    row = table.locator("tbody tr", has_text="Served · vLLM toy · 2 at once")
    expect(row).to_contain_text(
        re.compile(rf"Measured on vLLM 9.8.7 at {place} \(two <b>cores</b>\), 2 prompts at once")
    )
    load = page.locator(".column", has=page.get_by_role("heading", name="Over load")).last
    expect(load.locator(".js-plotly-plot")).to_have_count(2)
    compared = compare(site.repository, [run.id for run in runs], None)
    told = load_sentences(load_lines(compared.runs, compared.baseline, compared.prompts))  # fewer on a busy machine
    expect(load.locator("li")).to_have_text(told)

    served = next(run for run in runs if run.decoding.acceptance.by_endpoint and run.config.batch == 2)
    page.goto(f"{site.url}/settings?setting={served.setting_id}")
    expect(
        page.get_by_role("cell", name=re.compile(rf"vLLM 9.8.7 at {place}.*, 2 prompts at once")).first
    ).to_be_visible()
    page.goto(f"{site.url}/runs")
    listed = page.locator("tr", has_text="Served · vLLM toy").filter(has_text="2 prompts at once")
    expect(listed.first).to_be_visible()


@pytest.mark.wide("test_served_runs.py")
def test_an_engine_of_others_answers_as_our_loop_does_and_compare_says_so(
    page: Page, site: Site, tmp_path: Path
) -> None:
    alone = method({"acceptance": "autoregressive", "max_new_tokens": 48})
    ours = RunConfig(setting=SettingConfig(pair="bundled", decoding=alone), task="arithmetic", limit=4)
    with serving_bundled_target(tmp_path) as (address, model):
        measured_beside(page, site, ours, "transformers serve", address, model)
