"""Model cards of what ships: measured, and written from the logs beside the weights.

Measures the shipped draft for SmolLM2 and writes its model card: ``python -m fsd_core train card``.

The figures are those of the shipped pair, on prompts that no training has seen.

Measures the shipped adapter for SmolLM2 and writes its model card: ``python -m fsd_core train card adapter``.

The figures are those of the shipped pairs, on problems of test sets, which no training has seen.

Measures the shipped EAGLE heads and writes their model cards: ``python -m fsd_core train card head``.

The figures are those of the shipped pairs, on prompts that no training has seen.
"""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterConfig,
    DraftModelDrafter,
    DraftOnly,
    DynamicTreeTopology,
    EagleDrafter,
    SamplingConfig,
    Speculative,
    TopologyConfig,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import prompt_seed, run_examples
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import ADAPTED, ASSETS, DRAFTED, get_pair
from fsd_core.statistics.intervals import wilson
from fsd_core.tasks import get_task
from fsd_core.tasks.generators import DRAFT_STYLE, TARGET_STYLE, Choice, Problem

_HEAD = """\
# Bundled arithmetic pair

A target and a draft of Llama architecture over one byte-level BPE tokenizer, trained from random weights on generated
arithmetic word problems with worked steps. They exist so that FSD Lab shows a real trade-off on any machine, with no
network; they know nothing but such problems.

Made by `python -m fsd_core train bundled-pair --out FOLDER`. This card is written from the `training.json` beside each
model.

- **Data**: endless generated problems (`fsd_core/tasks/generators.py`), each seen once; the held-out
  problems (`arithmetic.jsonl`) are left out by their question. The question's tokens weigh a tenth of the solution's.
- **Two house styles**: target and draft learn the same problems and the same sums, each from a corpus with favourite
  words of its own (`fsd_core/tasks/generators.py`). See below.
- **Method**: next-token cross-entropy in bf16 autocast; Muon for hidden matrices, AdamW for the rest; rates constant
  for half of the steps, then falling to zero.
- **Licence**: that of this repository. No third-party text or weights went in.
"""

_STYLES = """
## Two house styles

Models of different makers learn from different texts. They differ in facts, and they differ in wording, mostly where
two words are nearly as good. Two models of one corpus would leave that half out: then only the sums would be in
dispute, where leniency costs most. So the corpora of this pair differ. At every choice of words both have the same
words at close odds, and each has another favourite. The Jensen-Shannon divergence of the two corpora at such a choice
is {low:.2f} to {high:.2f} nats. The sums are the same.

| Choice | target's corpus | draft's corpus |
|---|---|---|
{odds}

One problem in the favourite words of each:

| target | draft |
|---|---|
| {target} | {draft} |

A lenient rule can take the draft's word for the target's own, at no cost. The pair is made to show that effect. It is
an example, and no claim about other pairs: how much of a disagreement is wording, and how much is substance, is another
matter for each pair and task. Independent runs found FSD costly on reasoning models. With gpt-oss-20b, an EAGLE-3 head
and js ≤ 0.25, AIME 2024 fell from 77 % to 50 %, with answers 2.13 times as long and 0.73 times as fast from end to end,
and LiveCodeBench from 89 % to 34 %; with js ≤ 0.08 HumanEval fell from 96 % to 81 % (one seed). Another lossy rule,
lenience, left 3 of 10 AIME 2024 problems without an answer, where exact decoding answered all
(<https://github.com/chiatzenw-cur/lossy-spec-decode-repetition>). Measure your own pair before you are lenient.
"""
_EXAMPLE = Problem("", ("14 + 6 = 20", "20 / 5 = 4"), 4)


