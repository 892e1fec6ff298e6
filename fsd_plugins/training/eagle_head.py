"""Trains an EAGLE head: ``python -m fsd_core train eagle-head --target smollm2-135m --out FOLDER``.

The head goes on from the target's own states (see ``models.eagle``). Generation 1 learns these states and the target's
distributions (Li et al. 2024, §4.2). Generation 3 learns only the distributions, also after states of its own (Li et
al. 2025, §3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from fsd_core.errors import Contradiction, UnknownChoice
from fsd_core.models.draft_weights import EagleHead, aux_hidden_state_layers
from fsd_core.models.eagle_files import new_head, read_head, save_head
from fsd_core.models.loading import resolve_device
from fsd_core.models.model_pairs import DRAFTED, get_pair
from fsd_core.models.sources import origin
from fsd_plugins.training import generators, target_texts
from fsd_plugins.training.held_out import long_questions
from fsd_plugins.training.loop import check_target, earlier, learning, llama_of, make, mixed_precision, read_model
from fsd_plugins.training.plans import HEAD_PLANS, HeadPlan
from fsd_plugins.training.target_texts import Batch, Guess, Taught


@dataclass(frozen=True)
class TrainingBatch:
    """Texts padded on the right. A slot holds a token and the state before it. A text has T slots.

    tokens: int64 [B,T], each slot's; states: [B,T,·] of the target; following: [B,T,·], those that the slots should
    predict; judged: bool [B,T], the slots whose distribution is known; top, p: int64 [N,TOP_TOKENS] and [N,TOP_TOKENS],
    its tokens and their probabilities.
    """

    tokens: Tensor
    states: Tensor
    following: Tensor
    judged: Tensor
    top: Tensor
    p: Tensor


def slots(batch: Batch) -> TrainingBatch:
    """Return a batch where slot i of a text holds the state of token i and token i + 1, and predicts token i + 2."""
    assert batch.states is not None
    known = batch.judged.nonzero()[:, 1] > 0  # no slot predicts the token behind the first
    return TrainingBatch(
        batch.tokens[:, 1:-1], batch.states[:, :-1], batch.states[:, 1:], batch.judged[:, 1:-1], batch.top[known],
        batch.p[known],
    )  # fmt: skip


def noisy(batches: Iterator[TrainingBatch], width: float, seed: int) -> Iterator[TrainingBatch]:
    """Yield batches with uniform noise of this width on the states (Li et al. 2024, §4.2)."""
    generator = torch.Generator().manual_seed(seed)
    for batch in batches:
        added = (torch.rand(batch.states.shape, generator=generator) - 0.5) * width
        yield replace(batch, states=batch.states + added.to(batch.states))


DECAY = 0.8
"""weight of each further step relative to the one before"""


@dataclass
class _Unrolled:
    """Attention over slots of several steps at once.

    At step j a slot's state is the head's own of step j − 1, and j such slots lie between it and the last state from
    the target. So it attends to the slots of step 0 up to j before it, and to one slot of each step in between.
    """

    keys: list[Tensor]
    values: list[Tensor]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[B,heads,T,d], [B,key heads,T,d] twice → [B,heads,T,d]"""
        groups = query.shape[1] // key.shape[1]
        self.keys.append(key.repeat_interleave(groups, 1))
        self.values.append(value.repeat_interleave(groups, 1))
        step = len(self.keys) - 1
        if step == 0:
            return F.scaled_dot_product_attention(query, self.keys[0], self.values[0], is_causal=True)
        slots = torch.arange(query.shape[2], device=query.device)
        hidden = slots[None] > slots[:, None] - step
        scores = (query @ self.keys[0].transpose(2, 3)).masked_fill(hidden, -torch.inf)
        shifts = [step - earlier for earlier in range(1, step + 1)]
        step_scores = [
            (query * k.roll(shift, 2)).sum(-1, keepdim=True) for k, shift in zip(self.keys[1:], shifts, strict=True)
        ]
        weights = (torch.cat([scores, *step_scores], -1).float() / query.shape[-1] ** 0.5).softmax(-1).to(query.dtype)
        target_weights, step_weights = weights.split([len(slots), step], -1)
        mixed = target_weights @ self.values[0]
        for i, (v, shift) in enumerate(zip(self.values[1:], shifts, strict=True)):
            mixed = mixed + step_weights[..., i : i + 1] * v.roll(shift, 2)
        return mixed


class HeadLoss(nn.Module):
    """A head with the parameters of its training.

    ``steps``: one more than the number of its own states that it learns to go on from (EAGLE-3's training-time test).
    ``states_weight``: weight of the error of the states; ``distribution_weight``: of the cross-entropy.
    """

    def __init__(self, head: EagleHead, steps: int, states_weight: float, distribution_weight: float) -> None:
        super().__init__()
        self.head, self.steps = head, steps
        self.states_weight, self.distribution_weight = states_weight, distribution_weight

    def unroll(self, batch: TrainingBatch, steps: int) -> list[Tensor]:
        """Return the head's states at every slot, step by step: [B,T,H] each."""
        head, attend, unrolled = self.head, _Unrolled([], []), []
        position_ids = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)[None]
        states = head.begin(batch.states.to(head.fc.weight))  # stored in bfloat16
        for _ in range(steps):
            unrolled.append(head(states, batch.tokens, position_ids, attend))
            states = unrolled[-1].roll(1, 1)
        return unrolled

    def guess(self, states: Tensor, batch: TrainingBatch) -> Guess:
        """Return what the head says at the judged slots, beside the target's distribution."""
        head = self.head
        return target_texts.guess(head.reduced_logits(states[batch.judged]), head.lm_head, batch.top, batch.p)

    def guesses(self, batch: Batch) -> Iterator[Guess]:
        """Yield the same for each step that is taught."""
        slotted = slots(batch)
        with mixed_precision(slotted.states.device):
            for states in self.unroll(slotted, self.steps):
                yield self.guess(states, slotted)


def loss(lessons: HeadLoss, batch: TrainingBatch) -> Tensor:
    """Return the weighted mean over slots and steps of −Σ p ln q in nats and of the states' smooth L1 error.

    Li et al. 2024, §4.2: SmoothL1(f) + 0.1 · cross-entropy; Li et al. 2025, §3.1: only the latter, over several steps.
    """
    total, weights = torch.zeros(()), 0.0
    with mixed_precision(batch.states.device):
        for step, states in enumerate(lessons.unroll(batch, lessons.steps)):
            part = lessons.distribution_weight * target_texts.cross_entropy(lessons.guess(states, batch))
            if lessons.states_weight:
                error = F.smooth_l1_loss(states[batch.judged].float(), batch.following[batch.judged].float())
                part = part + lessons.states_weight * error
            total, weights = total + DECAY**step * part, weights + DECAY**step
    return total / weights


def plan_for(target: str, *, device: str = "cpu", **given: Any) -> HeadPlan:
    """Return the plan of the shipped head for a target, with the given options.

    Raises ``UnknownName`` for a target without a plan, ``InvalidSetting`` for an unknown generation and for a device
    that is not here.
    """
    check_target(target, HEAD_PLANS, "EAGLE head")
    if given.get("generation") not in (None, 1, 3):
        raise UnknownChoice("Heads are of generation 1 (EAGLE, EAGLE-2) or 3 (EAGLE-3): choose one of these.")
    plan = HEAD_PLANS.get(target) or replace(HEAD_PLANS[DRAFTED], existing=0)
    return target_texts.fitted(plan, target, device, given)


def _questions(target: str, data: Path, plan: HeadPlan, seed: int) -> Iterator[str]:
    if plan.own_prompts >= plan.texts:
        return iter(())
    if target == "bundled":
        # Not those that the target was trained on, so that it writes as it does to new problems.
        return (problem.prompt for problem, _ in generators.stream_long(seed + 7_000, long_questions()))
    return target_texts.training_prompts(data, seed)


def build_head(plan: HeadPlan, target: PreTrainedModel, taught: Taught) -> EagleHead:
    """Return a head that begins with the target's last layer, as far as that fits."""
    covers = (None, 0.0) if plan.head_tokens is None else target_texts.tokens_of_head(plan, target, taught)
    head = new_head(target, plan.generation, *covers)
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
    report: Callable[[dict], None] = print,
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
    module = read_model(folder)
    depth: int = module.config.get_text_config(decoder=True).num_hidden_layers
    layers = (
        aux_hidden_state_layers(plan.generation, depth)
        if start is None
        else _earlier_head(start, plan, module).aux_layers(depth)
    )
    asked = [("texts", None, questions, plan.texts)]
    taught = target_texts.teach(folder, out, data, asked, plan.longest_answer, plan, seed, where, report, layers)
    module = module.float().to(where)
    torch.manual_seed(seed)  # for the parts of the head that are not from the target
    head = build_head(plan, module, taught) if start is None else _earlier_head(start, plan, module)
    head.lm_head.requires_grad_(False)
    learner = HeadLoss(head, plan.steps, **plan.weights).to(where)
    batches = map(slots, taught.batches)
    about = {
        "target": target,
        "origin": origin(source),
        "start": before,
        "own_parameters": sum(p.numel() for p in learning(head).values()),
        "head_covers": round(1 - head.lm_head.tail_mass, 5),
        **taught.facts(),
    }

    def save(folder: Path) -> None:
        save_head(head.cpu(), folder, {"head_of": target, "rest_share": head.lm_head.tail_mass})

    return make(
        out / "head", learner, plan, seed, noisy(batches, plan.noise, seed) if plan.noise else batches, loss,
        lambda: target_texts.agreement(learner.guesses, taught.held_out), save, report, about, device=where,
    )  # fmt: skip
