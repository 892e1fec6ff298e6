"""Times our decoding loops against those of transformers.

Fair by construction: one process, the same modules, prompts, dtype and threads, all greedy. Each prompt goes to all
contenders before the next prompt, in an order that rotates from prompt to prompt, so that a machine that slows down
slows all contenders alike.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.utils import logging as transformers_logging

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    FuzzyReducible,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.chat_messages import Messages
from fsd_core.models.loading import LoadedPair, gpu_name
from fsd_core.ops.transfer import finished_at
from fsd_core.statistics.intervals import median_interval
from fsd_core.tracking import provenance

WARM_UP_PROMPTS = 2
GENERATE, ASSISTED = "transformers-generate", "transformers-assisted"
EXACT_KINDS = ("autoregressive", "speculative", ASSISTED)
"""contenders whose greedy tokens must equal those of transformers' ``generate``"""


@dataclass(frozen=True)
class Contender:
    """One method of generation. ``write`` takes prompt ids and returns the ids of the new tokens."""

    name: str
    title: str
    write: Callable[[list[int]], list[int]]


@dataclass
class Timing:
    """One contender's output for each prompt, and the seconds that each took."""

    outputs: list[list[int]]
    seconds: list[float]

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each prompt."""
        return [len(tokens) / seconds for tokens, seconds in zip(self.outputs, self.seconds, strict=True)]


def measure(
    pair: LoadedPair,
    prompts: Sequence[str | Messages],
    *,
    draft_length: int = 5,
    threshold: float | None = 0.1,
    max_new_tokens: int = 128,
    on_prompt: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Time every contender on every prompt and return the report, ready for JSON.

    ``tokens_per_second`` is all tokens over all time. ``versus_generate`` and ``versus_assisted`` are the median, over
    the prompts, of the speed ratio to transformers' plain and assisted generation, with its 95 % interval, which is
    ``None`` below three prompts. ``identical`` counts the prompts whose tokens equal those of transformers'
    ``generate``. ``threshold`` is that of FSD on the divergence js. ``on_prompt`` is called after each prompt with the
    number done.
    """
    fuzzy = FuzzyReducible(divergence="js", threshold=threshold)
    with _assisted(pair, max_new_tokens, draft_length) as assisted:
        contenders = [
            _our_loop(pair, "autoregressive", "Ours, target alone", Autoregressive(), max_new_tokens, draft_length),
            _our_loop(pair, "speculative", "Ours, SD", Speculative(), max_new_tokens, draft_length),
            _our_loop(pair, "fsd-reducible", "Ours, FSD reducible", fuzzy, max_new_tokens, draft_length),
            Contender(GENERATE, "transformers generate", transformers_loop(pair, max_new_tokens)),
            assisted,
        ]
        timings = _race(contenders, [_prompt_ids(pair, prompt) for prompt in prompts], pair.device, on_prompt)
    return {
        "pair": pair.spec.name,
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "draft_length": draft_length,
        "divergence": fuzzy.divergence,
        "threshold": threshold,
        "device": pair.device,
        "dtype": pair.dtype,
        "threads": torch.get_num_threads(),
        "contenders": [_row(contender, timings) for contender in contenders],
        "outputs_agree": all(timings[name].outputs == timings[GENERATE].outputs for name in EXACT_KINDS),
        "provenance": provenance.collect(pair.computed_on, pair.dtype, torch.get_num_threads(), gpu_name(pair.device)),
    }


def _race(
    contenders: list[Contender], prompts: list[list[int]], device: str, on_prompt: Callable[[int], None] | None
) -> dict[str, Timing]:
    timings = {contender.name: Timing([], []) for contender in contenders}
    for prompt in prompts[:WARM_UP_PROMPTS]:
        for contender in contenders:
            contender.write(prompt)
    for i, prompt in enumerate(prompts):
        first = i % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            started = finished_at(device)
            tokens = contender.write(prompt)
            timings[contender.name].seconds.append(finished_at(device) - started)
            timings[contender.name].outputs.append(tokens)
        if on_prompt:
            on_prompt(i + 1)
    return timings


def _row(contender: Contender, timings: dict[str, Timing]) -> dict[str, Any]:
    timing = timings[contender.name]
    tokens, seconds = sum(map(len, timing.outputs)), sum(timing.seconds)
    text_pairs = zip(timing.outputs, timings[GENERATE].outputs, strict=True)
    return {
        "name": contender.name,
        "title": contender.title,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "versus_generate": _ratio(timing, timings[GENERATE]),
        "versus_assisted": _ratio(timing, timings[ASSISTED]),
        "identical": sum(output == reference for output, reference in text_pairs),
    }


def _ratio(timing: Timing, baseline: Timing) -> dict[str, float | None]:
    ratios = [a / b for a, b in zip(timing.speeds, baseline.speeds, strict=True)]
    low, high = median_interval(ratios) or (None, None)
    return {"median": median(ratios), "low": low, "high": high}


def _prompt_ids(pair: LoadedPair, prompt: str | Messages) -> list[int]:
    return PairDecoder(pair, DecodingConfig(acceptance=Autoregressive())).prompt_ids(prompt)


def _our_loop(
    pair: LoadedPair, name: str, title: str, acceptance: AcceptanceConfig, max_new_tokens: int, draft_length: int
) -> Contender:
    topology = ChainTopology(length=draft_length)
    decoder = PairDecoder(pair, DecodingConfig(acceptance=acceptance, topology=topology, max_new_tokens=max_new_tokens))
    return Contender(name, title, lambda ids: decoder.generate(ids, seed=0).tokens)


def transformers_loop(
    pair: LoadedPair, max_new_tokens: int, cache: str | None = None, **extra: Any
) -> Callable[[list[int]], list[int]]:
    """Return a function that writes greedily by transformers' ``generate`` of the target: prompt ids to those of the
    new tokens. ``cache``: its kind, such as ``static``; ``extra``: arguments of ``generate`` beside its config."""
    module: Any = pair.target.module  # its `generate` comes from a mixin that the type does not show
    eos = sorted(pair.target.eos_tokens)
    # Not the checkpoint's config, which may ask for sampling.
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos or None,
        pad_token_id=eos[0] if eos else 0,
        cache_implementation=cache,
    )

    def write(ids: list[int]) -> list[int]:
        inputs = torch.tensor([ids], device=pair.device)
        # A copy, because `generate` modifies its config.
        out = module.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=copy.copy(config), **extra
        )
        return out[0, len(ids) :].tolist()

    return write


@contextmanager
def _assisted(pair: LoadedPair, max_new_tokens: int, draft_length: int) -> Iterator[Contender]:
    """Yield assisted generation with our draft length. transformers reads it from the draft's own config, set here.

    All other settings are transformers' own, including the confidence below which its assistant stops drafting early.
    """
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it warns of arguments that it passes to itself
    draft = pair.draft.module
    original_config, draft.generation_config = draft.generation_config, copy.deepcopy(draft.generation_config)
    draft.generation_config.num_assistant_tokens = draft_length
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    try:
        yield Contender(
            ASSISTED, "transformers assisted", transformers_loop(pair, max_new_tokens, assistant_model=draft)
        )
    finally:
        draft.generation_config = original_config
        transformers_logging.set_verbosity(verbosity)
