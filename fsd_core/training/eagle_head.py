"""Trains an EAGLE head: ``python -m fsd_core train eagle-head --target smollm2-135m --out FOLDER``.

The head goes on from the target's own states (see ``models.eagle``). Generation 1 learns these states and the target's
distributions (Li et al. 2024, §4.2). Generation 3 learns only the distributions, also after states of its own (Li et
al. 2025, §3.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from fsd_core.errors import Contradiction, NotEnough, UnknownChoice
from fsd_core.models.eagle import EagleHead, Generation, aux_hidden_state_layers
from fsd_core.models.eagle_files import new_head, read_head, save_head
from fsd_core.models.language_model import LanguageModel, vocabulary_of
from fsd_core.models.loading import resolve_device
from fsd_core.models.local_models import origin
from fsd_core.models.model_pairs import DRAFTED, get_pair
from fsd_core.tasks.arithmetic import held_out_questions
from fsd_core.tasks.generators import long_problems
from fsd_core.training.distillation import TOP_TOKENS, common_tokens, share_of_others, write_texts
from fsd_core.training.existing_texts import existing_texts, read_existing
from fsd_core.training.head_loss import HeadLoss, agreement, loss
from fsd_core.training.loop import Schedule, earlier, machine, on_device, train
from fsd_core.training.own_prompts import own_prompts
from fsd_core.training.prompts import training_prompts
from fsd_core.training.rereading import SAMPLE, reread
from fsd_core.training.states import batches, batches_anew, lessons, noisy, stack, states_of, stored
from fsd_core.training.targets import check_target, llama_of, writing

Report = Callable[[dict], None]
HELD_OUT_TEXTS = 64  # texts for evaluation only


@dataclass(frozen=True)
class HeadPlan:
    """Size of a head, its training data and its schedule."""

    schedule: Schedule
    generation: Generation
    texts: int
    longest_answer: int
    steps: int
    """one more than the number of its own states that it learns to go on from: 1 is no training-time test"""
    head_tokens: int | None = None
    """tokens that it covers; ``None``: all"""
    existing: int = 0
    """texts that the target reads, in addition to those that it writes"""
    side_by_side: int = 128
    """texts that are written at once"""
    own_prompts: int = 0
    """of ``texts``, those to prompts that the target writes itself"""
    anew: bool = False
    """whether the target reads each batch anew (``training.rereading``); existing texts are then left out"""

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the loss."""
        first = self.generation == 1
        return {"states_weight": float(first), "distribution_weight": 0.1 if first else 1.0}

    @property
    def noise(self) -> float:
        """Width of the noise on the training states."""
        return 0.2 if self.generation == 1 else 0.0


HEAD_PLANS = {
    DRAFTED: HeadPlan(
        Schedule(steps=600, batch=16, adamw_lr=3e-3, muon_lr=0.02, every=100),
        generation=3, texts=2_048, longest_answer=160, steps=3, head_tokens=16_384, existing=6_000,
    ),
    "bundled": HeadPlan(
        Schedule(steps=800, batch=32, adamw_lr=3e-3, muon_lr=0.02, every=200),
        generation=1, texts=3_840, longest_answer=160, steps=1,
    ),
}  # fmt: skip


def plan_for(
    target: str,
    *,
    generation: int | None = None,
    steps: int | None = None,
    texts: int | None = None,
    batches: int | None = None,
    batch: int | None = None,
    own_prompts: int | None = None,
    device: str = "cpu",
) -> HeadPlan:
    """Return the plan of the shipped head for a target, with the given changes.

    Raises ``UnknownName`` for a target without a plan, ``InvalidSetting`` for an unknown generation and for a device
    that is not here.
    """
    check_target(target, HEAD_PLANS, "EAGLE head")
    if generation not in (None, 1, 3):
        raise UnknownChoice("Heads are of generation 1 (EAGLE, EAGLE-2) or 3 (EAGLE-3): choose one of these.")
    plan = HEAD_PLANS.get(target) or replace(HEAD_PLANS[DRAFTED], existing=0)
    return replace(
        plan,
        generation=generation or plan.generation,
        steps=steps or plan.steps,
        schedule=replace(plan.schedule, steps=batches or plan.schedule.steps, batch=batch or plan.schedule.batch),
        **writing(target, texts or plan.texts, own_prompts, device),
    )


def _questions(target: str, data: Path, plan: HeadPlan, seed: int) -> Iterator[str]:
    if plan.own_prompts >= plan.texts:
        return iter(())
    if target == "bundled":
        # Not those that the target was trained on, so that it writes as it does to new problems.
        return (problem.prompt for problem, _ in long_problems.stream(seed + 7_000, held_out_questions()))
    return training_prompts(data, seed)


def build_head(plan: HeadPlan, target: PreTrainedModel, texts: list[Any], held_out: list[Any]) -> EagleHead:
    """Return a head that begins with the target's last layer, as far as that fits."""
    tokens, rest_share = None, 0.0
    if plan.head_tokens is not None:
        vocabulary = vocabulary_of(target)
        count, ends = min(plan.head_tokens, vocabulary), LanguageModel(target, lean=False).eos_tokens
        tokens = common_tokens(texts, count, vocabulary, ends)
        rest_share = round(max(share_of_others(held_out, tokens, vocabulary), 1e-5), 5)
    head = new_head(target, plan.generation, tokens, rest_share)
    layer: Any = head.layers[0]
    last = target.model.layers[-1]
    layer.mlp.load_state_dict(last.mlp.state_dict())
    layer.self_attn.o_proj.load_state_dict(last.self_attn.o_proj.state_dict())
    layer.post_attention_layernorm.load_state_dict(last.post_attention_layernorm.state_dict())
    if plan.generation == 3:
        head.norm.load_state_dict(target.model.norm.state_dict())
        width = target.config.get_text_config(decoder=True).hidden_size
        with torch.no_grad():  # the last of the three states is nearest to what the head predicts
            head.fc.weight[:, -width:] += torch.eye(width)
    return head


def _earlier_head(start: Path, plan: HeadPlan, target: PreTrainedModel) -> EagleHead:
    head = read_head(start, target)
    if head.generation != plan.generation:
        raise Contradiction(
            f"The head in {start} is of generation {head.generation}, and generation {plan.generation} was asked for: "
            f"add --generation {head.generation}."
        )
    return head


def main(
    target: str,
    out: Path,
    data: Path,
    plan: HeadPlan | None = None,
    seed: int = 0,
    report: Report = print,
    start: Path | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Write texts with states, train on them, save the head with its log under ``out`` and return its figures.

    ``start``: the folder of an earlier head to train further. After an interruption, call it again: written texts are
    kept, and training resumes at its checkpoint.

    Raises ``UnknownName`` for a target without a plan, ``ModelUnavailable`` if the target, the earlier head or the
    questions cannot be had, ``IncompatibleModels`` for an earlier head of another target, and ``InvalidSetting`` for
    one of another generation, for too few texts and for a device that is not here.
    """
    where = resolve_device(device)
    plan, source = plan or plan_for(target), get_pair(target).target
    before, questions = None if start is None else earlier(start), _questions(target, data, plan, seed)
    folder = llama_of(source)
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    depth: int = module.config.get_text_config(decoder=True).num_hidden_layers
    layers = (
        aux_hidden_state_layers(plan.generation, depth)
        if start is None
        else _earlier_head(start, plan, module).aux_layers(depth)
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    reader = LanguageModel(on_device(module, where), static=False)
    own = own_prompts(reader, tokenizer, plan.own_prompts, out / "own-prompts.json", plan.side_by_side, seed)
    write_texts(
        reader, tokenizer, chain(own, questions), out / "texts", plan.texts, plan.longest_answer,
        batch=plan.side_by_side, layers=() if plan.anew else layers, stored=0 if plan.anew else TOP_TOKENS,
        report=report,
    )  # fmt: skip
    written, read = lessons(out / "texts"), []
    if plan.existing and not plan.anew:
        existing = existing_texts(data, seed)
        read_existing(
            reader, tokenizer, existing, out / "read", plan.existing, plan.longest_answer, layers=layers, report=report
        )
        written += (read := lessons(out / "read"))
    if len(written) <= HELD_OUT_TEXTS:
        raise NotEnough(
            f"Only {len(written)} texts were written, of which {HELD_OUT_TEXTS} are held out: "
            "ask for more with --texts."
        )
    held_out, written = written[:HELD_OUT_TEXTS], written[HELD_OUT_TEXTS:]
    size, texts, known = plan.schedule.batch, [lesson.text for lesson in written], [lesson.text for lesson in held_out]
    if plan.anew:
        known = reread(reader, known, layers)
        watched = [stack(known[i : i + 16], states_of(known[i : i + 16])) for i in range(0, HELD_OUT_TEXTS, 16)]
        taught, sample = batches_anew(reader, texts, layers, size, seed), reread(reader, texts[:SAMPLE])
    else:
        watched = [stored(held_out[i : i + 16]) for i in range(0, HELD_OUT_TEXTS, 16)]
        taught, sample = batches(written, size, seed), texts
    if plan.noise:
        taught = noisy(taught, plan.noise, seed)
    target_model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    target_model = cast(Any, target_model).float().to(where)
    torch.manual_seed(seed)  # for the parts of the head that are not from the target
    head = build_head(plan, target_model, sample, known) if start is None else _earlier_head(start, plan, target_model)
    head.lm_head.requires_grad_(False)
    learner = HeadLoss(head, plan.steps, **plan.weights).to(where)
    log = train(
        learner,
        plan.schedule,
        taught,
        loss,
        out / "head.checkpoint",
        lambda: agreement(learner, watched),
        report,
    )
    figures = {
        "target": target,
        "origin": origin(source),
        "plan": asdict(plan),
        "seed": seed,
        "start": before,
        "own_parameters": sum(p.numel() for p in head.parameters() if p.requires_grad),
        "head_covers": round(1 - head.lm_head.tail_mass, 5),
        "texts": len(written),
        "answer_tokens": sum(len(lesson.text.top) for lesson in written),
        "texts_read": len(read),
        **agreement(learner, watched),
        "seconds": log[-1]["seconds"],
        "machine": machine(where),
    }
    save_head(head.cpu(), out / "head", {"head_of": target, "rest_share": head.lm_head.tail_mass})
    (out / "head" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures
