"""Trains a draft for a large target, or an adapter of the target: ``train draft`` and ``train adapter``.

Trains a LoRA adapter that teaches a target word problems: ``python -m fsd_core train adapter --out FOLDER``.

Hu et al. 2021 (arXiv 2106.09685), with PEFT. The problems are those of the training split of GSM8K and generated ones
(:mod:`fsd_plugins.training.generators`), never those of a
test split or of the task ``short-problems``. Their prompts are those of the tasks without examples.

Trains a draft for a large target: ``python -m fsd_core train draft --target smollm2-135m --out FOLDER``.

The draft is a few of the target's layers between the target's own embedding and head. They learn to do the work of all
layers, on texts that the target wrote to questions of training splits and on existing texts that it read (Hinton et al.
2015; layers kept as in DistilBERT, arXiv 1910.01108). The head covers only the commonest tokens
(``models.reduced_vocab``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models import draft_weights
from fsd_core.models.hub import obtain
from fsd_core.models.loading import resolve_device
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.sources import origin
from fsd_core.tasks.word_problems import worked, zero_shot_prompt
from fsd_plugins.training import generators, target_texts
from fsd_plugins.training.held_out import short_questions
from fsd_plugins.training.loop import (
    CPU,
    Model,
    Row,
    alike,
    earlier,
    is_own,
    learning,
    llama_of,
    make,
    mixed_precision,
    on_device,
    pad_rows,
    read_model,
    target_of,
    weighted_loss,
)
from fsd_plugins.training.plans import ADAPTER_PLAN, DRAFT_PLAN, TARGETS, AdapterPlan, DraftPlan
from fsd_plugins.training.target_texts import Batch, Guess, Taught, TrainingText, Writing

Report = Callable[[dict], None]
HELD_OUT_PROBLEMS = 64  # problems for evaluation only
_LONGEST = 320  # tokens; the few longer problems are left out


def adapter_problems(data: Path, mix: Mapping[str, float], seed: int) -> Iterator[tuple[str, str]]:
    """Yield problems and worked solutions without end, by shares of ``short``, ``arithmetic`` and ``gsm8k``.

    The last is read from ``gsm8k/train.jsonl`` in ``data``. Raises ``ModelUnavailable`` if that file is missing.
    """
    file = data / "gsm8k" / "train.jsonl"
    if not file.is_file():
        raise ModelUnavailable(f"The file {file} is missing: set FSD_DATA_DIR to the folder that has gsm8k.")
    shuffle = random.Random(seed)
    short = generators.stream_short(seed, without=short_questions())
    sources = {
        "short": ((problem.question, solution.strip()) for problem, solution in short),
        "arithmetic": ((problem.question, solution.strip()) for problem, solution in generators.stream_long(seed)),
        "gsm8k": ((row["question"], worked(row)) for row in target_texts.decks(target_texts.gsm8k(data), shuffle)),
    }
    for question, solution in target_texts.mixed(sources, mix, shuffle):
        yield zero_shot_prompt(question), solution


def encode_texts(tokenizer: PreTrainedTokenizerBase, source: Iterator[tuple[str, str]]) -> Iterator[Row]:
    """Yield problems as token ids. Those that are too long are left out."""
    for question, solution in source:
        answer = [*tokenizer(solution, add_special_tokens=False)["input_ids"], cast(int, tokenizer.eos_token_id)]
        prompt = encode_prompt(tokenizer, question)
        if len(prompt) + len(answer) <= _LONGEST:
            yield prompt, answer


def train_adapter(
    target: str,
    out: Path,
    data: Path,
    plan: AdapterPlan = ADAPTER_PLAN,
    seed: int = 0,
    report: Callable[[dict], None] = print,
) -> dict:
    """Train an adapter into ``out/adapter`` with its log and return its figures. Resumes an interrupted training.

    Raises ``UnknownName`` for a target without a plan, ``ModelUnavailable`` if it or the problems cannot be had.
    """
    if target not in TARGETS:
        raise UnknownName(f"No adapter can be trained for '{target}': expected one of {', '.join(TARGETS)}.")
    source = adapter_problems(data, plan.mix, seed)
    first = next(source)  # fails before a model is loaded if there is no data
    folder = obtain(TARGETS[target])
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    base = on_device(read_model(folder), CPU)
    torch.manual_seed(seed)
    lora = LoraConfig(r=plan.rank, lora_alpha=2 * plan.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, lora)
    rows = encode_texts(tokenizer, chain([first], source))
    watched = list(islice(rows, HELD_OUT_PROBLEMS))
    held_out, rows = pad_rows(watched), (row for row in rows if row not in watched)

    @torch.inference_mode()
    def watch() -> dict[str, float]:
        return {"held_out_loss": round(float(weighted_loss(model, held_out)), 4)}

    def save(folder: Path) -> None:
        for parameter in learning(model).values():
            parameter.data = parameter.data.bfloat16()
        model.save_pretrained(folder)
        config_file = folder / "adapter_config.json"  # holds the model's path on this machine
        name = getattr(TARGETS[target], "repo", target)
        config = json.loads(config_file.read_text()) | {"base_model_name_or_path": name}
        config_file.write_text(json.dumps(config, indent=1) + "\n")
        (folder / "README.md").unlink(missing_ok=True)  # an empty template

    size = plan.schedule.batch
    about = {
        "target": target,
        "origin": origin(TARGETS[target]),
        "parameters": sum(p.numel() for p in learning(model).values()),
    }
    taught = map(pad_rows, alike(rows, size, 16, seed))
    return make(out / "adapter", model, plan, seed, taught, weighted_loss, watch, save, report, about)


def plan_for(target: str, *, device: str = "cpu", **given: Any) -> DraftPlan:
    """Return the plan of the shipped draft for a target, with the given options. A target of one's own reads no
    existing texts, unless they are asked for. Raises ``InvalidSetting`` for a device that is not here."""
    plan = replace(DRAFT_PLAN, existing=0) if is_own(target) else DRAFT_PLAN
    return target_texts.fitted(plan, target, device, given)


def build_draft(plan: DraftPlan, target: PreTrainedModel, name: str, taught: Taught) -> LlamaForCausalLM:
    """Return an untrained draft, with a head over the tokens that the target likes in what it teaches."""
    tokens, rest_share = target_texts.tokens_of_head(plan, target, taught)
    config = draft_weights.draft_config(target, name, len(plan.layers), len(tokens), rest_share)
    draft = draft_weights.assemble(config, target, tokens)
    for layer, index in zip(draft.model.layers, plan.layers, strict=True):
        layer.load_state_dict(target.model.layers[index].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft


def guesses(model: PreTrainedModel, batch: Batch) -> Guess:
    """Return what a draft says where answers are predicted, beside the target's distribution."""
    with mixed_precision(model.device):
        hidden = model.model(batch.tokens.to(model.device), use_cache=False).last_hidden_state  # [B,T,H]
        logits = model.lm_head.reduced_logits(hidden[batch.judged.to(model.device)])
    return target_texts.guess(logits, cast(Any, model.lm_head), batch.top, batch.p)


def loss(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the cross-entropy with the target's distribution, in nats a token."""
    return target_texts.cross_entropy(guesses(model, batch))


def agreement(model: PreTrainedModel, texts: list[TrainingText]) -> dict[str, float]:
    """Return how a draft would fare on texts it has not seen; the probability of what is not stored is left out."""

    def of_all(batch: Batch) -> list[Guess]:
        return [guesses(model, replace(batch, p=batch.p * batch.mass))]

    return target_texts.agreement(of_all, texts, 1 - model.config.rest_share)


def writings(target: Model, data: Path, plan: DraftPlan, seed: int) -> Iterator[Writing]:
    """Yield what a target writes alone, and with each shipped adapter for it."""
    asked = target_texts.training_prompts(data, seed) if plan.own_prompts < plan.texts else iter(())
    yield "texts", None, asked, plan.texts
    problems = (question for question, _ in adapter_problems(data, ADAPTER_PLAN.mix, seed + 1))
    for spec in MODEL_PAIRS.values():
        if spec.adapter is not None and spec.target == target:
            yield f"texts-{spec.name}", spec.adapter, problems, plan.problems


def main(
    target: str,
    out: Path,
    data: Path,
    plan: DraftPlan = DRAFT_PLAN,
    seed: int = 0,
    report: Report = print,
    start: Path | None = None,
    device: str = "cpu",
) -> dict:
    """Write texts, train on them, save the draft with its log under ``out`` and return its figures.

    ``start``: the folder of an earlier draft to train further. After an interruption, call it again: written texts are
    kept, and training resumes at its checkpoint.

    Raises as :func:`target_of` and :func:`llama_of` do, ``ModelUnavailable`` if the earlier draft or the questions
    cannot be had, and ``InvalidSetting`` for too few texts and for a device that is not here.
    """
    where, source = resolve_device(device), target_of(target)
    before = None if start is None else earlier(start)
    folder = llama_of(source)
    asked = writings(source, data, plan, seed)
    taught = target_texts.teach(folder, out, data, asked, plan.longest_read, plan, seed, where, report)
    module = read_model(folder)
    plan = replace(plan, layers=tuple(range(module.config.num_hidden_layers)[layer] for layer in plan.layers))
    module = module.float().to(where)
    draft = build_draft(plan, module, target, taught) if start is None else draft_weights.load(start, module)
    about = {
        "target": target,
        "origin": origin(source),
        "start": before,
        "own_parameters": sum(p.numel() for p in learning(draft).values()),
        "share_of_target": round(_parameters_read(draft) / _parameters_read(module), 4),
        "head_covers": round(1 - draft.config.rest_share, 5),
        **taught.facts(),
    }
    return make(
        out / "draft", draft, plan, seed, taught.batches, loss, lambda: agreement(draft, taught.held_out),
        lambda folder: draft_weights.save(draft, folder), report, about, device=where,
    )  # fmt: skip


def _parameters_read(model: PreTrainedModel) -> int:
    """Return the number of parameters that a forward reads: all but the embedding, which costs a row per token."""
    head = cast(Any, model).lm_head.weight.numel()
    return head + sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
