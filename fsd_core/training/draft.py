"""Trains a draft for a large target: ``python -m fsd_core train draft --target smollm2-135m --out FOLDER``.

A shallow and narrow Llama over the target's tokenizer, which learns the target's distributions on texts that the target
itself wrote to questions of training splits. Most of such a model is its vocabulary, so its embedding starts as the
principal components of the target's, and its head is that embedding again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fsd_core.errors import UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.pairs import SMOLLM2
from fsd_core.models.shelf import origin
from fsd_core.training.distillation import agreement, batches, cross_entropy, read_texts, small_embedding, write_texts
from fsd_core.training.loop import Schedule, train
from fsd_core.training.prompts import training_prompts

TARGETS = {"smollm2-135m": SMOLLM2}
HELD_OUT = 64  # texts that are only looked at


@dataclass(frozen=True)
class Plan:
    """Size of the draft, of what it learns from, and how long."""

    schedule: Schedule
    hidden: int = 224
    layers: int = 3
    intermediate: int = 608
    heads: int = 4
    kv_heads: int = 2
    prompts: int = 16_000
    longest_answer: int = 160


PLAN = Plan(Schedule(steps=3000, batch=16, adamw_lr=1e-3, muon_lr=0.01, every=250))


def build_draft(plan: Plan, target: PreTrainedModel, seed: int) -> LlamaForCausalLM:
    """An untrained draft, but for its embedding."""
    torch.manual_seed(seed)
    told, embedding = target.config, cast(Tensor, target.get_input_embeddings().weight)
    draft = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=told.vocab_size,
            hidden_size=plan.hidden,
            intermediate_size=plan.intermediate,
            num_hidden_layers=plan.layers,
            num_attention_heads=plan.heads,
            num_key_value_heads=plan.kv_heads,
            max_position_embeddings=told.max_position_embeddings,
            rope_parameters=told.rope_parameters,
            tie_word_embeddings=True,
            bos_token_id=told.bos_token_id,
            eos_token_id=told.eos_token_id,
            pad_token_id=told.pad_token_id,
        )
    )
    small = small_embedding(embedding, plan.hidden)
    with torch.no_grad():  # rows of length 1 on average, so that the first logits are of the order of 1
        draft.model.embed_tokens.weight.copy_(small / small.norm(dim=1).square().mean().sqrt())
    return draft


def main(
    target: str, out: Path, data: Path, plan: Plan = PLAN, seed: int = 0, report: Callable[[dict], None] = print
) -> dict:
    """Writes texts, trains on them and saves the draft with its log under ``out``; returns its figures.

    Called again after an interruption it goes on: texts that are written stay, and training resumes at its checkpoint.
    Raises ``UnknownName`` for a target it has no plan for, and ``ModelUnavailable`` if the target or the questions
    cannot be had.
    """
    if target not in TARGETS:
        raise UnknownName(f"No draft can be trained for '{target}': expected one of {', '.join(TARGETS)}.")
    folder = obtain(TARGETS[target])
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    draft = build_draft(plan, module, seed)
    questions = training_prompts(data, seed)
    write_texts(
        LanguageModel(module), tokenizer, questions, out / "texts", plan.prompts, plan.longest_answer, report=report
    )
    texts = read_texts(out / "texts")
    held_out, texts = texts[:HELD_OUT], texts[HELD_OUT:]
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
        "parameters": sum(p.numel() for p in draft.parameters()),
        "texts": len(texts),
        "answer_tokens": sum(len(text.top) for text in texts),
        **agreement(draft, held_out),
        "seconds": log[-1]["seconds"],
        "machine": f"{platform.machine()}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}",
    }
    cast(Any, draft).to(torch.bfloat16).save_pretrained(out / "draft")
    tokenizer.save_pretrained(out / "draft")
    (out / "draft" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures
