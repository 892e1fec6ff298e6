"""Trains a draft for a large target: ``python -m fsd_core train draft --target smollm2-135m --out FOLDER``.

A few of the target's own layers between its own embedding and its own head, which learn to do the work of all of them
on texts that the target itself wrote to questions of training splits, and on texts that exist and that it reads (Hinton
et al. 2015; layers kept as in DistilBERT, arXiv 1910.01108). The head tells only the commonest tokens apart; see
``models.reduced_vocab``.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedModel

from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.models import reduced_vocab
from fsd_core.models.hub import obtain
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import adapted
from fsd_core.models.local_models import origin
from fsd_core.models.model_pairs import MODEL_PAIRS, TARGETS
from fsd_core.training.adapter import ADAPTER_PLAN
from fsd_core.training.adapter import problems as adapter_problems
from fsd_core.training.distillation import (
    TrainingText,
    agreement,
    batches,
    common_tokens,
    cross_entropy,
    read_texts,
    share_of_others,
    write_texts,
)
from fsd_core.training.existing_texts import existing_texts, read_existing
from fsd_core.training.loop import Schedule, earlier, train
from fsd_core.training.prompts import training_prompts

Report = Callable[[dict], None]
HELD_OUT_ANSWERS = 64  # texts that are only looked at


@dataclass(frozen=True)
class DraftPlan:
    """Size of the draft, of what it learns from, and how long."""

    schedule: Schedule
    layers: tuple[int, ...] = (0, 1, 29)
    """of the target's layers, which the draft begins with"""
    head_tokens: int = 16_384
    texts: int = 2_000
    """that the target writes"""
    longest_answer: int = 160
    existing: int = 6_000
    """texts that it reads"""
    longest_read: int = 200
    """tokens of their answers"""
    problems: int = 768
    """texts that the target writes with each adapter that ships for it, to problems such as the adapter learnt from"""


DRAFT_PLAN = DraftPlan(Schedule(steps=1100, batch=16, adamw_lr=3e-3, muon_lr=0.02, every=100))


def build_draft(
    plan: DraftPlan, target: PreTrainedModel, name: str, texts: list[TrainingText], held_out: list[TrainingText]
) -> LlamaForCausalLM:
    """A draft that has learnt nothing yet, with a head over the tokens that the target likes in ``texts``; how much it
    likes others is seen in ``held_out``."""
    vocabulary = target.config.vocab_size
    tokens = common_tokens(texts, plan.head_tokens, vocabulary, LanguageModel(target, lean=False).eos_tokens)
    rest = round(max(share_of_others(held_out, tokens, vocabulary), 1e-5), 5)
    config = reduced_vocab.draft_config(target, name, len(plan.layers), plan.head_tokens, rest)
    draft = reduced_vocab.assemble(config, target, tokens)
    for own, kept in zip(draft.model.layers, plan.layers, strict=True):
        own.load_state_dict(target.model.layers[kept].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft


def write_all(
    target: str, folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, report: Report
) -> list[TrainingText]:
    """What the target writes, alone and with its adapters; that of the target alone comes first."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    problems = (question for question, _ in adapter_problems(data, ADAPTER_PLAN.mix, seed + 1))
    work = [("texts", None, training_prompts(data, seed), plan.texts)]
    work += [
        (f"texts-{spec.name}", spec.adapter, problems, plan.problems)
        for spec in MODEL_PAIRS.values()
        if spec.adapter is not None and spec.target == TARGETS[target]
    ]
    texts = []
    for name, adapter, questions, count in work:
        module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        model = LanguageModel(module if adapter is None else adapted(module, adapter))
        write_texts(model, tokenizer, questions, out / name, count, plan.longest_answer, report=report)
        texts += read_texts(out / name)
    return texts


def read_all(folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, report: Report) -> list[TrainingText]:
    """What the target reads."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    read_existing(
        LanguageModel(module), tokenizer, existing_texts(data, seed), out / "read", plan.existing, plan.longest_read,
        report=report,
    )  # fmt: skip
    return read_texts(out / "read")


def main(
    target: str,
    out: Path,
    data: Path,
    plan: DraftPlan = DRAFT_PLAN,
    seed: int = 0,
    report: Report = print,
    start: Path | None = None,
) -> dict:
    """Writes texts, trains on them and saves the draft with its log under ``out``; returns its figures.

    ``start``: the folder of an earlier draft, which is then trained on. Called again after an interruption it goes on:
    texts that are written stay, and training resumes at its checkpoint. Raises ``UnknownName`` for a target it has no
    plan for, ``ModelUnavailable`` if the target, the earlier draft or the questions cannot be had, and
    ``InvalidSetting`` for too few texts.
    """
    if target not in TARGETS:
        raise UnknownName(f"No draft can be trained for '{target}': expected one of {', '.join(TARGETS)}.")
    before = None if start is None else earlier(start)
    folder = obtain(TARGETS[target])
    written = write_all(target, folder, out, data, plan, seed, report)
    read = read_all(folder, out, data, plan, seed, report) if plan.existing else []
    texts = written + read
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    if len(texts) <= HELD_OUT_ANSWERS:
        raise InvalidSetting(
            f"Only {len(texts)} texts were written or read, of which {HELD_OUT_ANSWERS} are held out: "
            "ask for more with --texts."
        )
    held_out, texts = texts[:HELD_OUT_ANSWERS], texts[HELD_OUT_ANSWERS:]
    whole = module.float()
    draft = build_draft(plan, whole, target, texts, held_out) if start is None else reduced_vocab.load(start, whole)
    log = train(
        draft,
        plan.schedule,
        batches(texts, plan.schedule.batch, seed),
        cross_entropy,
        out / "draft.checkpoint",
        lambda: agreement(draft, held_out),
        report,
    )
    figures = {
        "target": target,
        "origin": origin(TARGETS[target]),
        "plan": asdict(plan),
        "seed": seed,
        "start": before,
        "own_parameters": sum(p.numel() for p in draft.parameters() if p.requires_grad),
        "share_of_target": round(_fed(draft) / _fed(module), 4),
        "head_covers": round(1 - draft.config.rest_share, 5),
        "texts": len(texts),
        "answer_tokens": sum(len(text.top) for text in texts),
        "texts_read": len(read),
        "answer_tokens_read": sum(len(text.top) for text in read),
        **agreement(draft, held_out),
        "seconds": log[-1]["seconds"],
        "machine": f"{platform.machine()}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}",
    }
    reduced_vocab.save(draft, out / "draft")
    (out / "draft" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures


def _fed(model: PreTrainedModel) -> int:
    """Parameters that a forward reads: all but the embedding, of which it reads a row a token."""
    head = cast(Any, model).lm_head.weight.numel()
    return head + sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
