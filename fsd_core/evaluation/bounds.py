"""Upper bounds of multi-draft acceptance at positions of a run.

Positions are sampled uniformly from all tokens that the run wrote. The pair's models are evaluated there again. From p
and q follow the optimum and every verifier's acceptance for 1 to ``MOST_DRAFTS`` drafts, as Hu et al. 2025 (arXiv
2502.18779, §6) compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsd_core.config import SamplingConfig, TemplateConfig
from fsd_core.errors import OutOfRange, Stale, WrongState
from fsd_core.evaluation.harness import asked_prompt
from fsd_core.models.conversation import Messages
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import require_draft
from fsd_core.models.prompt import encode_prompt
from fsd_core.ops.distributions import warp
from fsd_core.rules import VERIFIERS
from fsd_core.rules.rates import acceptance_rate
from fsd_core.statistics.intervals import ratio_interval
from fsd_core.storage.repository import Repository
from fsd_core.tasks.custom.custom_task import conversations, find_task
from fsd_core.theory import DRAFT_SAMPLINGS, MOST_DRAFTS, optimal_acceptance

POSITIONS = 48
_PATHS = 64
"""sampled paths of rejections without replacement per position: few suffice for a mean over positions"""
OnPosition = Callable[[int, int], None]


@dataclass(frozen=True)
class SampledPositions:
    """Positions sampled from one text, in order, counted from its first generated token."""

    prompt_position: int
    prompt: str | Messages
    template: TemplateConfig
    written: tuple[int, ...]
    positions: tuple[int, ...]


Rates = tuple[int, list[tuple[tuple[str, str, int], float]]]
"""one position: its prompt's position, and the acceptance rate by (optima or verifiers, name, number of drafts)"""
Ask = Callable[[list[SampledPositions], SamplingConfig], Iterable[Rates]]
""":func:`rates` of a pair, in this process or elsewhere"""


def check(repository: Repository, run_id: str) -> None:
    """Raise ``InvalidSetting`` for a run that has not ended, has written nothing or has lost its traces. Raise
    ``UnknownName`` if there is no such run."""
    run = repository.run(run_id)
    if not run.ended or not (run.metrics or {}).get("tokens"):
        raise WrongState(f"The run {run.id} has no finished texts: choose one that has ended.")
    require_draft(run.pair)
    if not repository.has_traces(run.id):
        raise Stale(
            f"The rounds of the run {run.id} are no longer kept (FSD_KEEP_TRACES_DAYS): measure the setting again."
        )


def measure(
    repository: Repository,
    run_id: str,
    pair: LoadedPair | Ask,
    temperature: float | None = None,
    positions: int = POSITIONS,
    seed: int = 0,
    on_position: OnPosition = lambda done, total: None,
) -> dict[str, Any]:
    """Measure the bounds at sampled positions of a run, store them with its metrics and return them, ready for JSON.

    ``pair``: the run's pair, or a function that evaluates it elsewhere. ``temperature``: the run's by default, or 1 for
    a greedy run, whose bounds are trivial. ``on_position`` is called with the number done and the total. Raises what
    :func:`check` raises, and ``InvalidSetting`` for a temperature of 0 or less.
    """
    check(repository, run_id)
    run = repository.run(run_id)
    run_sampling = run.decoding.sampling
    temperature = temperature if temperature is not None else run_sampling.temperature or 1.0
    if temperature <= 0:
        raise OutOfRange(f"The temperature is {temperature:g}: expected more than 0, where several drafts differ.")
    sampling = run_sampling.model_copy(update={"temperature": temperature})
    rates_by_key: dict[tuple[str, str, int], dict[int, list[float]]] = {}  # by prompt
    count = 0
    ask = partial(rates, pair) if isinstance(pair, LoadedPair) else pair
    for prompt, at_position in ask(_sample_positions(repository, run_id, positions, seed), sampling):
        for key, rate in at_position:
            rates_by_key.setdefault(key, {}).setdefault(prompt, []).append(rate)
        count += 1
        on_position(count, positions)
    bounds: dict[str, Any] = {
        "temperature": temperature,
        "positions": count,
        "seed": seed,
        "optima": {},
        "verifiers": {},
    }
    for (group, name, drafts), by_prompt in rates_by_key.items():
        # Positions of one text are correlated, so the interval is that of a ratio over texts.
        sums = [(sum(values), len(values)) for values in by_prompt.values()]
        low, high = ratio_interval(sums, is_share=True) or (None, None)
        row = {"drafts": drafts, "rate": sum(total for total, _ in sums) / count, "low": low, "high": high}
        bounds[group].setdefault(name, []).append(row)
    other_bounds = [entry for entry in (run.metrics or {}).get("bounds", []) if entry["temperature"] != temperature]
    repository.set_scores(run_id, {}, (repository.run(run_id).metrics or {}) | {"bounds": [*other_bounds, bounds]})
    return bounds


def _rates(p: np.ndarray, q: np.ndarray) -> Iterator[tuple[tuple[str, str, int], float]]:
    for drafts in range(1, MOST_DRAFTS + 1):
        for sampling in DRAFT_SAMPLINGS:
            yield ("optima", sampling, drafts), optimal_acceptance(p, q, drafts, sampling)
        for name, verifier in VERIFIERS.items():
            if verifier.optimal or verifier.drafts not in (None, drafts):
                continue  # the first equals its drafts' optimum, the second couples another number of drafts
            yield ("verifiers", name, drafts), acceptance_rate(name, p, q, drafts, paths=_PATHS)


def _sample_positions(repository: Repository, run_id: str, positions: int, seed: int) -> list[SampledPositions]:
    """Return sampled positions of the run's texts, in text order."""
    generations = [g for g in repository.generations(run_id) if g.tokens]
    starts = np.cumsum([0, *(g.tokens for g in generations)])
    sampled = np.random.default_rng(seed).permutation(starts[-1])[:positions]
    run = repository.run(run_id)
    traces, messages = dict(repository.traces(run_id)), conversations(run.task, repository)
    texts = []
    for generation, start, end in zip(generations, starts, starts[1:], strict=False):
        if offsets := sorted(int(i) for i in sampled[(sampled >= start) & (sampled < end)] - start):
            written = tuple(token for record in traces[generation.position] for token in record.emitted)
            prompt = messages.get(generation.position, generation.prompt)
            if generation.turn:
                task = find_task(run.task, repository)
                prompt = asked_prompt(repository, run_id, task, generation.position).model_input
            template = run.decoding.template
            texts.append(SampledPositions(generation.position, prompt, template, written, tuple(offsets)))
    return texts


def rates(pair: LoadedPair, texts: Iterable[SampledPositions], sampling: SamplingConfig) -> Iterator[Rates]:
    """Yield the acceptance of the optimum and of every verifier at each position, from the pair's distributions."""
    for prompt_position, p, q in _distributions(pair, texts, sampling):
        yield prompt_position, list(_rates(p, q))


@torch.inference_mode()
def _distributions(
    pair: LoadedPair, texts: Iterable[SampledPositions], sampling: SamplingConfig
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the prompt's position with p and q, float64 [V] each."""
    for text in texts:
        template = text.template.filled(pair.spec.template_arguments)
        prompt = encode_prompt(pair.tokenizer, text.prompt, template=template)
        tokens = torch.tensor([prompt + list(text.written[:-1])], device=pair.target.device)
        indices = len(prompt) - 1 + torch.tensor(text.positions)
        distributions = [_probabilities(model, tokens, indices, sampling) for model in (pair.target, pair.draft)]
        for p, q in zip(*distributions, strict=True):
            yield text.prompt_position, p, q


def _probabilities(model: Any, tokens: Tensor, positions: Tensor, sampling: SamplingConfig) -> np.ndarray:
    """Return a model's distributions at R positions: int64 [1,T], int64 [R] → float64 [R,V]."""
    first = int(positions[0])
    logits = model.forward(tokens, model.new_cache(tokens.shape[1]), logits_to_keep=tokens.shape[1] - first)[0]
    probabilities = warp(logits[(positions - first).to(logits.device)].double(), sampling)
    return (probabilities / probabilities.sum(-1, keepdim=True)).cpu().numpy()
