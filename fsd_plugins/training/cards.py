"""Model cards of what ships: measured, and written from the logs beside the weights.

``python -m fsd_core train card`` measures the shipped draft for SmolLM2 and writes its card, ``train card adapter``
that of the shipped adapter, ``train card head`` those of the shipped EAGLE heads. The figures are those of the shipped
pairs, on prompts and problems that no training has seen.
"""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from fsd_core.models.model_pairs import ADAPTED, DRAFTED
from fsd_core.statistics.intervals import wilson
from fsd_core.tasks import get_task
from fsd_plugins.training.generators import DRAFT_STYLE, TARGET_STYLE, Choice, Problem

_HEAD = """\
# Bundled arithmetic pair

A target and a draft of Llama architecture over one byte-level BPE tokenizer, trained from random weights on generated
arithmetic word problems with worked steps. They exist so that FSD Lab shows a real trade-off on any machine, with no
network; they know nothing but such problems.

Made by `python -m fsd_core train bundled-pair --out FOLDER`. This card is written from the `training.json` beside each
model.

- **Data**: endless generated problems (`fsd_plugins/training/generators.py`), each seen once; the held-out
  problems (`arithmetic.jsonl`) are left out by their question. The question's tokens weigh a tenth of the solution's.
- **Two house styles**: target and draft learn the same problems and the same sums, each from a corpus with favourite
  words of its own (`fsd_plugins/training/generators.py`). See below.
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

{odds}

One problem in the favourite words of each:

{favourites}

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
    odds = [
        [name, *(", ".join(f"`{word}` {odds}" for word, odds in style[name]) for style in (target, draft))]
        for name in target
    ]
    solutions = (
        _EXAMPLE.solution(random.Random(0), style.favourites()).strip() for style in (TARGET_STYLE, DRAFT_STYLE)
    )
    return _STYLES.format(
        low=min(divergences),
        high=max(divergences),
        odds=_table(["Choice", "target's corpus", "draft's corpus"], odds),
        favourites=_table(["target", "draft"], [[text.replace("\n", " ⏎ ") for text in solutions]]),
    )


def _divergence(target: Choice, draft: Choice) -> float:
    """Return the Jensen-Shannon divergence of two choices with the same words, in nats."""
    p, q = ([odds / sum(odds for _, odds in choice) for _, odds in choice] for choice in (target, draft))
    return sum((x * log(2 * x / (x + y)) + y * log(2 * y / (x + y))) / 2 for x, y in zip(p, q, strict=True))


def write_card(folder: Path) -> None:
    """Write ``folder/README.md`` from ``folder/{target,draft}/training.json``."""
    logs = {role: _told(folder / role) for role in ("target", "draft")}
    facts = {
        "Parameters": "{parameters:,}",
        "Layers x hidden": "{layers} x {hidden}",
        "Batches x problems": "{steps:,} x {batch}",
        "Training time": "{minutes:.0f} min",
        "Machine": "{machine}",
        "Held-out accuracy, greedy": "{held_out_accuracy:.1%} of {held_out_problems}",
    }
    rows = [[name, *(shown.format(**told) for told in logs.values())] for name, shown in facts.items()]
    parts = [_HEAD, _table(["", "target", "draft"], rows), _styles()]
    for role, told in logs.items():
        points = [row for row in told["log"] if "accuracy" in row]
        curve = [(row["step"], f"{row['loss']:.3f}", f"{row['accuracy']:.0%}") for row in points]
        heads = ["step", "loss (nats)", "accuracy on 100 other problems"]
        parts += [f"\n## Learning curve of the {role}\n", _table(heads, curve)]
    (folder / "README.md").write_text("\n".join(parts) + "\n")


PROMPT_SETS = (
    "gsm8k", "mbpp", "spec-bench-mt", "spec-bench-translation", "spec-bench-summarization", "spec-bench-qa",
    "spec-bench-math", "spec-bench-rag",
)  # fmt: skip
DRAFT_LENGTH, LONGEST, ROWS = 5, 128, 8

Row = dict[str, Any]


def _told(folder: Path) -> dict[str, Any]:
    """Return what is told of a training: its figures, its plan, and parts of sentences that depend on these."""
    training = json.loads((folder / "training.json").read_text())
    plan, start, own = training["plan"], training.get("start"), training["plan"].get("own_prompts")
    return {
        **plan["schedule"],
        **plan,
        "texts_read": 0,
        "answer_tokens_read": 0,
        "start": None,
        **training,
        "steps_done": training["log"][-1]["step"],
        "minutes": training["seconds"] / 60,
        "digits": int(training["seconds"] < 600),
        "note": f" {training.get('note', '')}".rstrip(),
        "own": f"{own:,} to prompts that it wrote itself (Magpie), the others " if own else "",
        "before": f"{start['steps']:,} steps ({start['seconds'] / 60:.0f} min) on {start['texts']:,}" if start else "",
    }


def _table(heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table in Markdown."""
    first, *others = ("|".join(f" {cell} " if cell != "" else " " for cell in line) for line in (heads, *rows))
    return "\n".join(f"|{line}|" for line in (first, "|".join(["---"] * len(heads)), *others))


def _grouped(titles: Sequence[str], rows: Sequence[Row], show: Callable[[Row], str]) -> Iterator[list[str]]:
    """Yield the lines of a table, each a title and the cells of as many rows as all lines have."""
    size = len(rows) // len(titles)
    for i, title in enumerate(titles):
        yield [title, *map(show, rows[i * size : (i + 1) * size])]


def _write(folder: Path, template: str, rows: list[Row], table: str, dtype: str, **facts: Any) -> Path:
    """Write a card from the log of the model in ``folder``, and next to it the ``rows`` that it shows."""
    facts |= {"here": f"{platform.machine()}, {dtype}", "gamma": DRAFT_LENGTH, "longest": LONGEST}
    facts["limit"] = rows[0].get("prompts") or rows[0]["problems"]
    (folder / "README.md").write_text(template.format(**_told(folder) | facts) + table + "\n")
    (folder / "measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return folder / "README.md"


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


def measure_draft(pair: LoadedPair, limit: int) -> Iterator[Row]:
    """Yield the acceptance of a pair's draft on every prompt set, greedily and at temperature 1."""
    for task in PROMPT_SETS:
        for temperature in (0.0, 1.0):
            yield acceptance(pair, task, setting(Speculative(), temperature), limit)


def write_draft_card(folder: Path, rows: list[Row], dtype: str) -> Path:
    """Write the card with the rows of :func:`measure_draft`, with the earlier acceptance length first if the initial
    draft was measured."""
    told = _told(folder)
    before = {(row["task"], row["temperature"]): row for row in (told["start"] or {}).get("measured", [])}
    shown = ["tokens a round, before → now" if before else "tokens a round", "drafted tokens kept"]

    def show(row: Row) -> str:
        old = before.get((row["task"], row["temperature"]))
        prefix = f"{old['acceptance_length']:.2f} → " if old else ""
        return f"{prefix}{row['acceptance_length']:.2f} | {row['acceptance_rate']:.0%}"

    lines = _grouped([f"`{task}`" for task in PROMPT_SETS], rows, show)
    return _write(
        folder,
        _DRAFT,
        rows,
        _table(
            ["Prompts", "temperature 0", "", "temperature 1", ""],
            [["", *shown, *shown], *lines],
        ),
        dtype,
        written=told["texts"] - told["texts_read"],
        tokens_written=told["answer_tokens"] - told["answer_tokens_read"],
        read=_DRAFT_READ.format(**told) if told["texts_read"] else "",
        begins=f"layers {', '.join(map(str, told['layers']))} of the target"
        + (f", trained before for {told['before']} texts" if told["before"] else ""),
        count=len(told["layers"]),
        rest=1 - told["head_covers"],
    )


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

- **Data**: {short:.0%} problems of one or two steps that `fsd_plugins/training/generators.py` makes up,
  {arithmetic:.0%} longer ones of `fsd_plugins/training/generators.py`, and {gsm8k:.0%} of the training split
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


def measure_adapter(pair: LoadedPair, limit: int) -> Iterator[Row]:
    """Yield the accuracy of each contender on every set of problems."""
    for _, name, rule in _CONTENDERS:
        contender = pair if name == pair.spec.name else load_pair(name)
        for task in PROBLEM_SETS:
            yield {"pair": name} | accuracy(contender, task, rule, limit)


def write_adapter_card(folder: Path, rows: list[Row], dtype: str) -> Path:
    """Write the card with the rows of :func:`measure_adapter`."""

    def show(row: Row) -> str:
        return f"{row['solved'] / row['problems']:.0%} ({row['low']:.0%} to {row['high']:.0%})"

    lines = _grouped([title for title, _, _ in _CONTENDERS], rows, show)
    table = _table(["", *(f"`{task}`" for task in PROBLEM_SETS)], lines)
    mix = _told(folder)["mix"]
    return _write(folder, _ADAPTER_CARD, rows, table, dtype, **mix, adapted=ADAPTED)


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

- **Begins as** the last layer of the target, as far as that fits{begins}.
- **Data**: {texts:,} answers of up to {longest_answer} tokens ({answer_tokens:,} tokens in all) that the target itself
  wrote, half of them greedily and half at temperature 1, {own}{questions}. No question of a test split.{read}
- **Method**: {loss}, bf16 autocast, Muon, {steps_done:,} batches of {batch} texts; rates constant for half of them,
  then falling to zero.
- **Time**: {minutes:.{digits}f} min of training, on {machine}.{note}
- **Texts held out**: Σ min(p, q) = {overlap:.3f}; the same likeliest token at {same_choice:.1%} of the places.
- **Licence**: {licence}.

## Tokens a round

Exact speculative decoding at temperature 0, the first {limit} prompts of each set, answers of up to {longest} tokens
({here}): chains of {gamma} tokens, and EAGLE-2's tree of {tree.total_tokens} tokens (width {tree.top_k}, {tree.length}
levels).

