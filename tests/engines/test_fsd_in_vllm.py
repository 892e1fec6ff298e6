"""FSD inside vLLM: with the plug-in it writes by our rules' law, and without a rule what it writes without the plug-in.

On vLLM's CPU build with the bundled pair, in an environment of its own: ``make test-engines``. ``FSD_ENGINES_PROMPTS``
sets the prompts of the comparison, 150 by default. What passes is recorded in docs/engines.md
(:mod:`tests.engines.engine_record`).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import fsd_core
from fsd_core.config.options import method
from fsd_core.config.vllm_plugin import SERVED_RULES
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.trace import RoundRecord
from fsd_core.evaluation.harness import written
from fsd_core.models.loading import LoadedPair
from fsd_core.ops.distributions import entropy
from fsd_core.statistics.intervals import ratio_interval, wilson
from fsd_core.tasks import get_task
from fsd_core.testing import fit, written_distribution
from tests.engines.conftest import DRAFTED, Engine, Start, draft_config, engines_python, environment
from tests.engines.engine_record import EngineRecord

PROMPTS = int(os.environ.get("FSD_ENGINES_PROMPTS", "150"))
LONGEST = 64


@cache
def pair() -> LoadedPair:
    return fsd_core.load_pair("bundled", device="cpu")


def prompts(count: int) -> list[list[int]]:
    return [
        pair().inputs(example.prompt)["input_ids"][0].tolist() for example in get_task("arithmetic").examples(count)
    ]


@dataclass(frozen=True)
class OwnText:
    """What our loop writes after a first token, which the target writes before anything is drafted, as in vLLM."""

    tokens: list[int]
    rounds: list[RoundRecord]
    """those after the first token"""
    text: str
    stop: str


def ours(count: int, seed: int = 0, **options: Any) -> list[OwnText]:
    config = method({"max_new_tokens": LONGEST - 1} | options)
    decoder = PairDecoder(pair(), config)
    return [_own_text(decoder, asked, seed + i) for i, asked in enumerate(prompts(count))]


def _own_text(decoder: PairDecoder, asked: list[int], seed: int) -> OwnText:
    with torch.no_grad():
        logits, temperature = (
            pair().target.module(torch.tensor([asked])).logits[0, -1],
            decoder.config.sampling.temperature,
        )
    generator = torch.Generator().manual_seed(seed)
    first = int(
        (logits / temperature).softmax(-1).multinomial(1, generator=generator) if temperature else logits.argmax()
    )
    with decoder.session([*asked, first], seed) as session:
        rounds = []
        while session.stop_reason is None:
            rounds.append(session.run_round())
        stop = session.stop_reason
    tokens = [first, *(token for record in rounds for token in record.emitted)]
    return OwnText(tokens, rounds, written(pair(), tokens), stop)


def tokens(written: Sequence[dict[str, Any]]) -> list[list[int]]:
    return [text["tokens"] for text in written]


def solved(texts: Sequence[str], stops: Sequence[str]) -> int:
    task = get_task("arithmetic")
    scores = (
        task.score(text, example, stop)
        for text, example, stop in zip(texts, task.examples(len(texts)), stops, strict=True)
    )
    return sum(score.outcome == "correct" for score in scores)


def lengths_of(ours: Sequence[OwnText]) -> list[tuple[float, float]]:
    """Tokens and rounds of each text, without its first token."""
    return [(len(text.tokens) - 1, len(text.rounds)) for text in ours]


def lengths_in_vllm(written: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Tokens and rounds of each text. vLLM writes the first token with the prompt, before it drafts."""
    return [(len(text["tokens"]) - 1, text["rounds"]) for text in written]