def _styles() -> str:
    """Return the section on wording."""
    target, draft = TARGET_STYLE.choices(), DRAFT_STYLE.choices()
    divergences = [_divergence(target[name], draft[name]) for name in target]
    odds = [f"| {name} | {_format_odds(target[name])} | {_format_odds(draft[name])} |" for name in target]
    favourites = [
        _EXAMPLE.solution(random.Random(0), style.favourites()).strip().replace("\n", " ⏎ ")
        for style in (TARGET_STYLE, DRAFT_STYLE)
    ]
    return _STYLES.format(
        low=min(divergences), high=max(divergences), odds="\n".join(odds), target=favourites[0], draft=favourites[1]
    )


def _format_odds(choice: Choice) -> str:
    return ", ".join(f"`{word}` {odds}" for word, odds in choice)


def _divergence(target: Choice, draft: Choice) -> float:
    """Return the Jensen-Shannon divergence of two choices with the same words, in nats."""
    p, q = ([odds / sum(odds for _, odds in choice) for _, odds in choice] for choice in (target, draft))
    return sum((x * log(2 * x / (x + y)) + y * log(2 * y / (x + y))) / 2 for x, y in zip(p, q, strict=True))


def write_card(folder: Path) -> None:
    """Write ``folder/README.md`` from ``folder/{target,draft}/training.json``."""
    logs = {role: json.loads((folder / role / "training.json").read_text()) for role in ("target", "draft")}
    rows = [
        ("Parameters", lambda d: f"{d['parameters']:,}"),
        ("Layers x hidden", lambda d: f"{d['plan']['layers']} x {d['plan']['hidden']}"),
        ("Batches x problems", lambda d: f"{d['plan']['schedule']['steps']:,} x {d['plan']['schedule']['batch']}"),
        ("Training time", lambda d: f"{d['seconds'] / 60:.0f} min"),
        ("Machine", lambda d: d["machine"]),
        ("Held-out accuracy, greedy", lambda d: f"{d['held_out_accuracy']:.1%} of {d['held_out_problems']}"),
    ]
    table = ["| | target | draft |", "|---|---|---|"]
    table += [f"| {name} | {show(logs['target'])} | {show(logs['draft'])} |" for name, show in rows]
    curves = []
    for role, data in logs.items():
        points = [row for row in data["log"] if "accuracy" in row]
        curves += [
            f"\n## Learning curve of the {role}\n",
            "| step | loss (nats) | accuracy on 100 other problems |",
            "|---|---|---|",
        ]
        curves += [f"| {row['step']} | {row['loss']:.3f} | {row['accuracy']:.0%} |" for row in points]
    (folder / "README.md").write_text("\n".join([_HEAD, *table, _styles(), *curves]) + "\n")


_DRAFT_FOLDER = ASSETS / "smollm2-135m" / "draft"
PROMPT_SETS = (
    "gsm8k", "mbpp", "spec-bench-mt", "spec-bench-translation", "spec-bench-summarization", "spec-bench-qa",
    "spec-bench-math", "spec-bench-rag",
)  # fmt: skip
DRAFT_LENGTH, LONGEST, ROWS = 5, 128, 8

Report = Callable[[dict[str, Any]], None]


_DRAFT = """\
# Draft for SmolLM2-135M-Instruct

{count} layers of the width of SmolLM2-135M-Instruct, between that model's own embedding and {head_tokens:,} rows of its
head, which it borrows when it is loaded: this folder holds the layers alone ({own_parameters:,} parameters, bfloat16).
A forward reads {share_of_target:.1%} of the weights that the target's reads. The tokens that the head does not tell
apart share {rest:.2%} of the probability evenly.

Made by `python -m fsd_core train draft --target smollm2-135m`; this card by `python -m fsd_core train card`.

- **Begins as** {begins}.
- **Written by the target**: {written:,} answers of up to {longest_answer} tokens ({tokens_written:,} tokens in all),
  half of them greedily and half at temperature 1: {own}to questions of the training splits of GSM8K (alone, and behind
  worked ones), Dolly 15k, CommonsenseQA and MBPP, to stories and encyclopaedia passages that are to be summed up
  (TinyStories, WikiText), and, with the adapter of `smollm2-135m-math`, to problems like those it learnt from.
{read}- No question or answer of a test split.
- **Method**: cross-entropy with the target's 32 likeliest tokens at every place, bf16 autocast, Muon, {steps:,} steps
  of {batch} texts; rates constant for half of them, then falling to zero.
- **Time**: {minutes:.{digits}f} min of training, on {machine}.{note}
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: Apache 2.0, as the target's, from which it comes.

## Acceptance

Exact speculative decoding, {gamma} tokens drafted a round, the first {limit} prompts of each set, answers of up to
{longest} tokens ({here}).

"""


