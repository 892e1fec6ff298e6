"""The loss of an EAGLE head: it learns the target's distributions, also after states of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fsd_core.models.eagle import EagleHead
from fsd_core.training.loop import mixed_precision
from fsd_core.training.states import TrainingBatch

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
        lm_head = head.lm_head
        place_of = torch.full((lm_head.vocabulary,), -1, device=lm_head.weight.device)
        place_of[lm_head.tokens] = torch.arange(len(lm_head.tokens), device=place_of.device)
        self.register_buffer("place_of", place_of, persistent=False)

    def unroll(self, batch: TrainingBatch, steps: int) -> list[Tensor]:
        """Return the head's states at every slot, step by step: [B,T,H] each."""
        head, attend, unrolled = self.head, _Unrolled([], []), []
        position_ids = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)[None]
        states = head.begin(batch.states.to(head.fc.weight))  # stored in bfloat16
        for _ in range(steps):
            unrolled.append(head(states, batch.tokens, position_ids, attend))
            states = unrolled[-1].roll(1, 1)
        return unrolled

    def distribution(self, states: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tensors that the loss compares at the judged slots.

        These are logits over the tokens of the reduced head, [N,K]; the distribution's tokens as indices into these,
        int64 [N,TOP_TOKENS]; and their probabilities, 0 for tokens outside the reduced head.
        """
        logits = self.head.reduced_logits(states[batch.judged])
        at = self.get_buffer("place_of")[batch.top]
        return logits.float(), at.clamp_min(0), batch.p * (at >= 0)


def loss(lessons: HeadLoss, batch: TrainingBatch) -> Tensor:
    """Return the weighted mean over slots and steps of −Σ p ln q in nats and of the states' smooth L1 error.

    Li et al. 2024, §4.2: SmoothL1(f) + 0.1 · cross-entropy; Li et al. 2025, §3.1: only the latter, over several steps.
    """
    total, weights = torch.zeros(()), 0.0
    with mixed_precision(batch.states.device):
        for step, states in enumerate(lessons.unroll(batch, lessons.steps)):
            logits, at, p = lessons.distribution(states, batch)
            p = p / p.sum(-1, keepdim=True).clamp_min(1e-6)
            expected = (p * logits.gather(1, at)).sum(-1)
            part = lessons.distribution_weight * (logits.logsumexp(-1) - expected).mean()
            if lessons.states_weight:
                error = F.smooth_l1_loss(states[batch.judged].float(), batch.following[batch.judged].float())
                part = part + lessons.states_weight * error
            total, weights = total + DECAY**step * part, weights + DECAY**step
    return total / weights


@torch.inference_mode()
def agreement(lessons: HeadLoss, held_out: list[TrainingBatch]) -> dict[str, float]:
    """Return how a head fares on texts that it has not seen, at each slot and for as many steps as it is taught.

    ``overlap``: mean of Σ min(p, q), as if the stored part of p were all of it. ``same_choice``: share of slots where
    both have the same likeliest token at the first step; ``same_choice_last``: at the last.
    """
    overlap, same, count = 0.0, [0.0] * lessons.steps, 0
    with mixed_precision(held_out[0].states.device):
        for batch in held_out:
            for step, states in enumerate(lessons.unroll(batch, lessons.steps)):
                logits, at, p = lessons.distribution(states, batch)
                same[step] += float(((logits.argmax(-1) == at[:, 0]) & (p[:, 0] > 0)).sum())
                if step == 0:
                    q = logits.softmax(-1).gather(1, at)
                    overlap += float((torch.minimum(p, q) * (p > 0)).sum())
                    count += len(p)
    figures = {"overlap": round(overlap / count, 4), "same_choice": round(same[0] / count, 4)}
    return figures | ({"same_choice_last": round(same[-1] / count, 4)} if lessons.steps > 1 else {})
