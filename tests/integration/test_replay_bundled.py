"""Recording and replay of the bundled pair: what is exact there, and the commands."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fsd_core
from fsd_core.config import ChainTopology, DecodingConfig, SamplingConfig
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.errors import UnfitTrace
from fsd_core.evaluation.harness import prompt_seed
from fsd_core.models.loading import LoadedPair
from fsd_core.replays import trace_file
from fsd_core.replays.prediction import Replay, replayable, runs_of
from fsd_core.replays.recording import check_pair, record
from fsd_core.replays.trace_file import Trace
from fsd_core.rules import FuzzyReducible, Rule, Speculative
from fsd_core.tasks import get_task
from fsd_core.testing import toy_pair

LENGTH, PROMPTS = 6, 5


@pytest.fixture(scope="module")
def bundled() -> LoadedPair:
    return fsd_core.load_pair("bundled", device="cpu")


@pytest.fixture(scope="module")
def trace(bundled: LoadedPair) -> Trace:
    return record(bundled, get_task("arithmetic"), PROMPTS, draft_length=LENGTH, timed_rounds=0)


def decoded(
    pair: LoadedPair, rule: Rule, length: int, sampling: SamplingConfig | None = None, tokens: int = 128
) -> list[GeneratedText]:
    config = DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=length),
        sampling=sampling or SamplingConfig(),
        max_new_tokens=tokens,
    )
    decoder = PairDecoder(pair, config)
    return [
        decoder.generate(decoder.prompt_ids(example.prompt), prompt_seed(0, position))
        for position, example in enumerate(get_task("arithmetic").examples(PROMPTS))
    ]


def counts(done: GeneratedText) -> list[int]:
    """Tokens, rounds, drafted and accepted tokens."""
    records = done.records
    return [len(done.tokens), len(records), sum(len(r.drafted) for r in records), sum(r.accepted for r in records)]


def greedy(rule: Rule, length: int) -> DecodingConfig:
    return DecodingConfig(acceptance=rule, topology=ChainTopology(length=length))


@pytest.mark.wide
@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.long), 3, LENGTH])
def test_greedily_strict_decoding_is_predicted_exactly(bundled: LoadedPair, trace: Trace, length: int) -> None:
    """At each draft length up to the recorded one: rounds, drafted and accepted tokens of every prompt."""
    (said,) = Replay(trace).predict([greedy(Speculative(), length)])
    measured = [counts(done) for done in decoded(bundled, Speculative(), length)]
    assert said.counts.tolist() == measured


@pytest.mark.wide
def test_the_first_round_of_every_rule_is_exact(bundled: LoadedPair, trace: Trace) -> None:
    """Nothing lenient has been written yet, so that replay must say what decoding does."""
    replay = Replay(trace)
    first = replay.paths.begin
    differing = set()
    for kind, rule in replayable().items():
        own = rule.checked()
        kept = replay.accepted(own, LENGTH)
        windows = kept if own.judges_together else np.append(kept, False)[replay.paths.windows]
        said = np.minimum(runs_of(windows)[first], LENGTH)
        measured = [done.records[0].accepted for done in decoded(bundled, own, LENGTH, tokens=LENGTH + 1)]
        assert said.tolist() == measured, kind
        differing.add(tuple(measured))
    assert len(differing) > 1


@pytest.mark.wide
def test_sampled_strict_decoding_is_the_recorded_run(bundled: LoadedPair) -> None:
    sampled = SamplingConfig(temperature=1)
    trace = record(bundled, get_task("arithmetic"), 12, sampling=sampled, draft_length=LENGTH, timed_rounds=0)
    (said,) = Replay(trace).predict(
        [DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=LENGTH), sampling=sampled)]
    )
    assert said.counts[:, 1].tolist() == [len(prompt.rounds) for prompt in trace.prompts]
    _, _, drafted, accepted = np.sum([counts(done) for done in decoded(bundled, Speculative(), LENGTH, sampled)], 0)
    rate = accepted / drafted
    assert said.acceptance_rate.low is not None
    assert abs(rate - said.acceptance_rate.value) < 3 * (said.acceptance_rate.value - said.acceptance_rate.low)


@pytest.mark.wide
def test_limits_and_full_rows(bundled: LoadedPair, tmp_path: Path) -> None:
    """An answer that its limit ends drafts less at its end. Full rows predict the same."""
    few, all_of_them = (
        record(bundled, get_task("arithmetic"), 3, draft_length=4, max_new_tokens=17, top=top, timed_rounds=0)
        for top in (10, 0)
    )
    assert all(prompt.tokens == 17 for prompt in few.prompts)
    config = [greedy(rule, 3) for rule in (Speculative(), FuzzyReducible(threshold=0.1))]
    assert Replay(few).predict(config) == Replay(all_of_them).predict(config)
    sizes = [trace_file.write(one, tmp_path / f"{n}.gz") for n, one in enumerate((few, all_of_them))]
    assert sizes[0] / 3 < 10_000 < sizes[1]
    alone = PairDecoder(bundled, greedy(Speculative(), 3).model_copy(update={"max_new_tokens": 17}))
    example = get_task("arithmetic").examples(1)[0]
    done = alone.generate(alone.prompt_ids(example.prompt), prompt_seed(0, 0))
    (said,) = Replay(few).predict(config[:1])
    assert said.counts[0].tolist() == counts(done)


@pytest.mark.wide
def test_a_trace_of_another_pair_is_refused(trace: Trace, bundled: LoadedPair) -> None:
    check_pair(trace.info, bundled)
    toy = toy_pair()
    with pytest.raises(UnfitTrace, match="another tokenizer"):
        check_pair(trace.info.model_copy(update={"pair": toy.spec.name}), toy)
    with pytest.raises(UnfitTrace, match="bundled"):
        check_pair(trace.info.model_copy(update={"pair": "other"}), bundled)


@pytest.fixture(scope="module")
def recorded(bundled: LoadedPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as the command writes it."""
    file = tmp_path_factory.mktemp("recorded") / "run.jsonl.gz"
    trace_file.write(record(bundled, get_task("arithmetic"), 3, draft_length=3, max_new_tokens=8), file)
    return file


