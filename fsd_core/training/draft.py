"""Trains a draft for a large target: ``python -m fsd_core train draft --target smollm2-135m --out FOLDER``.

The draft is a few of the target's layers between the target's own embedding and head. They learn to do the work of all
layers, on texts that the target wrote to questions of training splits and on existing texts that it read (Hinton et al.
2015; layers kept as in DistilBERT, arXiv 1910.01108). The head covers only the commonest tokens
(``models.reduced_vocab``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedModel

from fsd_core.errors import NotEnough
from fsd_core.models import reduced_vocab
from fsd_core.models.adapters import adapted
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import resolve_device
from fsd_core.models.local_models import origin
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.training.adapter import ADAPTER_PLAN
from fsd_core.training.adapter import problems as adapter_problems
from fsd_core.training.distillation import (
    TOP_TOKENS,
    TrainingText,
    agreement,
    batches,
    common_tokens,
    cross_entropy,
    read_texts,
    share_of_others,
    stack,
    write_texts,
)
from fsd_core.training.existing_texts import existing_texts, read_existing
from fsd_core.training.loop import Schedule, earlier, machine, on_device, train
from fsd_core.training.own_prompts import own_prompts
from fsd_core.training.prompts import training_prompts
from fsd_core.training.rereading import SAMPLE, Source, read_anew, reread
from fsd_core.training.targets import Model, is_own, llama_of, target_of, writing

Report = Callable[[dict], None]
HELD_OUT_ANSWERS = 64  # texts for evaluation only


@dataclass(frozen=True)
class DraftPlan:
    """Size of the draft and of its training data, and its schedule."""

    schedule: Schedule
    layers: tuple[int, ...] = (0, 1, -1)
    """layers of the target that initialise the draft"""
    head_tokens: int = 16_384
    """tokens that its head covers, or all that there are"""
    texts: int = 2_000
    """texts that the target writes"""
    longest_answer: int = 160
    existing: int = 6_000
    """texts that it reads"""
    longest_read: int = 200
    """answer tokens of these"""
    problems: int = 768
    """texts that the target writes with each shipped adapter for it, to problems like those the adapter learnt from"""
    own_prompts: int = 0
    """of ``texts``, those to prompts that the target writes itself"""
    side_by_side: int = 96
    """texts that are written at once"""
    anew: bool = False
    """whether the target reads each batch anew (``training.rereading``); existing texts are then left out"""


DRAFT_PLAN = DraftPlan(Schedule(steps=1100, batch=16, adamw_lr=3e-3, muon_lr=0.02, every=100))


def plan_for(
    target: str,
    *,
    steps: int | None = None,
    batch: int | None = None,
    texts: int | None = None,
    existing: int | None = None,
    problems: int | None = None,
    own_prompts: int | None = None,
    device: str = "cpu",
) -> DraftPlan:
    """Return the plan of the shipped draft for a target, with the given changes. A target of one's own reads no
    existing texts, unless they are asked for. Raises ``InvalidSetting`` for a device that is not here."""
    plan = replace(DRAFT_PLAN, existing=0) if is_own(target) else DRAFT_PLAN
    return replace(
        plan,
        schedule=replace(plan.schedule, steps=steps or plan.schedule.steps, batch=batch or plan.schedule.batch),
        existing=plan.existing if existing is None else existing,
        problems=problems or plan.problems,
        **writing(target, texts or plan.texts, own_prompts, device),
    )


def build_draft(
    plan: DraftPlan, target: PreTrainedModel, name: str, texts: list[TrainingText], held_out: list[TrainingText]
) -> LlamaForCausalLM:
    """Return an untrained draft, with a head over the tokens that the target likes in ``texts``.

    ``held_out`` shows how much it likes other tokens.
    """
    vocabulary, ends = target.config.vocab_size, LanguageModel(target, lean=False).eos_tokens
    tokens = common_tokens(texts, min(plan.head_tokens, vocabulary), vocabulary, ends)
    rest_share = round(max(share_of_others(held_out, tokens, vocabulary), 1e-5), 5)
    config = reduced_vocab.draft_config(target, name, len(plan.layers), len(tokens), rest_share)
    draft = reduced_vocab.assemble(config, target, tokens)
    for layer, index in zip(draft.model.layers, plan.layers, strict=True):
        layer.load_state_dict(target.model.layers[index].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft


def write_all(
    target: Model, folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, device: torch.device, report: Report
) -> list[Source]:
    """Write the target's texts, alone and with its adapters, and return them, each with the model that wrote it. Those
    of the target alone come first."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    problems = (question for question, _ in adapter_problems(data, ADAPTER_PLAN.mix, seed + 1))
    asked = training_prompts(data, seed) if plan.own_prompts < plan.texts else iter(())
    jobs = [("texts", None, asked, plan.texts)]
    jobs += [
        (f"texts-{spec.name}", spec.adapter, problems, plan.problems)
        for spec in MODEL_PAIRS.values()
        if spec.adapter is not None and spec.target == target
    ]
    sources: list[Source] = []
    for name, adapter, questions, count in jobs:
        module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        module = on_device(module if adapter is None else adapted(module, adapter), device)
        model = LanguageModel(module, static=False)  # a graph is captured for each number of rows, which falls
        if adapter is None:
            own = own_prompts(model, tokenizer, plan.own_prompts, out / "own-prompts.json", plan.side_by_side, seed)
            questions = chain(own, questions)
        write_texts(
            model, tokenizer, questions, out / name, count, plan.longest_answer,
            batch=plan.side_by_side, stored=0 if plan.anew else TOP_TOKENS, report=report,
        )  # fmt: skip
        sources.append((model, read_texts(out / name)))
    return sources