def rates_in_vllm(written: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Accepted and drafted tokens of each text."""
    return [(text["accepted"], text["drafted"]) for text in written]


def rates_of(ours: Sequence[OwnText]) -> list[tuple[float, float]]:
    return [
        (sum(record.accepted for record in text.rounds), sum(len(record.drafted) for record in text.rounds))
        for text in ours
    ]


def share(right: int, of: int) -> str:
    low, high = wilson(right, of)
    return f"{right} of {of} ({100 * low:.0f} to {100 * high:.0f} %)"


def ratio(pairs: Sequence[tuple[float, float]]) -> str:
    ends = ratio_interval(pairs)
    return f"{pooled(pairs):.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")


def pooled(lengths: Sequence[tuple[float, float]]) -> float:
    return sum(a for a, _ in lengths) / sum(b for _, b in lengths)


def overlap(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> bool:
    """Whether the intervals of two mean acceptance lengths have a value in common."""
    (low, high), (other_low, other_high) = (ratio_interval(pairs) or (pooled(pairs),) * 2 for pairs in (one, other))
    return low <= other_high and other_low <= high


def test_off_and_at_the_strict_value_it_writes_what_vllm_writes(
    with_draft: Engine, served: Path, start: Start, record: EngineRecord
) -> None:
    asked = prompts(40)
    with start(draft_config(served), plugin=False) as bare:
        greedy = tokens(bare.write(asked))
    with_draft.rule("off")
    assert tokens(with_draft.write(asked)) == greedy
    for rule in ({"kind": "fsd-reducible", "threshold": 0.0}, {"kind": "fsd", "threshold": 0.0}, {"kind": "margin",
                 "logit_ratio": 1.0}, {"kind": "top-n-delta", "relaxed_delta": 0.0}, {"kind": "head-strict",
                 "head_width": 0.0}):  # fmt: skip
        with_draft.rule(rule)
        assert tokens(with_draft.write(asked)) == greedy, rule
        record.add(
            f"{len(asked)} prompts, greedy: texts that equal those of vLLM without the plug-in, token for token",
            {"rule": f"`{rule['kind']}`", "strict value": f"{list(rule.values())[1]:g}", "equal": f"{len(asked)}"},
        )
    with_draft.rule("off")
    assert tokens(with_draft.write(asked)) == greedy


@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.1, 0.4])
def test_acceptance_and_accuracy_equal_our_own_loops(
    with_draft: Engine, record: EngineRecord, threshold: float
) -> None:
    with_draft.rule("fsd-reducible", threshold)
    written = with_draft.write(prompts(PROMPTS), apart=True)
    own = ours(PROMPTS, acceptance="fsd-reducible", threshold=threshold, draft_length=DRAFTED - 1)
    same = sum(text["tokens"] == mine.tokens for text, mine in zip(written, own, strict=True))
    right = solved([text["text"] for text in written], [text["stop"] for text in written])
    own_right = solved([text.text for text in own], [text.stop for text in own])
    theirs, mine = lengths_in_vllm(written), lengths_of(own)
    rates, own_rates = rates_in_vllm(written), rates_of(own)
    record.add(
        f"{PROMPTS} prompts, greedy, `fsd-reducible` ("
        "tokens a round and accepted / drafted tokens after the first token, with 95 % intervals)",
        {
            "knob": f"js ≤ {threshold:g}", "the same text": f"{same}", "solved, vLLM": share(right, PROMPTS),
            "solved, our loop": share(own_right, PROMPTS), "tokens a round, vLLM": ratio(theirs),
            "our loop": ratio(mine), "accepted / drafted, vLLM": ratio(rates), "accepted / drafted, our loop":
            ratio(own_rates),
        },
    )  # fmt: skip
    assert same >= 0.95 * PROMPTS
    (low, high), (own_low, own_high) = wilson(right, PROMPTS), wilson(own_right, PROMPTS)
    assert low <= own_high
    assert own_low <= high
    assert overlap(theirs, mine)
    if same == PROMPTS:  # the same rounds, but for what is drafted behind the end
        assert theirs == mine


LOOSE: dict[str, float] = {
    "fsd": 0.3, "fsd-reducible": 0.3, "fsd-head": 0.4, "lenience": 0.9, "head": 0.8, "head-strict": 0.8,
    "typical": 0.05, "top-n-delta": 0.9, "margin": 0.8,
}  # fmt: skip


@pytest.mark.parametrize("kind", SERVED_RULES)
def test_each_rule_accepts_as_our_own_loop(with_draft: Engine, record: EngineRecord, kind: str) -> None:
    """Sampled at temperature 1, and greedily with the same texts."""
    count, rule = 24, with_draft.rule(kind, LOOSE[kind])
    judged = rule.get("judge_bonus", kind in ("fsd-reducible", "fsd-head", "head"))
    options = {"acceptance": kind, "draft_length": DRAFTED - judged} | {k: v for k, v in rule.items() if k != "kind"}
    options = {k: v for k, v in options.items() if k not in ("divergence_top_k",)}
    greedy = tokens(with_draft.write(prompts(count)))
    if judged:  # each token follows from the tokens before it, wherever rounds end
        own_greedy = [text.tokens for text in ours(count, **options)]
        assert sum(a == b for a, b in zip(greedy, own_greedy, strict=True)) >= 0.9 * count
    sampled = with_draft.write(prompts(count), apart=True, temperature=1.0)
    own = ours(count, temperature=1.0, **options)
    assert overlap(lengths_in_vllm(sampled), lengths_of(own))
    record.add(
        f"{count} prompts, sampled at temperature 1 (tokens a round after the first token)",
        {
            "rule": f"`{kind}`", "knob": f"{LOOSE[kind]:g}", "vLLM": ratio(lengths_in_vllm(sampled)),
            "our loop": ratio(lengths_of(own)),
        },
    )  # fmt: skip


SAMPLES = 600


@cache
def position() -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """A text whose next token is all but certain, and p and q of the token after that, which differ: prefix, [V], [V].

    vLLM writes the first token of an answer before it drafts, so the second is the first that is judged.
    """
    best: tuple[float, list[int], torch.Tensor, torch.Tensor] | None = None
    for asked in prompts(12):
        with torch.no_grad():
            written = pair().target.module.generate(torch.tensor([asked]), max_new_tokens=40, do_sample=False)
            p, q = (model.module(written).logits[0].softmax(-1) for model in (pair().target, pair().draft))
        for i in range(len(asked), written.shape[1] - 1):
            apart = float((p[i] - q[i]).abs().sum() / 2 * entropy(p[i]).clamp_max(1))  # and p is open
            if float(p[i - 1].max()) > 0.999 and (best is None or apart > best[0]):
                best = apart, written[0, :i].tolist(), p[i], q[i]
    assert best is not None
    return best[1:]


@pytest.mark.parametrize(("kind", "knob"), [("fsd-reducible", 0.69), ("fsd", 0.69), ("lenience", 0.8), ("head", 0.8)])
def test_the_law_of_one_position_is_ours_and_not_the_targets(
    with_draft: Engine, record: EngineRecord, kind: str, knob: float
) -> None:
    prefix, p, q = position()
    rule = fsd_core.DecodingConfig.model_validate({"acceptance": with_draft.rule(kind, knob)}).acceptance
    law = written_distribution(rule, p, q)
    written = with_draft.write([prefix] * SAMPLES, temperature=1.0, max_tokens=2, ignore_eos=True)
    certain = max(set(first := [text["tokens"][0] for text in written]), key=first.count)
    second = torch.tensor([text["tokens"][1] for text in written if text["tokens"][0] == certain])
    assert len(second) > 0.95 * SAMPLES
    common = law.topk(6).indices  # the others together, so that no expectation is small
    where = torch.full((len(law),), 6).scatter(0, common, torch.arange(6))

    def together(distribution: torch.Tensor) -> torch.Tensor:
        return torch.zeros(7, dtype=torch.float64).scatter_add(0, where, distribution.double())

    fits, fits_target = fit(where[second], together(law)), fit(where[second], together(p))
    assert fits > 1e-3
    assert fits_target < 1e-6
    record.add(
        "χ² of one position, sampled at temperature 1 (p-values)",
        {
            "rule": f"`{kind}`", "knob": f"{knob:g}", "tokens drawn": f"{len(second)}", "of our law": f"{fits:.2g}",
            "of the target's": f"{fits_target:.1g}",
        },
    )  # fmt: skip


def test_copied_tokens_are_judged_by_rules_that_need_p_alone(start: Start, record: EngineRecord) -> None:
    copying = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    asked = prompts(24)
    with start(copying) as engine:
        greedy = tokens(engine.write(asked))
        engine.rule("margin", 1.0)
        assert tokens(engine.write(asked)) == greedy
        strict = engine.ask(call="fsd_lab_counts")
        for kind, knob in (("typical", 1e-4), ("top-n-delta", 1.0), ("fsd", 0.69)):
            engine.rule(kind, knob)
            texts = tokens(engine.write(asked))
            loose = engine.ask(call="fsd_lab_counts")
            assert texts != greedy
            assert loose["accepted"] / loose["drafted"] > strict["accepted"] / strict["drafted"]
            record.add(
                f"{len(asked)} prompts, greedy, copied tokens (accepted of drafted)",
                {"rule": f"`{kind}`", "knob": f"{knob:g}", "strict": kept(strict), "with the rule": kept(loose)},
            )
        told = engine.ask(call="fsd_lab_rule", args=["lenience", 0.5])
        assert "Lenience needs the probabilities of a draft model" in told["error"]
        assert engine.rule()["kind"] == "fsd"


def kept(counts: dict[str, int]) -> str:
    return f"{counts['accepted']:,} of {counts['drafted']:,}"


LOAD = "from vllm.plugins import load_general_plugins; load_general_plugins()"


def run(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [engines_python(), "-c", code], env=environment(**more), capture_output=True, text=True
    )  # fmt: skip


def test_another_version_of_vllm_is_refused_at_start() -> None:
    told = run("import vllm; vllm.__version__ = '0.33.0'\n" + LOAD)
    assert told.returncode != 0
    assert "RuntimeError: fsd-lab-vllm 0.1.0 was tested with vLLM 0.32.0, and this is 0.33.0: install" in told.stderr


def test_the_environment_turns_a_rule_on_and_what_is_wrong_ends_the_start() -> None:
    told = run(LOAD, FSD_LAB_RULE="ensemble")
    assert told.returncode != 0
    assert "RuntimeError: vLLM is given no rule 'ensemble' by fsd-lab-vllm: expected off, or fsd," in told.stderr
    assert run(LOAD, FSD_LAB_RULE="fsd-reducible", FSD_LAB_KNOB="0.1").returncode == 0