@pytest.mark.wide
def test_commands(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    recorded = tmp_path / "run.jsonl.gz"
    short = ("--limit", "3", "--max-new-tokens", "24", "--draft-length", "3", "--device", "cpu")
    status, out, _ = call("record", str(recorded), *short)
    assert status == 0
    assert "positions of 3 prompts" in out
    status, out, _ = call("replay", str(recorded))
    assert status == 0
    assert "SD · γ" in out
    assert "Replay cannot know how an answer changes" in out
    table = tmp_path / "all.csv"
    status, out, _ = call("replay", str(recorded), "--json", "--csv", str(table))
    said = json.loads(out)
    assert status == 0
    assert {row["acceptance"] for row in said["predictions"]} == set(replayable())
    assert {row["draft_length"] for row in said["predictions"]} == {1, 2, 3}
    assert sum(row["best_draft_length"] for row in said["predictions"]) == len(said["predictions"]) / 3
    assert all(row["speed_up"] > 0 for row in said["predictions"])
    with table.open(encoding="utf-8", newline="") as lines:
        assert len([*csv.DictReader(lines)]) == len(said["predictions"])
    page, figure = tmp_path / "page.md", tmp_path / "figure.html"
    status, out, _ = call(
        "replay", str(recorded), "--acceptance", "speculative", "--acceptance", "fsd", "--thresholds", "0.1,0.3",
        "--draft-length", "2", "--measure", "--device", "cpu", "--report", str(page),
        "--figure", str(figure), "--json",
    )  # fmt: skip
    checked = json.loads(out)["predictions"]
    assert status == 0
    assert [row["value"] for row in checked] == [None, 0.1, 0.3]
    assert checked[0]["acceptance_error"] == 0
    assert checked[0]["measured_length_ratio"] == 1
    assert "| `fsd` | 2 |" in page.read_text(encoding="utf-8")
    drawn = figure.read_text(encoding="utf-8")
    assert '"name":"Predicted"' in drawn
    assert '"name":"Measured"' in drawn


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--draft-length", "4"), "The draft length is 4, and the trace was recorded with 3"),
        (("--acceptance", "rrs"), "no rule for a chain of single drafts"),
        (("--acceptance", "nothing"), "--acceptance 'nothing' is not known"),
        (("--report", "page.md"), "--report tells predicted from measured"),
        (("--figure", "page.html"), "--figure tells predicted from measured"),
        (("--measure", "--pair", "smollm2-135m"), "The trace is of 'bundled'"),
    ],
)
def test_commands_refuse(
    call: Callable[..., tuple[int, str, str]], recorded: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = call("replay", str(recorded), *arguments)
    assert (status, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--draft-length", "0"), "The draft length is 0: expected 1 to 32"),
        (("--top", "2"), "2 tokens are to be told apart: expected at least 3"),
        (("--task", "nothing"), "nothing"),
        (("--temperature", "-1"), "--temperature is -1.0: expected at least 0"),
    ],
)
def test_record_refuses(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    file = tmp_path / "run.gz"
    status, out, err = call("record", str(file), *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert not file.exists()
