"""Costs, energy and memory: computed by hand, read through NVML's interface, asked for by a use."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest

from dashboard.compare.comparison_html import at_price, cost_table, folded_costs
from fsd_core.config import SettingConfig
from fsd_core.errors import OutOfRange
from fsd_core.evaluation.aggregate import cost_figures, cost_per_solved_task
from fsd_core.evaluation.speed import NvmlMeter, meter_of_gpu, metered, nvml_meter
from fsd_core.review.evidence import evidence, evidence_hash, overall
from fsd_core.settings import get_settings
from fsd_core.statistics.intervals import ratio_interval
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from tests.tools.tracking_examples import generation, run_config


class Row(NamedTuple):
    """A line of a comparison, as far as its cost is told."""

    run: RunView
    name: str


SECONDS, TOKENS = (1.0, 2.0, 3.0, 2.5), (10, 30, 50, 20)


def answers(outcomes: tuple[str, ...] = ("correct", "wrong", "correct", "correct")) -> list[GenerationRecord]:
    return [
        replace(generation(i), seconds=SECONDS[i], tokens=TOKENS[i], outcome=outcomes[i], cpu_seconds=SECONDS[i])
        for i in range(4)
    ]


def test_costs_are_the_seconds_at_the_price() -> None:
    figures = cost_figures(answers(), 3.6)  # a thousandth a second
    assert figures["cost_per_million_tokens"] == pytest.approx(8.5e-3 / 110 * 1e6)
    assert figures["cost_per_solved_task"] == pytest.approx(8.5e-3 / 3)
    low, high = ratio_interval(list(zip(SECONDS, TOKENS, strict=True))) or (0, 0)
    assert figures["cost_per_million_tokens_low"] == pytest.approx(low * 1e3)
    assert figures["cost_per_million_tokens_high"] == pytest.approx(high * 1e3)
    assert cost_figures(answers(), None) == {}


def test_what_has_no_cost() -> None:
    assert cost_per_solved_task(answers(("wrong",) * 4), 3.6) is None
    assert cost_per_solved_task(answers(("correct", "unscored", "wrong", "wrong")), 3.6) is None
    failed = cost_figures(answers(("failed",) * 4), 3.6)
    assert (failed["cost_per_million_tokens"], failed["cost_per_solved_task"]) == (None, None)


class Nvml(ModuleType):
    """NVML's Python interface, as far as it is used, over a made-up GPU that takes 5 J and 1 GB more at each look."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken: bool = False) -> None:
        super().__init__("pynvml")
        self.broken, self.looks, self.asked = broken, 0, ""

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked = uuid
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        assert handle == "handle"
        self.looks += 1
        return 1_000_000 + 5_000 * self.looks  # millijoules

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        assert handle == "handle"
        return SimpleNamespace(total=80_000_000_000, used=1_000_000_000 * self.looks)


def test_a_gpu_s_energy_and_memory_go_with_each_prompt(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml := Nvml())
    meter = meter_of_gpu("1b2c")
    assert isinstance(meter, NvmlMeter)
    assert nvml.asked == "GPU-1b2c"
    records = list(metered(iter(answers()), meter))
    assert [record.energy for record in records] == [5.0] * 4
    run_id = repository.create_run(run_config())
    for record in records:
        repository.record_generation(run_id, record)
    stored = repository.generations(run_id)
    assert [one.energy for one in stored] == [5.0] * 4
    assert stored[3].device_memory == 8_000_000_000  # more than 32 bits
    counts = repository.prompts([run_id])[run_id]
    assert (counts[3].energy, counts[3].device_memory) == (5.0, 8_000_000_000)


def test_nothing_is_recorded_where_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml_meter("cpu") is None
    assert [record.energy for record in metered(iter(answers()), None)] == [None] * 4
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where it is not installed
    assert meter_of_gpu("GPU-1b2c") is None
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(broken=True))
    assert meter_of_gpu("GPU-1b2c") is None

    class Old(Nvml):
        def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
            raise self.NVMLError("Not Supported")

    (record, *_) = metered(iter(answers()), NvmlMeter(Old(), "handle"))
    assert (record.energy, record.device_memory) == (None, 0)


