"""Trains an EAGLE head: ``python -m fsd_core train eagle-head --target smollm2-135m --out FOLDER``.

The head goes on from the target's own states (see ``models.eagle``). Generation 1 learns these states and the target's
distributions (Li et al. 2024, §4.2). Generation 3 learns only the distributions, also after states of its own (Li et
al. 2025, §3.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from fsd_core.errors import Contradiction, NotEnough, UnknownChoice
from fsd_core.models.draft_weights import EagleHead, Generation, aux_hidden_state_layers
from fsd_core.models.eagle_files import new_head, read_head, save_head
from fsd_core.models.language_model import LanguageModel, vocabulary_of
from fsd_core.models.loading import resolve_device
from fsd_core.models.model_pairs import DRAFTED, get_pair
from fsd_core.models.sources import origin
from fsd_core.tasks import generators
from fsd_core.tasks.word_problems import held_out_long_questions
from fsd_core.training.loop import (
    Schedule,
    check_target,
    earlier,
    llama_of,
    machine,
    mixed_precision,
    on_device,
    train,
    writing,
)
from fsd_core.training.target_texts import (
    SAMPLE,
    TOP_TOKENS,
    TrainingText,
    common_tokens,
    existing_texts,
    own_prompts,
    read_anew,
    read_existing,
    read_file,
    reread,
    share_of_others,
    similar,
    tokens_of,
    training_prompts,
    write_texts,
)


@dataclass(frozen=True)
class Lesson:
    """A text and the location of the states of its tokens."""

    text: TrainingText
    file: Path
    start: int

    def states(self) -> Tensor:
        """Return those of all tokens but the last, [T − 1, ·]."""
        with safe_open(self.file, "pt") as stored:
            return stored.get_slice("states")[self.start : self.start + len(self.text.tokens) - 1]


def lessons(folder: Path) -> list[Lesson]:
    """Return the texts of a folder that were written with their states."""
    written = []
    for file in sorted(folder.glob("*.safetensors")):
        start = 0
        for text in read_file(file):
            written.append(Lesson(text, file, start))
            start += len(text.tokens) - 1
    return written


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


def stack(texts: Sequence[TrainingText], states: Sequence[Tensor]) -> TrainingBatch:
    """Return a batch where slot i of a text holds the state of token i and token i + 1, and predicts token i + 2.

    states: of each text's tokens but the last, [T − 1, ·].
    """
    slots, device = max(map(tokens_of, texts)) - 2, texts[0].tokens.device
    tokens = torch.zeros(len(texts), slots, dtype=torch.long, device=device)
    judged = torch.zeros(len(texts), slots, dtype=torch.bool, device=device)
    before, following = (states[0].new_zeros(len(texts), slots, states[0].shape[1]) for _ in range(2))
    top, p = [], []
    for row, (text, text_states) in enumerate(zip(texts, states, strict=True)):
        count = len(text.tokens)
        tokens[row, : count - 2] = text.tokens[1:-1]
        before[row, : count - 2], following[row, : count - 2] = text_states[:-1], text_states[1:]
        first = max(text.prompt - 2, 0)
        judged[row, first : count - 2] = True
        skipped = first + 2 - text.prompt
        top.append(text.top[skipped:])
        p.append(text.log_p[skipped:])
    weights = torch.cat(p).float().exp()
    return TrainingBatch(
        tokens, before, following, judged, torch.cat(top).long(), weights / weights.sum(-1, keepdim=True)
    )


def states_of(texts: Sequence[TrainingText]) -> list[Tensor]:
    """Return the states that were read with the texts."""
    return [text.states for text in texts if text.states is not None]


def stored(group: Sequence[Lesson]) -> TrainingBatch:
    """Return the batch of texts whose states are in files."""
    return stack([lesson.text for lesson in group], [lesson.states() for lesson in group])


def batches(written: Sequence[Lesson], size: int, seed: int) -> Iterator[TrainingBatch]:
    """Yield batches of texts of similar length without end, each text once per pass."""
    return map(stored, similar(written, lambda lesson: len(lesson.text.tokens), size, seed))


def batches_anew(
    target: LanguageModel, texts: Sequence[TrainingText], layers: tuple[int, ...], size: int, seed: int
) -> Iterator[TrainingBatch]:
    """Yield the same, with states and distributions that the target computes now."""
    for group in read_anew([(target, texts)], size, seed, layers):
        yield stack(group, states_of(group))


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
        return (problem.prompt for problem, _ in generators.stream_long(seed + 7_000, held_out_long_questions()))
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
