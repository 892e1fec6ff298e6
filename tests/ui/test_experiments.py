"""Experiments in a browser: started, watched without a reload, cancelled, compared. The test plays the worker."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.summary import calibration_status, headline, verdict
from fsd_core.config import RULES, SettingConfig
from fsd_core.config.calibration_config import FEWEST_CHOOSING, CalibrationConfig
from fsd_core.errors import UnknownName
from fsd_core.evaluation.aggregate import summarise
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import JobRow
from tests.tools.folds import head
from tests.tools.plausible import do_prompts, finish, sweep
from tests.tools.played_worker import claimed
from tests.tools.rule_boxes import rule_box
from tests.tools.settled import Held, polled, settled
from tests.tools.site import Site
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import until
from tools.first_sight import MOST_WORDS, first_sight

pytestmark = pytest.mark.ui

FORETOLD = {"target_passes": 9.5, "target_passes_low": 8.0, "target_passes_high": 11.0}
"""of a setting, what replay predicts that a page shows"""


def card(page: Page, name: str) -> Locator:
    return page.locator("article.exp", has_text=name)


def opened(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/experiments")
    expect(page.get_by_text("= 2,400 generations")).to_be_visible()
    page.get_by_label("Draft lengths").fill("5")


@pytest.mark.wide
def test_an_empty_page_says_what_to_do_and_that_nobody_works(page: Page, site: Site):
    opened(page, site)
    expect(page.locator(".fsd-empty")).to_contain_text("No experiment yet")
    expect(page.locator(".fsd-notice.warn")).to_contain_text("The worker is not running")
    site.repository.report_worker(pid=1, host="here", device="cpu", activity="idle")
    expect(page.locator(".fsd-notice.warn")).to_have_count(0)
    two_ways_lead_in_with_few_words(page)
    rules_are_folded_to_the_chosen_ones(page)
    the_form_says_how_much_it_asks_for_or_what_is_wrong(page)


def two_ways_lead_in_with_few_words(page: Page) -> None:
    first, second = (
        page.get_by_role("heading", name=re.compile(name)) for name in ("^Find the fastest", "^Measure my own")
    )
    places = [way.bounding_box() for way in (first, second)]
    assert places[0] is not None
    assert places[1] is not None
    assert abs(places[0]["y"] - places[1]["y"]) < 8, "they stand beside each other"
    expect(page.get_by_role("button", name="Find the setting")).to_be_in_viewport()
    window = page.viewport_size
    page.set_viewport_size({"width": 1440, "height": 900})
    sight = first_sight(page)
    assert len(sight.words) <= MOST_WORDS
    assert sight.controls <= 24
    assert window is not None
    page.set_viewport_size(window)


def rules_are_folded_to_the_chosen_ones(page: Page) -> None:
    fsd, typical = rule_box(page, "FSD"), rule_box(page, "Typical")
    expect(rule_box(page, "FSD reducible")).to_be_visible()
    expect(fsd).to_be_hidden()
    page.get_by_role("button", name=f"All {len(RULES)} rules").click()
    expect(typical).to_be_visible()
    fsd.check()
    page.get_by_role("button", name="Only the chosen ones").click()
    expect(typical).to_be_hidden()
    fsd.uncheck()
    expect(fsd).to_be_visible()  # so that nothing moves under the pointer
    for title in (f"All {len(RULES)} rules", "Only the chosen ones"):
        page.get_by_role("button", name=title).click()
    expect(fsd).to_be_hidden()


def the_form_says_how_much_it_asks_for_or_what_is_wrong(page: Page) -> None:
    expect(page.get_by_text("9 settings × 1 seed × 150 prompts = 1,350 generations")).to_be_visible()
    page.get_by_label("Thresholds").fill("0:0.6:7")
    page.get_by_label("Seeds").fill("0, 1")
    expect(page.get_by_text("11 settings × 2 seeds × 150 prompts = 3,300 generations")).to_be_visible()
    page.get_by_label("Thresholds").fill("0.9")
    expect(page.locator(".exp-size .fsd-notice")).to_contain_text("beyond the range of the divergence 'js'")
    expect(page.get_by_role("button", name="Start experiment")).to_be_disabled()


def test_an_experiment_is_started_watched_and_compared(page: Page, site: Site):
    opened(page, site)
    name = "<i>First</i> ${7*7}"
    page.get_by_label("Name").fill(name)
    page.get_by_label("Thresholds").fill("0.1, 0.3")
    page.get_by_label("Prompts", exact=True).fill("12")
    expect(page.get_by_text("= 72 generations")).to_be_visible()
    for baseline in ("Draft alone", "Block"):
        rule_box(page, baseline).uncheck()
    expect(page.get_by_text("= 48 generations")).to_be_visible()
    page.get_by_role("button", name="Start experiment").click()
    shown = card(page, name)
    expect(shown).to_contain_text("queued")
    expect(page.get_by_label("Name")).to_have_value("")

    repository = site.repository
    experiment = repository.experiments()[0]
    assert [run.label for run in experiment.runs] == [
        "Target alone", "SD · γ 5", "FSD reducible · js ≤ 0.1 · γ 5", "FSD reducible · js ≤ 0.3 · γ 5",
    ]  # fmt: skip
    job = claimed(repository, experiment.id)
    first, second, third, fourth = experiment.runs
    finish(repository, first)
    do_prompts(repository, second, 6)
    expect(shown).to_contain_text("18 of 48 texts")
    expect(shown).to_contain_text("left")
    repository.fail_run(second.id, "The <b>draft</b> model is damaged.")
    finish(repository, third)
    generations = do_prompts(repository, fourth, 12)
    repository.finish_run(fourth.id, summarise(generations, (g.records for g in generations)))
    repository.finish_job(job.id, str(job.claim_token), "finished")

    expect(shown.locator(".fsd-notice.bad")).to_have_text("SD · γ 5: The <b>draft</b> model is damaged.")
    expect(shown.get_by_role("button", name="Resume")).to_be_visible()
    shown.get_by_role("link", name="Compare these 4 runs").click()
    expect(page.locator(".cmp").first.locator("tbody tr")).to_have_count(4)
    expect(page.locator(".fsd-notice.warn")).to_contain_text("1 run failed")


@pytest.mark.wide
def test_nothing_is_redrawn_while_nothing_changes_and_experiments_are_cancelled_resumed_and_deleted(
    page: Page, site: Site
):
    site.repository.create_experiment(sweep("Quiet"))
    opened(page, site)
    expect(card(page, "Quiet")).to_be_visible()
    page.evaluate("document.querySelector('article.exp').dataset.same = 'yes'")
    polled(page, 1.0)
    polled(page, 1.0)
    assert page.evaluate("document.querySelector('article.exp').dataset.same") == "yes"

    experiment = site.repository.create_experiment(sweep("Unwanted"))
    card(page, "Unwanted").get_by_role("button", name="Cancel").click()
    expect(card(page, "Unwanted")).to_contain_text("cancelled")
    assert site.repository.experiment(experiment).status == "cancelled"

    # What failed is resumed, and deleted after a question.
    repository = site.repository
    id = repository.create_experiment(sweep("<i>Broken</i> {x}"))
    job = claimed(repository, id)
    do_prompts(repository, repository.experiment(id).runs[0], 2)
    repository.finish_job(id, str(job.claim_token), "failed", "The worker was lost.")
    shown = card(page, "Broken")
    shown.get_by_role("button", name="Resume").click()
    expect(shown).to_contain_text("queued")
    assert repository.job(id).status == "queued"
    said = page.locator(".fsd-notice").filter(has_text="continues at its next prompt", visible=True)
    expect(said).to_have_count(1)
    expect(shown.locator(".fsd-said").filter(has=said)).to_be_visible()  # beside the button
    polled(page, 1.0)
    expect(shown.locator(".fsd-said").filter(has=said)).to_be_visible()

    expect(shown.get_by_role("button", name="Delete")).to_have_count(0)  # it is under way
    job = claimed(repository, id)
    repository.finish_job(job.id, str(job.claim_token), "failed", "The worker was lost.")
    shown.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(
        "Delete the experiment “<i>Broken</i> {x}” with its 7 runs, 2 prompts and their traces"
    )
    dialog.get_by_role("button", name="Keep").click()
    expect(dialog).to_have_count(0)
    assert repository.experiment(id).prompts_done == 2
    shown.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(shown).to_have_count(0)
    expect(page.locator(".fsd-notice").filter(has_text="was deleted", visible=True)).to_have_count(1)
    with pytest.raises(UnknownName):
        repository.experiment(id)


@pytest.mark.wide
def test_older_experiments_are_one_click_away(page: Page, site: Site):
    for number in range(11):
        site.repository.create_experiment(sweep(f"Number {number:02d}"))
    opened(page, site)
    expect(page.locator("article.exp")).to_have_count(10)
    page.get_by_role("button", name="Show older experiments").click()
    expect(card(page, "Number 00")).to_be_visible()


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    # a pair that is not here says so behind its title
    page.get_by_role("option", name=re.compile(rf"^{re.escape(option)}( · .*)?$")).click()


@pytest.mark.wide
def test_choosing_a_pair_brings_a_task_that_suits_it(page: Page, site: Site):
    opened(page, site)
    task = page.get_by_label("Task", exact=True)
    expect(task).to_have_value("Arithmetic word problems")
    choose(page, "Model pair", "SmolLM2 135M with our draft")
    expect(task).to_have_value("Everyday prompts")
    task.click()
    expect(page.get_by_role("option")).to_have_text(
        [re.compile(title) for title in ("Everyday prompts", "Short word problems", "Arithmetic word problems")]
    )
    page.get_by_role("option", name="Short word problems").click()
    choose(page, "Model pair", "Qwen 2.5 7B with 0.5B")
    expect(task).to_have_value("Short word problems")  # it suits this pair as well
    choose(page, "Model pair", "Bundled arithmetic pair")
    expect(task).to_have_value("Arithmetic word problems")
    choose(page, "Model pair", "SmolLM2 135M, taught word problems")
    expect(task).to_have_value("Short word problems")
    choose(page, "Task", "Arithmetic word problems")  # it may be run all the same
    page.get_by_label("Name").fill("Unsuitable")
    page.get_by_role("button", name="Start experiment").click()
    expect(card(page, "Unsuitable")).to_be_visible()
    run = site.repository.experiments()[0].runs[0]
    assert (run.pair, run.task) == ("smollm2-135m-math", "arithmetic")


def gsm8k(folder: Path) -> None:
    """As many of its prompts as an experiment asks for."""
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        lines = (json.dumps({"question": f"How many are {i}?", "answer": "#### 1"}) for i in range(60))
        (folder / f"{split}.jsonl").write_text("\n".join(lines))


def test_what_is_chosen_while_an_answer_is_late_stays_chosen(page: Page, site: Site):
    opened(page, site)
    settled(page)
    gsm8k(site.home / "data" / "gsm8k")
    try:
        held = Held(page, answers=True)
        held.wait()  # for one that offers another task to the pair before
        choose(page, "Model pair", "Qwen 2.5 7B with 0.5B")
        held.release()
        task = page.get_by_label("Task", exact=True)
        expect(task).to_have_value("Everyday prompts")
        expect(page.locator(".more-task", has_text="GSM8K")).to_have_count(0)  # it is no longer missing
        task.click()
        expect(page.get_by_role("option", name="GSM8K")).to_be_visible()
        page.keyboard.press("Escape")
        expect(task).to_have_value("Everyday prompts")
    finally:
        shutil.rmtree(site.home / "data" / "gsm8k")


@pytest.mark.wide
def test_a_missing_task_is_fetched_by_the_worker_and_then_chosen(page: Page, site: Site):
    repository, folder = site.repository, site.home / "data" / "gsm8k"

    def alive(activity: str = "idle") -> None:
        repository.report_worker(pid=1, host="here", device="cpu", activity=activity)

    def claimed() -> JobRow:
        return until(lambda: repository.claim(("fetch",), PATIENCE), "what the click asks for", PATIENCE)

    opened(page, site)
    line = page.locator(".more-task", has_text="GSM8K")
    expect(line).not_to_be_visible()  # a quiet place
    page.get_by_role("button", name="More tasks").click()
    expect(line).to_contain_text("1,319 prompts, licence MIT, from openai/gsm8k")
    expect(line.get_by_role("link")).to_have_attribute("href", "https://huggingface.co/datasets/openai/gsm8k")
    alive()
    line.get_by_role("button", name="Fetch").click()
    expect(line.get_by_role("button", name="Fetch")).to_be_disabled()
    job = claimed()
    assert job.payload == {"task": "gsm8k"}
    alive("Fetching gsm8k/test.jsonl of openai/gsm8k: file 1 of 2")
    expect(line).to_contain_text("Fetching gsm8k/test.jsonl of openai/gsm8k: file 1 of 2.")
    sentence = "The dataset openai/gsm8k could not be had from the Hugging Face hub (ConnectError): check the network."
    repository.finish_job(job.id, job.claim_token or "", "failed", sentence)
    expect(line.locator(".fsd-notice.warn")).to_have_text(sentence)

    alive()
    expect(line.get_by_role("button", name="Fetch")).to_be_enabled()
    line.get_by_role("button", name="Fetch").click()
    expect(line.locator(".fsd-notice.warn")).to_have_count(0)
    job = claimed()
    choose(page, "Model pair", "Qwen 2.5 7B with 0.5B")
    expect(page.get_by_label("Task", exact=True)).to_have_value("Everyday prompts")
    gsm8k(folder)
    try:
        repository.finish_job(job.id, job.claim_token or "", "finished")
        expect(line).to_contain_text("GSM8K is in the list of tasks.")
        expect(page.get_by_label("Task", exact=True)).to_have_value("Everyday prompts")  # nothing is chosen for anybody
        choose(page, "Task", "GSM8K")
        expect(page.get_by_text("= 450 generations")).to_be_visible()
        expect(page.locator(".exp-size .fsd-notice")).to_have_count(0)
        page.evaluate("sessionStorage.clear()")
        opened(page, site)  # as another visitor finds it
        choose(page, "Task", "GSM8K")
        page.get_by_label("Prompts", exact=True).fill("12")
        page.get_by_label("Name").fill("Fetched")
        page.get_by_role("button", name="Start experiment").click()
        expect(card(page, "Fetched")).to_be_visible()
        assert repository.experiments()[0].runs[0].task == "gsm8k"
    finally:
        shutil.rmtree(folder)


@pytest.mark.wide
def test_the_setting_is_found_and_the_card_says_which(page: Page, site: Site):
    opened(page, site)
    page.get_by_label("Thresholds").fill("0.05, 0.3")
    panel = page.locator("#find-setting")
    head(page, "More").click()
    panel.get_by_label("Choose draft lengths by replay").uncheck()
    margin = panel.get_by_label("Accuracy margin")
    margin.fill("101")
    start = panel.get_by_role("button", name="Find the setting")
    start.click()
    expect(page.locator("#find-answer")).to_have_text("The accuracy margin is 101: expected at most 20.")
    margin.fill("0.1")
    start.click()
    expect(page.locator("#find-answer")).to_contain_text("takes at least 4787 prompts beside the 64 that choose")
    margin.fill("5")
    panel.get_by_label("Minutes").fill("")
    start.click()
    expect(page.locator("#find-answer")).to_contain_text("Minutes is empty: expected a number.")
    assert "Traceback" not in site.log.read_text()
    panel.get_by_label("Minutes").fill("30")
    start.click()
    expect(page.locator("#find-answer")).to_contain_text("4 settings to choose from, on up to 600 prompts")
    shown = card(page, "Find the setting on Arithmetic word problems")
    expect(shown).to_contain_text("target's accuracy. The target and 4 settings on prompts 1 to 8")

    repository = site.repository
    id = repository.experiments(limit=1)[0].id
    job = claimed(repository, id)
    config = repository.experiment(job.id).config
    assert isinstance(config, CalibrationConfig)
    while isinstance(
        step := calibration_status(repository, config, repository.experiment(job.id).runs), CalibrationStep
    ):
        ids = repository.extend_experiment(job.id, config.round_runs(step.decodings, step.start, step.end))
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
        if step.end == 64:
            expect(shown).to_contain_text("settings on prompts 65 to 80")
    repository.finish_job(job.id, str(job.claim_token), "finished")
    expect(shown.locator(".exp-verdict")).to_have_text(verdict(config, step))
    expect(shown.locator(".exp-verdict")).to_contain_text("fresh prompts. It is")
    expect(shown.locator(".exp-headline")).to_have_text(headline(config, step))
    expect(shown.get_by_role("img", name=headline(config, step)).locator(".chosen text")).to_contain_text("js ≤ 0.05")
    assert step.chosen.decoding.threshold == 0.05
    expect(shown.get_by_role("link", name=re.compile("Compare these"))).to_have_count(0)
    expect(shown.get_by_role("table", name="Finalists of the calibration")).to_contain_text("js ≤ 0.05 · γ 5")
    shown.get_by_role("link", name="The setting, to take along").click()
    expect(page.get_by_role("heading", name="FSD reducible · js ≤ 0.05 · γ 5")).to_be_visible()

    # The experiment's page says the same, and leads to a proposal that rests on the fresh prompts alone.
    ReviewService(repository).describe(Person("Ann", "author"), "Sums", requirements=Requirements(margin=20))
    page.goto(f"{site.url}/runs?experiment={job.id}")
    expect(page.locator(".exp-verdict")).to_have_text(verdict(config, step))
    page.get_by_role("link", name=re.compile("^Propose ")).click()
    expect(page.locator("h1")).to_contain_text("Propose FSD reducible · js ≤ 0.05 · γ 5")
    fresh = step.chosen.prompts
    named = f"{fresh} fresh prompts of Find the setting on Arithmetic word problems"
    expect(page.get_by_text(f"FSD reducible · js ≤ 0.05 · γ 5 · arithmetic, {named}")).to_be_visible()
    expect(page.get_by_text(f"Target alone · arithmetic, {named}")).to_be_visible()
    page.get_by_role("button", name="Propose", exact=True).click()
    page.get_by_role("link", name="Open it").click()
    expect(page.locator(".rev-run")).to_contain_text(
        f"from the calibration Find the setting on Arithmetic word problems: {fresh} fresh prompts"
    )
    expect(page.get_by_label("Requirements").locator("tbody tr")).to_contain_text(
        f"on {fresh} prompts, by the bounds of their calibration: Non-inferior"
    )
    expect(page.locator(".rev-run").get_by_role("link")).to_have_attribute("href", f"runs?experiment={job.id}")
    (proposal,) = ReviewService(repository).use("sums").proposals.values()
    assert all(run.config.first >= config.choosing for run in repository.runs(proposal.runs, limit=None))


def played(repository: Repository, id: str) -> Outcome:
    """Plays the worker until a calibration has ended; replay leaves the draft lengths as they are."""
    config = repository.experiment(id).config
    assert isinstance(config, CalibrationConfig)
    while isinstance(step := calibration_status(repository, config, repository.experiment(id).runs), CalibrationStep):
        foretold = {}
        if step.lengths_open:
            step = CalibrationStep((config.target, *config.decodings), 0, FEWEST_CHOOSING)
            foretold = {SettingConfig(pair=config.pair, decoding=one).id: FORETOLD for one in config.decodings}
        ids = repository.extend_experiment(id, config.round_runs(step.decodings, step.start, step.end), foretold)
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
    return step


@pytest.mark.wide
def test_replay_proposes_and_stands_beside_what_was_measured(page: Page, site: Site):
    opened(page, site)
    page.get_by_label("Thresholds").fill("0.05, 0.3")
    page.get_by_label("Name").fill("Replayed")
    panel = page.locator("#find-setting")
    head(page, "More").click()
    panel.get_by_label("Goal").click()
    page.get_by_role("option", name="The fastest, whatever it costs").click()
    panel.get_by_label("Minutes").fill("0.01")
    panel.get_by_role("button", name="Find the setting").click()
    shown = card(page, "Replayed")
    expect(shown).to_contain_text("Replay chooses the draft lengths from 8 prompts that are recorded")
    repository = site.repository
    (id,) = (one.id for one in repository.experiments(limit=1))
    job = claimed(repository, id)
    played(repository, id)
    repository.finish_job(id, str(job.claim_token), "finished")
    shown.get_by_role("link", name="What replay predicted, beside what was measured").click()
    figure = page.locator("#predicted")
    expect(figure).to_contain_text("Target passes per answer, predicted and measured")
    expect(figure).to_contain_text("FSD reducible · js")
    assert figure.locator(".scatterlayer .point").count() == 2
    expect(figure).to_be_in_viewport()

    # The time ended it: one click gives it as much as will probably decide.
    opened(page, site)
    expect(shown.locator(".exp-verdict")).to_contain_text(
        "about 16 more fresh ones make a finalist sure, in 1 min of decoding."
    )
    shown.get_by_role("button", name="Continue for 1 min").click()
    expect(shown.locator(".fsd-notice", has_text="Replayed continues for 1 min.")).to_be_visible()
    expect(shown).to_contain_text("1.01 min of decoding")
    expect(shown.get_by_role("button", name="Continue for")).to_have_count(0)
    job = claimed(repository, id)
    given = repository.experiment(id).config
    assert isinstance(given, CalibrationConfig)
    outcome = played(repository, id)
    repository.finish_job(id, str(job.claim_token), "finished")
    assert outcome.reason != "minutes"
    expect(shown.locator(".exp-verdict")).to_have_text(verdict(given, outcome))
    expect(shown.get_by_role("button", name="Continue for")).to_have_count(0)

    # The machine was busy: one click times the finalists once more.
    shown.get_by_role("button", name="Time the finalists again").click()
    expect(shown.locator(".fsd-notice", has_text="The finalists of Replayed are timed again on")).to_be_visible()
    job = claimed(repository, id)
    for run in repository.experiment(id).runs:
        if not run.ended:
            assert run.config.again
            finish(repository, run)
    repository.finish_job(id, str(job.claim_token), "finished")
    expect(shown.locator(".exp-verdict")).to_contain_text("Its times are those of a second time.")