@pytest.fixture
def priced(repository: Repository) -> RunView:
    """A run that was measured at 3.6 an hour."""
    run_id = repository.create_run(run_config())
    repository.start_run(run_id, {"price_per_hour": 3.6})
    for record in answers():
        repository.record_generation(run_id, record)
    repository.finish_run(run_id, cost_figures(answers(), 3.6))
    return repository.run(run_id)


@pytest.mark.parametrize(
    ("bound", "outcome"), [(1.0, "met"), (1e-6, "not met"), (8.5e-3 / 3, "undecided")], ids=["met", "not", "open"]
)
def test_a_use_asks_for_a_cost(repository: Repository, priced: RunView, bound: float, outcome: str) -> None:
    baseline = repository.create_run(run_config(None))
    runs = [priced], [repository.run(baseline)]
    prompts = repository.prompts([priced.id, baseline])
    results = evidence(Requirements(margin=None, highest_cost=bound), *runs, prompts)
    assert overall(results) == {"highest_cost": outcome}
    assert "per solved task [" in results[0].findings[0].text
    assert "at 3.6 per hour" in results[0].findings[0].text


def test_without_a_price_a_cost_is_open_until_the_installation_names_one(
    repository: Repository, priced: RunView, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, baseline = replace(priced, provenance={}), repository.run(repository.create_run(run_config(None)))
    prompts = repository.prompts([free.id, baseline.id])
    asked = Requirements(margin=None, highest_cost=1)
    (found,) = evidence(asked, [free], [baseline], prompts)[0].findings
    assert (found.outcome, found.text[:30]) == ("undecided", "no price per hour is known: se")
    monkeypatch.setenv("FSD_PRICE_PER_HOUR", "3.6")
    get_settings.cache_clear()
    try:
        assert overall(evidence(asked, [free], [baseline], prompts)) == {"highest_cost": "met"}
    finally:
        get_settings.cache_clear()


def test_hashes_of_what_uses_asked_before_stay(priced: RunView) -> None:
    assert Requirements().as_json() == {"margin": 2.0, "least_speedup": None, "longest_answers": None}
    assert evidence_hash(Requirements(), [priced], []) != evidence_hash(Requirements(highest_cost=1), [priced], [])
    with pytest.raises(OutOfRange, match="Cost"):
        Requirements.named({"highest_cost": 0})


def test_compare_folds_costs_and_leaves_them_out_where_none_is_known(priced: RunView) -> None:
    row = Row(priced, "FSD <b>")
    text = str(cost_table([row]))  # pyright: ignore[reportArgumentType]
    assert f"<summary>Cost and energy</summary>{text}" in str(folded_costs([row]))  # pyright: ignore[reportArgumentType]
    assert "FSD &lt;b&gt;" in text
    assert "Cost per solved" in text
    assert "Energy per token" not in text
    assert "3.6" in text
    assert " to " in text
    empty = Row(replace(priced, metrics={}), "SD")
    assert str(cost_table([empty])) == ""  # pyright: ignore[reportArgumentType]
    assert str(folded_costs([empty])) == ""  # pyright: ignore[reportArgumentType]


def test_compare_tells_costs_at_a_price_that_somebody_chooses(repository: Repository, priced: RunView) -> None:
    never = Row(replace(priced, id="of another tool", metrics={"accuracy": 0.5}), "Imported")
    rows = [Row(priced, "FSD"), never]
    chosen, imported = at_price(rows, repository.prompts([priced.id]), 7.2)  # pyright: ignore[reportArgumentType]
    figures, measured = chosen.run.metrics or {}, priced.metrics or {}
    assert figures["price_per_hour"] == 7.2
    for name in ("cost_per_million_tokens", "cost_per_solved_task"):  # twice the price, with its interval
        for end in ("", "_low", "_high"):
            assert figures[name + end] == pytest.approx(2 * measured[name + end])
    assert (
        figures.items() >= {name: measured[name] for name in measured if not name.startswith(("cost", "price"))}.items()
    )
    assert imported == never  # what was not counted here has no cost
    text = str(cost_table([chosen, imported]))
    assert "7.2" in text
    assert "Imported" in text


def test_a_price_does_not_change_what_a_setting_is() -> None:
    config = run_config()
    assert "price" not in str(config.as_json())
    assert SettingConfig.model_validate(config.setting.as_json()).id == config.setting.id
