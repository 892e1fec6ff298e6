"""Trains a target with grouped linear attention: ``python -m fsd_core train linear-target --out FOLDER``.

It has the bundled target's size, tokenizer, problems and schedule (:mod:`fsd_core.training.bundled_pair`), so the
bundled draft drafts for it. Its texts have 70 to 170 tokens, hence the small groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from fsd_core.config import Autoregressive, DecodingConfig
from fsd_core.decoding.composition import compose
from fsd_core.decoding.session import DecodingSession
from fsd_core.models.hub import obtain
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.linear_llama import LinearLlama, LinearLlamaConfig
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.model_set import ModelSet
from fsd_core.models.vocabularies import load_tokenizer
from fsd_core.tasks.generators.long_problems import Problem
from fsd_core.training.bundled_pair import (
    BUNDLED_PLANS,
    LONGEST_ANSWER,
    BundledPlan,
    build_model,
    configuration,
    is_right,
    solved,
    train_role,
)

Parts = Literal["softmax", "local", "global", "all"]
_HELD_AT_ZERO: dict[Parts, tuple[str, ...]] = {"local": ("past_scale", "kernel"), "global": ("kernel",), "all": ()}
"""parameters that do not learn, by what does: the own group, earlier groups too, the convolution too. ``softmax`` is
the bundled target's attention, to compare with."""


@dataclass(frozen=True)
class LinearPlan(BundledPlan):
    """The bundled target's plan with the sizes of its attention, and which parts of it learn."""

    group: int = 16
    taps: int = 16
    parts: Parts = "all"


def linear_plan(parts: Parts = "all", steps: int | None = None) -> LinearPlan:
    """Return the plan. ``steps``: by default those of the bundled target."""
    target = BUNDLED_PLANS["target"]
    schedule = replace(target.schedule, steps=steps or target.schedule.steps)
    fields: dict[str, Any] = vars(target) | {"schedule": schedule}
    return LinearPlan(**fields, parts=parts)


def build_linear(plan: LinearPlan, tokenizer: PreTrainedTokenizerFast, seed: int) -> LinearLlama:
    """Return a randomly initialised model of the planned size."""
    torch.manual_seed(seed)
    config = LinearLlamaConfig(**configuration(plan, tokenizer), attention_group=plan.group, attention_taps=plan.taps)
    model = LinearLlama(config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.rpartition(".")[2] not in _HELD_AT_ZERO[plan.parts]
    return model


def solved_one_by_one(model: LinearLlama, tokenizer: PreTrainedTokenizerFast, problems: list[Problem]) -> float:
    """Return the share of ``problems`` whose greedy answer ends in the right ``#### answer``. A linear model's state is
    of one text, so they are written one by one."""
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=LONGEST_ANSWER)
    method, correct = compose(ModelSet(LanguageModel(model)), config), 0
    for problem in problems:
        prompt = cast(list[int], tokenizer.backend_tokenizer.encode(problem.prompt).ids)
        with DecodingSession(method, prompt, 0, method.model.eos_tokens) as session:
            while session.stop_reason is None:
                session.run_round()
            text = tokenizer.decode(session.history[len(prompt) :], skip_special_tokens=True)
        correct += is_right(str(text), problem)
    return correct / len(problems)


def main(
    out: Path,
    parts: Parts = "all",
    steps: int | None = None,
    seed: int = 0,
    report: Callable[[dict], None] = lambda row: None,
) -> dict[str, Any]:
    """Train the target into ``out/target``, where it is stored in bfloat16, and return its figures."""
    tokenizer = cast(PreTrainedTokenizerFast, load_tokenizer(obtain(get_pair("bundled").target)))
    plan = linear_plan(parts, steps)
    build, solve = (build_model, solved) if parts == "softmax" else (build_linear, solved_one_by_one)
    figures = train_role("target", plan, tokenizer, out, seed, lambda role, row: report(row), build, solve)
    folder = out / "target"
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    return {key: value for key, value in figures.items() if key != "log"}
