"""Recording: strict decoding that records every judged position, and predictions checked by decoding.

Recording: strict decoding that judges its bonus too, and records every judged position.

The bonus is drafted and judged, so that every token of the strict answer has a position at which a draft of it was
judged. With the strict test this does not change the answer's distribution, and with greedy decoding not the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from fsd_core import provenance
from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, SamplingConfig, TemplateConfig
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.errors import FsdError, OutOfRange, PromptTooLong, UnfitTrace
from fsd_core.evaluation.harness import prompt_seed
from fsd_core.models.loading import LoadedPair, gpu_name
from fsd_core.models.prompt import prompt_hash
from fsd_core.ops.distributions import ScoredDraft
from fsd_core.replays.prediction import ROUNDS, Prediction, estimates, measure_costs
from fsd_core.replays.trace_file import RAW, SAMPLED, SCALARS, TRACED_DIVERGENCES, WHOLE, PromptTrace, Trace, TraceInfo
from fsd_core.rules import AcceptanceResult, Speculative
from fsd_core.statistics.intervals import Estimate, difference_ends
from fsd_core.tasks import Example, Task

LEAST = 1e-4
"""a token less likely than this under both models is stored individually only if drafted or in the target's top
three"""
_OF_TARGET = 3


@dataclass
class JudgedRound:
    """The J judged positions of a round, in the format of :class:`PromptTrace`."""

    columns: dict[str, list[Any]]
    kept: list[list[int]]
    rows: dict[str, list[list[float]]]
    rest: dict[str, list[list[float]]]
    allowed: list[list[int]] | None


class RecordingRule(Speculative):
    """`speculative` that judges its bonus, and passes each round to ``keep``."""

    judges_bonus = True
    _keep: Callable[[ScoredDraft, Tensor, Tensor], None] = PrivateAttr()

    def __init__(self, keep: Callable[[ScoredDraft, Tensor, Tensor], None]) -> None:
        super().__init__()
        self._keep = keep

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        result = super().judge(rows, uniforms, noise)
        self._keep(rows, uniforms, result.accepted)
        return result


@dataclass
class Recorder:
    """Stores the rounds of one text after another. ``top``: see ``TraceInfo``; 0 stores full rows."""

    top: int
    rows_kept: tuple[str, ...]
    rounds: list[JudgedRound] = field(default_factory=list)

    def keep(self, rows: ScoredDraft, uniforms: Tensor, strict: Tensor) -> None:
        """Store a round. ``rows``: of one text, [1,J]. ``uniforms``, ``strict``: [1,J]."""
        self.rounds.append(reduced(rows, uniforms, strict, self.top, self.rows_kept))

    def prompt(self, position: int, ids: Sequence[int], generation: GeneratedText, limit: int) -> PromptTrace:
        """Return the trace of the text that has just been written after the prompt ``ids``, and clear the recorder."""
        rounds, written, unread = [], 0, iter(self.rounds)
        judged: list[JudgedRound] = []
        for record in generation.records:
            current = next(unread) if record.drafted else None
            judged += [current] if current else []
            rounds.append((written, len(current.kept) if current else 0, len(record.emitted)))
            written += len(record.emitted)
        self.rounds = []
        columns = {
            name: np.array([v for part in judged for v in part.columns[name]], np.int64 if name in WHOLE else float)
            for name in (*WHOLE, *SCALARS)
        }
        return PromptTrace(
            prompt=position, prompt_hash=prompt_hash(ids), tokens=written, limit=limit, seconds=generation.seconds,
            rounds=np.array(rounds, np.int64).reshape(-1, 3), columns=columns,
            kept=_joined(part.kept for part in judged),
            rows={name: _joined(part.rows[name] for part in judged) for name in self.rows_kept},
            rest={name: _joined(part.rest[name] for part in judged) for name in self.rows_kept},
            allowed=None if not judged or judged[0].allowed is None else _joined(part.allowed or [] for part in judged),
        )  # fmt: skip


def _joined(parts: Iterable[list[Any]]) -> list[Any]:
    return [row for part in parts for row in part]


def reduced(rows: ScoredDraft, uniforms: Tensor, strict: Tensor, top: int, names: Sequence[str]) -> JudgedRound:
    """Return the facts on judged positions that replay needs. ``rows``: [1,J,V]; ``uniforms``, ``strict``: [1,J].

    These tokens are stored individually: the ``top`` likeliest of either model that are at least ``LEAST`` likely under
    one, the target's top three, and the drafted token. With ``top`` 0 all tokens are.
    """
    distributions = dict(zip((*RAW, *SAMPLED), (rows.target_raw, rows.draft_raw, rows.target, rows.draft), strict=True))
    stored = {name: distributions[name][0] for name in names}
    p, q, x = rows.target_raw[0], rows.draft_raw[0], rows.tokens[0]
    mask = _individual_tokens(p, q, x, rows.target[0].argmax(-1), top)
    counts, tokens = mask.sum(-1).tolist(), mask.nonzero()[:, 1]
    kept = [part.tolist() for part in tokens.split(counts)]
    place, best = (
        (tokens[None] < tokens_at[:, None]).logical_and(_by_position(counts, tokens.device)).sum(-1)
        for tokens_at in (x, _target_argmax(rows))
    )
    allowed = None if rows.allowed is None else rows.allowed[0]
    columns: dict[str, Tensor] = {
        "token": x, "place": place, "best": best, "strict": strict[0],
        "rank": (p > rows.of_token(rows.target_raw)[0, :, None]).sum(-1),
        "ties": (p == p.amax(-1, keepdim=True)).sum(-1),
        "uniform": uniforms[0], "max_p": p.amax(-1), "variation": rows.variation[0],
        "log_sum": p.new_zeros(len(p)) if rows.logits is None else rows.logits[0].logsumexp(-1),
        "entropy_target": rows.raw_entropies[0][0], "entropy_draft": rows.raw_entropies[1][0],
        "entropy_sampled": rows.graded_entropy[0],
    }  # fmt: skip
    columns |= {name: rows.divergence(name, uniforms)[0] for name in TRACED_DIVERGENCES}
    return JudgedRound(
        {name: column.tolist() for name, column in columns.items()},
        kept,
        {name: [part.tolist() for part in row[mask].split(counts)] for name, row in stored.items()},
        {name: _remainder(row, mask, allowed).tolist() for name, row in stored.items()},
        None if allowed is None else [part.long().tolist() for part in allowed[mask].split(counts)],
    )


def _individual_tokens(p: Tensor, q: Tensor, x: Tensor, best: Tensor, top: int) -> Tensor:
    """Return which tokens are stored individually. → bool [J,V]"""
    size = p.shape[-1]
    if not top or top >= size:
        return torch.ones_like(p, dtype=torch.bool)
    mask = torch.zeros_like(p, dtype=torch.bool)
    for row in (p, q):
        mask.scatter_(-1, row.topk(top, -1).indices, True)
    mask &= (p >= LEAST) | (q >= LEAST)
    always = [p.topk(min(_OF_TARGET, size), -1).indices, q.argmax(-1, keepdim=True), x[:, None], best[:, None]]
    return mask.scatter_(-1, torch.cat(always, -1), True)


def _target_argmax(rows: ScoredDraft) -> Tensor:
    """Return the target's likeliest token, which greedy decoding writes. → int64 [J]"""
    return (rows.target if rows.greedy else rows.target_raw)[0].argmax(-1)


def _by_position(counts: list[int], device: torch.device) -> Tensor:
    """Return which of all kept tokens belong to each position. → bool [J,sum of counts]"""
    owner = torch.arange(len(counts), device=device).repeat_interleave(torch.tensor(counts, device=device))
    return owner[None] == torch.arange(len(counts), device=device)[:, None]


def _remainder(row: Tensor, mask: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the probability outside ``mask`` of a distribution [J,V]. → float64 [J,1 or 2]"""
    outside = row.double().masked_fill(mask, 0)
    if allowed is None:
        return outside.sum(-1, keepdim=True)
    return torch.stack([(outside * allowed).sum(-1), (outside * ~allowed).sum(-1)], -1)


def tops(info_top: int, vocabulary: int) -> int:
    """Return ``TraceInfo.top`` as :func:`reduced` takes it: 0 if all tokens are stored."""
    return 0 if info_top >= vocabulary else info_top


def recorder_of(info: TraceInfo) -> Recorder:
    """Return a recorder for a run that is about to start."""
    return Recorder(tops(info.top, info.vocabulary), info.rows_kept)


TOP = 10
FEWEST, LONGEST = 3, 32
"""minimum number of individually stored tokens; longest draft that is recorded"""


def check(draft_length: int, top: int) -> None:
    """Raise ``InvalidSetting`` for parameters that cannot be recorded."""
    if not 1 <= draft_length <= LONGEST:
        raise OutOfRange(f"The draft length is {draft_length}: expected 1 to {LONGEST} for a recording.")
    if top != 0 and top < FEWEST:
        raise OutOfRange(f"{top} tokens are to be told apart: expected at least {FEWEST}, or 0 for full rows.")


def record(
    pair: LoadedPair,
    task: Task,
    prompts: int | Mapping[int, Example],
    *,
    seed: int = 0,
    sampling: SamplingConfig | None = None,
    template: TemplateConfig | None = None,
    draft_length: int = 8,
    max_new_tokens: int = 128,
    top: int = TOP,
    timed_rounds: int = ROUNDS,
    on_prompt: Callable[[int], None] = lambda done: None,
) -> Trace:
    """Decode prompts of a task strictly with the draft model, and return what replay needs.

    ``prompts``: how many, from the first, or these, by position. ``top``: tokens of either model stored individually at
    a position; 0 stores full rows. ``timed_rounds``: rounds to time at each draft length; with 0 the pair is not timed,
    and replay predicts no speeds. ``on_prompt`` is called with the number of prompts done. A prompt that fills the
    context is left out. Raises ``InvalidSetting``, or ``FsdError`` if no draft was judged.
    """
    check(draft_length, top)
    task.check_alone("replay")
    sampling, template, vocabulary = sampling or SamplingConfig(), template or TemplateConfig(), pair.target.vocabulary
    examples = dict(enumerate(task.examples(prompts))) if isinstance(prompts, int) else prompts
    info = TraceInfo(
        pair=pair.spec.name, task=task.name, seed=seed, prompts=len(examples), vocabulary=vocabulary,
        tokenizer=tokenizer_hash(pair), sampling=sampling, template=template,
        draft_length=draft_length, max_new_tokens=max_new_tokens, top=top or vocabulary,
        provenance=provenance.collect(pair.computed_on, pair.dtype, torch.get_num_threads(), gpu_name(pair.device)),
    )  # fmt: skip
    recorder = recorder_of(info)
    decoder = PairDecoder(pair, DecodingConfig(
        acceptance=RecordingRule(recorder.keep), topology=ChainTopology(length=draft_length), sampling=sampling,
        template=template, max_new_tokens=max_new_tokens,
    ))  # fmt: skip
    recorded: list[PromptTrace] = []
    for done, (position, example) in enumerate(examples.items(), 1):
        try:
            ids = decoder.fitting(decoder.prompt_ids(example.model_input))
        except PromptTooLong:
            continue
        generation = decoder.generate(ids, prompt_seed(seed, position))
        answer_limit = min(max_new_tokens, decoder.method.context - len(ids))
        recorded.append(recorder.prompt(position, ids, generation, answer_limit))
        on_prompt(done)
    if not any(prompt.size for prompt in recorded):
        raise FsdError(f"No draft of {task.name} was judged, so there is nothing to replay: allow longer answers.")
    costs = measure_costs(pair, sampling, draft_length, timed_rounds) if timed_rounds else None
    return Trace(info.model_copy(update={"costs": costs, "prompts": len(recorded)}), tuple(recorded))


def tokenizer_hash(pair: LoadedPair) -> str:
    """Return the first 16 hex digits of the SHA-256 of the tokens and their ids."""
    tokenizer: Any = pair.tokenizer
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:16]


def check_name(info: TraceInfo, pair: str) -> None:
    """Raise ``InvalidSetting`` if ``pair`` is not the name of the pair that recorded."""
    if info.pair != pair:
        raise UnfitTrace(
            f"The trace is of '{info.pair}', not of '{pair}': choose the pair that recorded it, or record this one."
        )


def check_pair(info: TraceInfo, pair: LoadedPair) -> None:
    """Raise ``InvalidSetting`` unless the trace can be of this pair."""
    check_name(info, pair.spec.name)
    if (info.tokenizer, info.vocabulary) != (tokenizer_hash(pair), pair.target.vocabulary):
        raise UnfitTrace(
            f"The trace was recorded with another tokenizer than '{pair.spec.name}' has here: choose the pair that "
            "recorded it, or record this one."
        )


@dataclass(frozen=True)
class Validated:
    """A prediction and the measurement on the same prompts.

    ``acceptance_error``: predicted less measured acceptance rate, with its interval paired by prompt. ``length``:
    tokens of the measured answers over those of the strict ones, which the prediction assumes. ``speed_up``: over the
    target alone, timed in turns with it.
    """

    prediction: Prediction
    acceptance_rate: Estimate
    acceptance_error: Estimate
    tokens_per_pass: Estimate
    passes: Estimate
    length: float
    speed_up: Estimate


def measure(
    pair: LoadedPair,
    trace: Trace,
    predictions: Sequence[Prediction],
    task: Task,
    on_prompt: Callable[[int], None] = lambda done: None,
) -> list[Validated]:
    """Decode the prompts of the trace with the setting of each prediction. All settings write a prompt before the next.

    ``task``: the recorded task. Raises ``InvalidSetting`` if the trace is not of this pair, or of other prompts.
    """
    info = trace.info
    check_pair(info, pair)
    examples = task.examples(max(prompt.prompt for prompt in trace.prompts) + 1)
    configs = [prediction.config for prediction in predictions]
    target_config = DecodingConfig(
        acceptance=Autoregressive(), sampling=info.sampling, template=info.template, max_new_tokens=info.max_new_tokens
    )  # fmt: skip
    decoders = [PairDecoder(pair, config) for config in (target_config, *configs)]
    counts = np.zeros((len(decoders), len(trace.prompts), 5))
    for row, prompt in enumerate(trace.prompts):
        ids, seed = decoders[0].prompt_ids(examples[prompt.prompt].model_input), prompt_seed(info.seed, prompt.prompt)
        if prompt.prompt_hash not in (None, prompt_hash(ids)):
            raise UnfitTrace(
                f"The prompt {prompt.prompt} is rendered to other tokens than when the trace was recorded, because the "
                "template, the tokenizer or transformers has changed: record this pair again."
            )
        if not row:
            decoders[0].generate(ids, seed)  # warm-up: the first text's extra time is not its method's
        for turn in range(len(decoders)):
            index = (turn + row) % len(decoders)
            counts[index, row] = _counts(decoders[index].generate(ids, seed))
        on_prompt(row + 1)
    return [
        _checked(prediction, setting_counts, counts[0])
        for prediction, setting_counts in zip(predictions, counts[1:], strict=True)
    ]


def _counts(done: GeneratedText) -> list[float]:
    """Return tokens, rounds, drafted and accepted tokens, and seconds."""
    records = done.records
    drafted, accepted = sum(len(record.drafted) for record in records), sum(record.accepted for record in records)
    return [len(done.tokens), len(records), drafted, accepted, done.seconds]


def _checked(prediction: Prediction, counts: np.ndarray, target_counts: np.ndarray) -> Validated:
    tokens, rounds, drafted, accepted, seconds = counts.T[..., None]
    (rate,), (per_pass,) = estimates(accepted, drafted, is_share=True), estimates(tokens, rounds)
    (passes,) = estimates(rounds, np.ones_like(rounds))
    pairs = np.concatenate([prediction.counts[:, [3, 2]], counts[:, [3, 2]]], 1)
    low, high = (float(end) for end in difference_ends(pairs))
    error = Estimate(prediction.acceptance_rate.value - rate.value, *((low, high) if low == low else (None, None)))
    (speed,) = estimates(tokens * target_counts[:, 4:].sum() / target_counts[:, 0].sum(), seconds)
    length = float(tokens.sum() / prediction.counts[:, 0].sum())
    return Validated(prediction, rate, error, per_pass, passes, length, speed)
