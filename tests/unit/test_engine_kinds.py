"""What each kind of engine counts, has and lacks."""

from __future__ import annotations

import pytest

from fsd_core.config import SettingConfig
from fsd_core.config.options import method
from fsd_core.engines.kinds import (
    NO_METRICS,
    NOT_COUNTED,
    RESTARTED,
    TRAITS,
    EngineReading,
    Snapshot,
    engine_figures,
    read_metrics,
    with_engine_rates,
)
from fsd_core.errors import NoEquivalent
from fsd_core.evaluation.aggregate import summarise
from fsd_core.review.delivery import deliver
from tools.engine_enumerations import PAGE as ENGINES_PAGE
from tools.engine_enumerations import named, unnamed, values

NAMES = TRAITS["vllm"].counters
PAGE = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="another"} 5000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 3e2
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 90
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 10 1700000000000
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.7e9
vllm:generation_tokens_total{model_name="m"} 420
process_start_time_seconds 1700000000.25
odd{label="a \\"quoted\\" } name",other="x"} +Inf
no number here
"""


def snapshot(**values: float) -> Snapshot:
    return Snapshot(**{"generated": 0.0, "drafts": 0.0, "drafted": 0.0, "accepted": 0.0} | values)  # pyright: ignore


def test_a_page_is_read_with_labels_and_stamps_and_what_is_no_sample_is_passed_over() -> None:
    samples = list(read_metrics(PAGE))
    assert len(samples) == 11
    odd = next(sample for sample in samples if sample.name == "odd")
    assert (odd.labels["label"], odd.labels["other"], odd.value) == ('a "quoted" } name', "x", float("inf"))
    assert Snapshot.of(samples, NAMES, "m") == Snapshot(420, 120, 600, 300, (90, 0, 10), 1700000000.25)
    assert Snapshot.of(samples, NAMES, "third") == Snapshot(started=1700000000.25)
    assert list(read_metrics("<html>not found</html>")) == []
    assert Snapshot.of([], NAMES, "m") is None


def test_rates_have_our_definitions() -> None:
    before = Snapshot(100, 10, 50, 25, (8, 4))
    after = Snapshot(142, 20, 100, 55, (17, 11, 2))
    reading = EngineReading(requests=3, tokens=42).counted(before, after, "")
    assert (reading.drafts, reading.drafted, reading.accepted, reading.accepted_at) == (10, 50, 30, (9, 7, 2))
    assert reading.other_traffic is False
    figures = engine_figures([reading])
    assert figures["acceptance_rate"] == pytest.approx(30 / 50)
    assert figures["engine_mean_acceptance_length"] == pytest.approx(1 + 30 / 10)
    assert figures["acceptance_at_position"] == pytest.approx([0.9, 0.7, 0.2])
    # What is computed from the prompts anew, of which none says what was drafted, leaves the engine's rates.
    assert with_engine_rates(figures | summarise([], None))["acceptance_rate"] == pytest.approx(0.6)


def test_other_traffic_is_seen_and_its_acceptance_is_not_ours() -> None:
    reading = EngineReading(requests=3, tokens=42).counted(snapshot(), snapshot(generated=43, drafts=9, drafted=9), "")
    assert reading.other_traffic is True
    figures = engine_figures([reading])
    assert figures["engine"]["other_traffic"] is True
    assert "acceptance_rate" not in figures
    # Half an answer may be what the engine has written more.
    unknown = EngineReading(unfinished=1, tokens=42).counted(snapshot(), snapshot(generated=50), "")
    assert unknown.other_traffic is None


@pytest.mark.parametrize(
    ("before", "after", "no_acceptance", "reason"),
    [
        (None, snapshot(), "", NO_METRICS),
        (snapshot(), None, "", NO_METRICS),
        (snapshot(generated=10, drafts=5), snapshot(generated=20, drafts=2), "", RESTARTED),
        (snapshot(generated=10), Snapshot(), "", RESTARTED),
        (snapshot(started=1.0), snapshot(generated=20, drafts=2, started=2.0), "", RESTARTED),
        (snapshot(), snapshot(generated=10), "", NOT_COUNTED),
        (snapshot(), snapshot(generated=10, drafts=3, drafted=3), "A gauge.", "A gauge."),
        (snapshot(), snapshot(generated=10), None, ""),
    ],
)
def test_what_counters_do_not_say_is_left_out_with_the_reason(
    before: Snapshot | None, after: Snapshot | None, no_acceptance: str | None, reason: str
) -> None:
    reading = EngineReading(requests=1, tokens=10).counted(before, after, no_acceptance)
    assert (reading.left_out, reading.drafted) == (reason, None)
    assert "acceptance_rate" not in engine_figures([reading])


def test_stretches_are_summed_and_one_that_is_unknown_leaves_the_traffic_unknown() -> None:
    first = EngineReading(requests=2, tokens=20).counted(snapshot(), snapshot(generated=20, drafts=4, drafted=8), "")
    second = EngineReading(requests=1, tokens=5).counted(snapshot(), None, "")
    total = engine_figures([first, second])["engine"]
    assert (total["requests"], total["tokens"], total["drafts"], total["drafted"]) == (3, 25, 4, 8)
    assert (total["generated"], total["other_traffic"], total["left_out"]) == (None, None, NO_METRICS)
    assert engine_figures([first, first])["engine"]["generated"] == 40
    assert engine_figures([]) == {}


MODULE = """
from typing import Literal
Kinds = Literal["ngram", "newest", Others]
One = Literal["fly"]
class SpeculativeAlgorithm(Enum):
    EAGLE = auto()
    NONE = auto()
    FRESH = auto()
    def is_eagle(self): return self in (SpeculativeAlgorithm.EAGLE,)
"""


def test_a_method_that_the_page_does_not_name_is_found() -> None:
    assert list(values(MODULE)) == ["ngram", "newest", "fly", "EAGLE", "FRESH"]
    assert unnamed(MODULE, ENGINES_PAGE.read_text(encoding="utf-8")) == ["newest", "FRESH"]
    assert {"suffix", "fly", "synthetic", "STANDALONE", "DSPARK"} <= named(ENGINES_PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("engine", "options", "has_it"),
    [
        ("vllm", {"acceptance": "lookahead"}, True),
        ("vllm", {"acceptance": "speculative", "drafter": "suffix"}, True),
        ("vllm", {"acceptance": "cascade"}, False),
        ("sglang", {"acceptance": "lookahead"}, False),
        ("sglang", {"acceptance": "speculative", "drafter": "suffix"}, False),
        ("sglang", {"acceptance": "speculative", "topology": "dynamic-tree"}, True),
    ],
)
def test_a_refusal_says_whether_the_engine_has_it(engine: str, options: dict[str, str], has_it: bool) -> None:
    setting = SettingConfig(decoding=method(options), pair="hub:a/target@v1+a/draft@v2")
    with pytest.raises(NoEquivalent) as refused:
        deliver(setting, engine, {})
    assert ("is not exported yet" in str(refused.value)) is has_it
    assert ("no equivalent" in str(refused.value)) is not has_it