_DRAFT_READ = """\
- **Read by the target**: {texts_read:,} texts ({answer_tokens_read:,} tokens of answers) under its chat template:
  solutions of GSM8K, answers of Dolly, programs of MBPP, stories and passages that go on from their beginning.
"""


def acceptance(pair: LoadedPair, task: str, config: DecodingConfig, limit: int, rows: int = ROWS) -> dict[str, Any]:
    """Return mean acceptance length (tokens per round) and acceptance rate on the first prompts.

    ``rows``: batch size.
    """
    decoder = PairDecoder(pair, config)
    examples = get_task(task).examples(limit)
    prompts = [decoder.fitting(decoder.prompt_ids(example.prompt)) for example in examples]
    seeds = [prompt_seed(0, position) for position in range(limit)]
    generations = [generation for _, generation in decoder.generate_all(prompts, seeds, rows)]
    rounds = [record for generation in generations for record in generation.records]
    drafted = sum(len(record.drafted) for record in rounds)
    return {
        "task": task,
        "temperature": config.sampling.temperature,
        "prompts": limit,
        "tokens": sum(len(generation.tokens) for generation in generations),
        "acceptance_length": round(sum(len(record.emitted) for record in rounds) / len(rounds), 3),
        "acceptance_rate": round(sum(record.accepted for record in rounds) / drafted, 4),
    }


def setting(rule: AcceptanceConfig, temperature: float) -> DecodingConfig:
    """Return the config with which the cards try the rule."""
    return DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=DRAFT_LENGTH),
        sampling=SamplingConfig(temperature=temperature),
        max_new_tokens=LONGEST,
    )


def measure_draft(pair: LoadedPair, limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the acceptance of a pair's draft on every prompt set, greedily and at temperature 1."""
    rows = []
    for task in PROMPT_SETS:
        for temperature in (0.0, 1.0):
            rows.append(acceptance(pair, task, setting(Speculative(), temperature), limit))
            report(rows[-1])
    return rows


def write_draft_card(rows: list[dict[str, Any]], dtype: str) -> Path:
    """Write the card and, next to it, the rows of :func:`measure_draft` that it shows."""
    training = json.loads((_DRAFT_FOLDER / "training.json").read_text())
    plan = training["plan"]
    before = {(row["task"], row["temperature"]): row for row in (training.get("start") or {}).get("measured", [])}
    table = _table(rows, before)
    card = _DRAFT.format(
        **{**plan["schedule"], **plan, **training, "note": f" {training.get('note', '')}".rstrip()},
        written=training["texts"] - training.get("texts_read", 0),
        tokens_written=training["answer_tokens"] - training.get("answer_tokens_read", 0),
        read=_DRAFT_READ.format(**training) if training.get("texts_read") else "",
        begins=_initialisation(training),
        count=len(plan["layers"]),
        rest=1 - training["head_covers"],
        minutes=training["seconds"] / 60, digits=time_digits(training), own=own(plan),
        gamma=DRAFT_LENGTH, longest=LONGEST, limit=rows[0]["prompts"], here=f"{platform.machine()}, {dtype}",
    )  # fmt: skip
    (_DRAFT_FOLDER / "README.md").write_text(card + "\n".join(table) + "\n")
    (_DRAFT_FOLDER / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return _DRAFT_FOLDER / "README.md"


def _table(rows: list[dict[str, Any]], before: dict[tuple[str, float], dict[str, Any]]) -> list[str]:
    """Return one line per prompt set, with the earlier acceptance length first if the initial draft was measured."""
    table = ["| Prompts | temperature 0 | | temperature 1 | |", "|---|---|---|---|---|"]
    heading = "tokens a round, before → now" if before else "tokens a round"
    table += [f"| | {heading} | drafted tokens kept | {heading} | drafted tokens kept |"]
    for pair in zip(rows[::2], rows[1::2], strict=True):
        cells = []
        for row in pair:
            old = before.get((row["task"], row["temperature"]))
            prefix = f"{old['acceptance_length']:.2f} → " if old else ""
            cells += [f"{prefix}{row['acceptance_length']:.2f}", f"{row['acceptance_rate']:.0%}"]
        table.append(f"| `{pair[0]['task']}` | {' | '.join(cells)} |")
    return table


def _initialisation(training: dict[str, Any]) -> str:
    layers = f"layers {', '.join(map(str, training['plan']['layers']))} of the target"
    return f"{layers}, trained before for {before} texts" if (before := taught_before(training)) else layers


def own(plan: dict[str, Any]) -> str:
    """Return how many texts answer prompts that the target wrote, before the other prompts are named; or ``""``."""
    return (
        f"{count:,} to prompts that it wrote itself (Magpie), the others " if (count := plan.get("own_prompts")) else ""
    )


def time_digits(training: dict[str, Any]) -> int:
    """Return the digits of a time in minutes: one below ten minutes."""
    return int(training["seconds"] < 600)


def taught_before(training: dict[str, Any]) -> str:
    """Return steps, time and texts of the earlier training that a model went on from, or ``""`` for none."""
    if not (start := training.get("start")):
        return ""
    return f"{start['steps']:,} steps ({start['seconds'] / 60:.0f} min) on {start['texts']:,}"


def make_draft_card(limit: int = 16, report: Report = lambda row: None) -> Path:
    """Measure and write the card."""
    pair = load_pair(DRAFTED)
    return write_draft_card(measure_draft(pair, limit, report), pair.dtype)


_ADAPTER_FOLDER = ASSETS / "smollm2-135m" / "adapter"
PROBLEM_SETS = ("addsub", "singleeq", "multiarith", "svamp")
_CONTENDERS = (
    ("SmolLM2-135M-Instruct as it comes", DRAFTED, Autoregressive()),
    ("with this adapter", ADAPTED, Autoregressive()),
    ("the draft alone", ADAPTED, DraftOnly()),
)

_ADAPTER_CARD = """\
# Adapter for word problems, for SmolLM2-135M-Instruct

LoRA of rank {rank} on every linear map of the layers ({parameters:,} parameters, bfloat16), merged into the model when
the pair `{adapted}` is loaded. Made by `python -m fsd_core train adapter`; this card by
`python -m fsd_core train card adapter`.

- **Data**: {short:.0%} problems of one or two steps that `fsd_core/tasks/generators.py` makes up,
  {arithmetic:.0%} longer ones of `fsd_core/tasks/generators.py`, and {gsm8k:.0%} of the training split
  of GSM8K, put to the model as the tasks without examples put theirs. No problem of AddSub, SingleEq, MultiArith,
  SVAMP, of GSM8K's test split or of the task `short-problems`; the made-up ones follow the kinds of problems that are
  told apart in teaching, as those sets do.
- **Method**: next-token cross-entropy over the solutions, bf16 autocast, AdamW, {steps:,} steps of {batch} problems.
- **Time**: {minutes:.0f} min, on {machine}; other work shared the machine.
- **Problems held out**: cross-entropy {held_out_loss:.3f} nats.
- **Licence**: Apache 2.0, as the model's.

## Accuracy

The first {limit} problems of each set, greedily, answers of up to {longest} tokens; Wilson's interval of 95 %.

"""


def accuracy(pair: LoadedPair, task: str, rule: AcceptanceConfig, limit: int) -> dict[str, Any]:
    """Return the share of a task's first problems that are solved greedily, with Wilson's interval of 95 %."""
    problem_set = get_task(task)
    examples = dict(enumerate(problem_set.examples(limit)))
    records = list(run_examples(PairDecoder(pair, setting(rule, 0.0)), problem_set, examples, 0, 2 * ROWS))
    solved = sum(record.outcome == "correct" for record in records)
    low, high = wilson(solved, limit)
    return {"task": task, "rule": rule.kind, "problems": limit, "solved": solved, "low": low, "high": high}


def measure_adapter(limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the accuracy of each contender on every set of problems."""
    rows: list[dict[str, Any]] = []
    for _, name, rule in _CONTENDERS:
        pair = load_pair(name)
        for task in PROBLEM_SETS:
            rows.append({"pair": name} | accuracy(pair, task, rule, limit))
            report(rows[-1])
    return rows


def write_adapter_card(rows: list[dict[str, Any]]) -> None:
    """Write the card and, next to it, the rows of :func:`measure_adapter` that it shows."""
    training, size = json.loads((_ADAPTER_FOLDER / "training.json").read_text()), len(PROBLEM_SETS)
    table = [f"| | {' | '.join(f'`{task}`' for task in PROBLEM_SETS)} |", "|---|" + "---|" * size]
    for i, (title, _, _) in enumerate(_CONTENDERS):
        cells = (
            f"{row['solved'] / row['problems']:.0%} ({row['low']:.0%} to {row['high']:.0%})"
            for row in rows[i * size : (i + 1) * size]
        )
        table.append(f"| {title} | {' | '.join(cells)} |")
    card = _ADAPTER_CARD.format(
        **{**training, **training["plan"], **training["plan"]["schedule"], **training["plan"]["mix"]},
        minutes=training["seconds"] / 60, limit=rows[0]["problems"], longest=LONGEST, adapted=ADAPTED,
    )  # fmt: skip
    (_ADAPTER_FOLDER / "README.md").write_text(card + "\n".join(table) + "\n")
    (_ADAPTER_FOLDER / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def make_adapter_card(limit: int = 64, report: Report = lambda row: None) -> str:
    """Measure, write the card and return its path."""
    write_adapter_card(measure_adapter(limit, report))
    return str(_ADAPTER_FOLDER / "README.md")


_CHAIN = ChainTopology(length=DRAFT_LENGTH)
_TREE = DynamicTreeTopology(length=6, top_k=10, total_tokens=60)  # EAGLE-2's
CONTENDERS: dict[str, tuple[DrafterConfig, TopologyConfig]] = {
    "draft, chain": (DraftModelDrafter(), _CHAIN),
    "head, chain": (EagleDrafter(), _CHAIN),
    "draft, tree": (DraftModelDrafter(), _TREE),
    "head, tree": (EagleDrafter(), _TREE),
}
_PROMPTS = {DRAFTED: [task for task in PROMPT_SETS if task.startswith("spec-bench")], "bundled": ["arithmetic"]}

_HEAD_CARD = """\
# EAGLE head for the target of `{target}`

{kind}: one decoder layer of {own_parameters:,} parameters (bfloat16) that goes on from {reads} of the target,
on the target's own embedding and {head}, which it borrows when it is loaded. The files are in the published format.

Made by `python -m fsd_core train eagle-head --target {target}`; this card by `python -m fsd_core train card head`.

- **Begins as** the last layer of the target, as far as that fits{before}.
- **Data**: {texts:,} answers of up to {longest_answer} tokens ({answer_tokens:,} tokens in all) that the target itself
  wrote, half of them greedily and half at temperature 1, {own}{questions}. No question of a test split.{read}
- **Method**: {loss}, bf16 autocast, Muon, {steps_done:,} batches of {batch} texts; rates constant for half of them,
  then falling to zero.
- **Time**: {minutes:.{digits}f} min of training, on {machine}.{note}
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: {licence}.

## Tokens a round

Exact speculative decoding at temperature 0, the first {limit} prompts of each set, answers of up to {longest} tokens
({here}): chains of {gamma} tokens, and EAGLE-2's tree of {tree_tokens} tokens (width {tree_width}, {tree_length}
levels).

"""
_QUESTIONS = {
    DRAFTED: "to questions of the training splits of GSM8K (alone, and behind worked ones), Dolly 15k, CommonsenseQA "
    "and MBPP, and to stories and encyclopaedia passages that are to be summed up",
    "bundled": "to arithmetic problems that `fsd_core/tasks/generators.py` makes up",
}
_HEAD_READ = "\n  {:,} of these texts exist, in the same training splits, and the target read them."
_LICENCES = {
    DRAFTED: "Apache 2.0, as the target's, from which it comes",
    "bundled": "that of this repository",
}


def folder_of(target: str) -> Path:
    """Return the folder of a pair's shipped head."""
    head = get_pair(target).head
    assert isinstance(head, Path)
    return head


def measure_head(pair: LoadedPair, limit: int, report: Report) -> list[dict[str, Any]]:
    """Return the acceptance of draft and head, chain and tree, on every prompt set, greedily."""
    rows = []
    for task in _PROMPTS[pair.spec.name]:
        for name, (drafter, topology) in CONTENDERS.items():
            config = DecodingConfig(
                acceptance=Speculative(), drafter=drafter, topology=topology, max_new_tokens=LONGEST
            )
            rows.append({"contender": name} | acceptance(pair, task, config, limit, rows=1))
            report(rows[-1])
    return rows


def write_head_card(target: str, rows: list[dict[str, Any]], dtype: str) -> Path:
    """Write the card and, next to it, the rows of :func:`measure_head` that it shows."""
    folder = folder_of(target)
    training = json.loads((folder / "training.json").read_text())
    plan, eagle3 = training["plan"], training["plan"]["generation"] == 3
    table = [f"| Prompts | {' | '.join(CONTENDERS)} |", "|---|" + "---|" * len(CONTENDERS)]
    size = len(CONTENDERS)
    for i in range(0, len(rows), size):
        cells = (f"{row['acceptance_length']:.2f}" for row in rows[i : i + size])
        table.append(f"| `{rows[i]['task']}` | {' | '.join(cells)} |")
    loss = "cross-entropy with the target's 32 likeliest tokens"
    states = f", also behind {plan['steps'] - 1} of its own states (EAGLE-3's training-time test)"
    card = _HEAD_CARD.format(
        **{**plan["schedule"], **plan, **training, "note": f" {training.get('note', '')}".rstrip()},
        before=f", taught before for {before} other texts" if (before := taught_before(training)) else "",
        kind="EAGLE-3" if eagle3 else "EAGLE",
        read=_HEAD_READ.format(count) if (count := training.get("texts_read")) else "",
        reads="three states" if eagle3 else "the last state",
        head=f"{plan['head_tokens']:,} rows of its head" if plan["head_tokens"] else "its head",
        questions=_QUESTIONS[target],
        loss=(loss if eagle3 else f"smooth L1 of the states and 0.1 × {loss}") + (states if plan["steps"] > 1 else ""),
        steps_done=training["log"][-1]["step"],
        minutes=training["seconds"] / 60, digits=time_digits(training), own=own(plan),
        licence=_LICENCES[target],
        limit=rows[0]["prompts"], longest=LONGEST, here=f"{platform.machine()}, {dtype}", gamma=DRAFT_LENGTH,
        tree_tokens=_TREE.total_tokens, tree_width=_TREE.top_k, tree_length=_TREE.length,
    )  # fmt: skip
    (folder / "README.md").write_text(card + "\n".join(table) + "\n")
    (folder / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return folder / "README.md"


def make_head_card(limit: int = 8, report: Report = lambda row: None) -> str:
    """Measure, write the cards of all heads and return their paths."""
    written = []
    for target in _PROMPTS:
        pair = load_pair(target)
        written.append(write_head_card(target, measure_head(pair, limit, report), pair.dtype))
    return "\n".join(map(str, written))
