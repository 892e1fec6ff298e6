"""Trains the bundled pair: ``python -m fsd_core train bundled-pair --out FOLDER``.

Both models are plain Llama architectures over one byte-level BPE tokenizer, trained from random weights on worked
arithmetic problems (:mod:`fsd_plugins.training.generators`). The draft is so small that its sums are often
wrong, as is typical of a draft. Each model learns its own house style, so that they also differ in wording, like models
of two makers.

Trains a target with grouped linear attention: ``python -m fsd_core train linear-target --out FOLDER``.

It has the bundled target's size, tokenizer, problems and schedule, so the bundled draft drafts for it. Its texts have
70 to 170 tokens, hence the small groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer as CoreTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fsd_core.config import Autoregressive, DecodingConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.forwards import LinearLlama, LinearLlamaConfig
from fsd_core.models.hub import obtain
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import load_tokenizer
from fsd_plugins.training import generators
from fsd_plugins.training.cards import write_card
from fsd_plugins.training.generators import Problem, Style
from fsd_plugins.training.loop import Batch, Row, alike, make, pad_rows, read_model, weighted_loss
from fsd_plugins.training.plans import BUNDLED_PLANS, LINEAR_PLAN, BundledPlan, LinearPlan, Parts

PAD, END = "<|pad|>", "<|end|>"
_HELD_OUT = 600
WATCHED = 100  # other problems, for the learning curve
CONTEXT = 512
LONGEST_ANSWER = 96  # tokens
ROWS = 100  # problems that are solved at once


def train_tokenizer(seed: int = 0, vocabulary: int = 640, samples: int = 20_000) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer that encodes any text and splits every number into its digits.

    The texts have fewer than ``vocabulary`` distinct words, so merging ends earlier.
    """
    core = CoreTokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    streams = [generators.stream_long(seed, style=plan.style) for plan in BUNDLED_PLANS.values()]
    pairs = islice(chain.from_iterable(zip(*streams, strict=True)), samples)
    texts = (problem.prompt + text for problem, text in pairs)
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, eos_token=END, padding_side="left", model_max_length=CONTEXT
    )


def build_model(plan: BundledPlan, tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Return a randomly initialised model of the planned size.

    Softmax attention is eager: for texts this short, the backward pass of torch's fused one takes as long on a CPU as
    the rest of a step.
    """
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": plan.hidden, "intermediate_size": plan.intermediate,
        "num_hidden_layers": plan.layers, "num_attention_heads": plan.heads, "num_key_value_heads": plan.kv_heads,
        "max_position_embeddings": CONTEXT, "tie_word_embeddings": True, "bos_token_id": None,
        "eos_token_id": tokenizer.get_vocab()[END], "pad_token_id": tokenizer.get_vocab()[PAD],
    }  # fmt: skip
    if not isinstance(plan, LinearPlan) or plan.parts == "softmax":
        model = LlamaForCausalLM(LlamaConfig(**sizes))
        model.set_attn_implementation("eager")
        return model
    model = LinearLlama(LinearLlamaConfig(**sizes, attention_group=plan.group, attention_taps=plan.taps))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.rpartition(".")[2] not in plan.held_at_zero[plan.parts]
    return model


def batches(
    tokenizer: PreTrainedTokenizerFast, size: int, seed: int, without: frozenset[str], style: Style
) -> Iterator[Batch]:
    """Yield batches without end, rows of similar length together.

    Question tokens weigh a tenth: their numbers are random, so there is little to learn.
    """
    pad, end = (tokenizer.get_vocab()[token] for token in (PAD, END))
    source = generators.stream_long(seed, without, style)

    def rows() -> Iterator[Row]:
        for problem, text in source:
            yield tokenizer(problem.prompt)["input_ids"], [*tokenizer(text)["input_ids"], end]

    return (pad_rows(group, 0.1, pad) for group in alike(rows(), size, 24, seed))


def solved(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: list[Problem]) -> float:
    """Return the share of ``problems`` whose greedy answer ends in the right ``#### answer``. A linear model's state is
    of one text, so it writes them one by one."""
    target = LanguageModel(model)
    pair = LoadedPair(get_pair("bundled"), tokenizer, target, target, "cpu", "float32")
    decoder = PairDecoder(pair, DecodingConfig(acceptance=Autoregressive(), max_new_tokens=LONGEST_ANSWER))
    prompts = [decoder.prompt_ids(problem.prompt) for problem in problems]
    correct = 0
    for i, text in decoder.generate_all(prompts, [0] * len(prompts), 1 if target.one_text else ROWS):
        answer = str(tokenizer.decode(text.tokens, skip_special_tokens=True)).rpartition("####")[2]
        correct += answer.strip() == str(problems[i].answer)
    return correct / len(problems)


def train_role(
    role: str,
    plan: BundledPlan,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    seed: int,
    report: Callable[[str, dict], None],
) -> dict:
    """Train one model into ``out/role`` with its log and return its figures.

    Resumes an interrupted training. A model that this plan and seed have made is left alone.
    """
    folder = out / role
    if (log_file := folder / "training.json").is_file():
        figures = json.loads(log_file.read_text())
        if figures["plan"] == json.loads(json.dumps(asdict(plan))) and figures["seed"] == seed:
            return figures
    problems, watched = generators.held_out_long(_HELD_OUT), generators.held_out_long(WATCHED, seed=1)
    excluded = frozenset(p.question for p in (*problems, *watched))
    model = build_model(plan, tokenizer, seed)
    taught = batches(tokenizer, plan.schedule.batch, seed, excluded, plan.style)

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return make(
        folder, model, plan, seed, taught, weighted_loss, lambda: {"accuracy": solved(model, tokenizer, watched)}, save,
        lambda row: report(role, row), {"parameters": sum(p.numel() for p in model.parameters())},
        lambda: {"held_out_accuracy": solved(model, tokenizer, problems), "held_out_problems": _HELD_OUT},
    )  # fmt: skip


def main(out: Path, seed: int = 0, report: Callable[[str, dict], None] = lambda role, row: None) -> None:
    """Train tokenizer, draft and target into ``out`` and write their model card."""
    tokenizer = train_tokenizer()
    for role, plan in BUNDLED_PLANS.items():
        train_role(role, plan, tokenizer, out, seed, report)
    write_card(out)


def train_linear_target(
    out: Path,
    parts: Parts = "all",
    steps: int | None = None,
    seed: int = 0,
    report: Callable[[dict], None] = lambda row: None,
) -> dict[str, Any]:
    """Train the target into ``out/target``, where it is stored in bfloat16, and return its figures."""
    tokenizer = cast(PreTrainedTokenizerFast, load_tokenizer(obtain(get_pair("bundled").target)))
    plan = replace(LINEAR_PLAN.changed(steps=steps), parts=parts)
    figures = train_role("target", plan, tokenizer, out, seed, lambda role, row: report(row))
    folder = out / "target"
    read_model(folder).bfloat16().save_pretrained(folder)
    return {key: value for key, value in figures.items() if key != "log"}