def read_all(folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, report: Report) -> list[TrainingText]:
    """Return the texts that the target reads."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    model, texts = LanguageModel(on_device(module, torch.device("cpu"))), existing_texts(data, seed)
    read_existing(model, tokenizer, texts, out / "read", plan.existing, plan.longest_read, report=report)
    return read_texts(out / "read")


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
    sources = write_all(source, folder, out, data, plan, seed, where, report)
    read = read_all(folder, out, data, plan, seed, report) if plan.existing and not plan.anew else []
    texts = [text for _, written in sources for text in written] + read
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    if len(texts) <= HELD_OUT_ANSWERS:
        raise NotEnough(
            f"Only {len(texts)} texts were written or read, of which {HELD_OUT_ANSWERS} are held out: "
            "ask for more with --texts."
        )
    plan = replace(plan, layers=tuple(range(module.config.num_hidden_layers)[layer] for layer in plan.layers))
    held_out, texts = texts[:HELD_OUT_ANSWERS], texts[HELD_OUT_ANSWERS:]
    batch_size, known = plan.schedule.batch, texts
    if plan.anew:
        (model, first), *others = sources
        sources = [(model, first[HELD_OUT_ANSWERS:]), *others]
        held_out = reread(model, held_out)
        known = [text for model, written in sources for text in reread(model, written[:SAMPLE])]
        taught = map(stack, read_anew(sources, batch_size, seed))
    else:
        taught = batches(texts, batch_size, seed)
    target_model = cast(Any, module).float().to(where)
    draft = (
        build_draft(plan, target_model, target, known, held_out)
        if start is None
        else reduced_vocab.load(start, target_model)
    )
    log = train(
        draft,
        plan.schedule,
        taught,
        cross_entropy,
        out / "draft.checkpoint",
        lambda: agreement(draft, held_out),
        report,
    )
    figures = {
        "target": target,
        "origin": origin(source),
        "plan": asdict(plan),
        "seed": seed,
        "start": before,
        "own_parameters": sum(p.numel() for p in draft.parameters() if p.requires_grad),
        "share_of_target": round(_parameters_read(draft) / _parameters_read(module), 4),
        "head_covers": round(1 - draft.config.rest_share, 5),
        "texts": len(texts),
        "answer_tokens": sum(len(text.top) for text in texts),
        "texts_read": len(read),
        "answer_tokens_read": sum(len(text.top) for text in read),
        **agreement(draft, held_out),
        "seconds": log[-1]["seconds"],
        "machine": machine(where),
    }
    reduced_vocab.save(draft, out / "draft")
    (out / "draft" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures


def _parameters_read(model: PreTrainedModel) -> int:
    """Return the number of parameters that a forward reads: all but the embedding, which costs a row per token."""
    head = cast(Any, model).lm_head.weight.numel()
    return head + sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