"""
_QUESTIONS = {
    DRAFTED: "to questions of the training splits of GSM8K (alone, and behind worked ones), Dolly 15k, CommonsenseQA "
    "and MBPP, and to stories and encyclopaedia passages that are to be summed up",
    "bundled": "to arithmetic problems that `fsd_plugins/training/generators.py` makes up",
}
_HEAD_READ = "\n  {:,} of these texts exist, in the same training splits, and the target read them."
_LICENCES = {
    DRAFTED: "Apache 2.0, as the target's, from which it comes",
    "bundled": "that of this repository",
}


def measure_head(pair: LoadedPair, limit: int) -> Iterator[Row]:
    """Yield the acceptance of draft and head, chain and tree, on every prompt set, greedily."""
    for task in _PROMPTS[pair.spec.name]:
        for name, (drafter, topology) in CONTENDERS.items():
            config = DecodingConfig(
                acceptance=Speculative(), drafter=drafter, topology=topology, max_new_tokens=LONGEST
            )
            yield {"contender": name} | acceptance(pair, task, config, limit, rows=1)


def write_head_card(folder: Path, rows: list[Row], dtype: str) -> Path:
    """Write the card with the rows of :func:`measure_head`."""
    told = _told(folder)
    eagle3, tokens, steps = told["generation"] == 3, told["head_tokens"], told["steps"]
    titles = [f"`{task}`" for task in _PROMPTS[told["target"]]]
    lines = _grouped(titles, rows, lambda row: f"{row['acceptance_length']:.2f}")
    loss = "cross-entropy with the target's 32 likeliest tokens"
    if not eagle3:
        loss = f"smooth L1 of the states and 0.1 × {loss}"
    if steps > 1:
        loss += f", also behind {steps - 1} of its own states (EAGLE-3's training-time test)"
    return _write(
        folder,
        _HEAD_CARD,
        rows,
        _table(["Prompts", *CONTENDERS], lines),
        dtype,
        begins=f", taught before for {told['before']} other texts" if told["before"] else "",
        kind="EAGLE-3" if eagle3 else "EAGLE",
        read=_HEAD_READ.format(told["texts_read"]) if told["texts_read"] else "",
        reads="three states" if eagle3 else "the last state",
        head=f"{tokens:,} rows of its head" if tokens else "its head",
        questions=_QUESTIONS[told["target"]],
        loss=loss,
        licence=_LICENCES[told["target"]],
        tree=_TREE,
    )


Measure, Write = Callable[[LoadedPair, int], Iterator[Row]], Callable[[Path, list[Row], str], Path]
CARDS: dict[str, tuple[Measure, Write, int, Sequence[str]]] = {
    "draft": (measure_draft, write_draft_card, 16, [DRAFTED]),
    "adapter": (measure_adapter, write_adapter_card, 64, [ADAPTED]),
    "head": (measure_head, write_head_card, 8, [*_PROMPTS]),
}
"""for each kind what measures it, what writes its card, on how many prompts of each set, and the pairs that ship"""


def make(what: str, limit: int | None, report: Callable[[Row], None]) -> Iterator[Path]:
    """Measure the shipped models of a kind, write their cards and yield their paths."""
    measure, write, usual, pairs = CARDS[what]
    for name in pairs:
        pair, rows = load_pair(name), []
        for row in measure(pair, limit or usual):
            rows.append(row)
            report(row)
        yield write(getattr(pair.spec, what), rows, pair.dtype)
