"""Times of the decoding loop against the limit of memory bandwidth.

At batch size 1, speed is limited by reading weights: a forward of few tokens reads each weight once and computes
little. So a round cannot be faster than the bytes of its forwards over the bandwidth, and should be little slower than
its forwards timed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, SamplingConfig, Synthetic
from fsd_core.decoding.composition import compose
from fsd_core.decoding.session import DecodingSession
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import gpu_name
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.transfer import finished_at
from fsd_core.tracking import provenance

PROMPT = 128  # tokens
WARM_UP = 5


def measure_rounds(
    target: LanguageModel, draft: LanguageModel, *, draft_length: int = 5, probability: float = 0.8, rounds: int = 40
) -> dict[str, Any]:
    """Time rounds and their parts after a prompt of random tokens. All times are medians in milliseconds.

    ``target_alone_ms``, ``draft_step_ms``, ``verification_ms`` (of draft length + 1 tokens): single forwards.
    ``autoregressive_round_ms``, ``speculative_round_ms``: rounds of the loop. The latter use the rule ``synthetic``,
    which accepts a token with ``probability``. ``…_floor_ms``: the bytes that they read over ``bandwidth_gb_s``, which
    is measured too.
    """
    bandwidth = read_bandwidth(target.device)
    prompt = torch.randint(target.vocabulary, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    limit = min(8192, target.context - PROMPT - draft_length - 2)
    settings = {"sampling": SamplingConfig(temperature=1.0), "max_new_tokens": limit}
    topology = ChainTopology(length=draft_length)
    synthetic = DecodingConfig(acceptance=Synthetic(probability=probability), topology=topology, **settings)
    autoregressive = DecodingConfig(acceptance=Autoregressive(), **settings)
    times = {
        "target_alone_ms": forward_ms(target, 1, rounds),
        "draft_step_ms": forward_ms(draft, 1, rounds),
        "verification_ms": forward_ms(target, draft_length + 1, rounds),
        "autoregressive_round_ms": _round_ms(target, draft, autoregressive, prompt, rounds),
        "speculative_round_ms": _round_ms(target, draft, synthetic, prompt, rounds),
    }
    target_bytes, draft_bytes = bytes_read(target), bytes_read(draft)
    floor = 1000 * target_bytes / bandwidth
    drafting = draft_length * 1000 * draft_bytes / bandwidth
    parts = draft_length * times["draft_step_ms"] + times["verification_ms"]
    return {
        **times,
        "autoregressive_floor_ms": floor,
        "speculative_floor_ms": floor + drafting,
        "autoregressive_share_of_floor": floor / times["autoregressive_round_ms"],
        "round_over_its_parts": times["speculative_round_ms"] / parts,
        "target_bytes": target_bytes,
        "draft_bytes": draft_bytes,
        "bandwidth_gb_s": bandwidth / 1e9,
        "draft_length": draft_length,
        "probability": probability,
        "device": str(target.device),
        "dtype": str(target.dtype).removeprefix("torch."),
        "provenance": provenance.collect(
            str(target.device), str(target.dtype), torch.get_num_threads(), gpu_name(str(target.device))
        ),
    }


def bytes_read(model: LanguageModel) -> int:
    """Return the bytes of weights that a forward of one token reads: all but an embedding that is not also the head."""
    module: Any = model.module
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings()
    tied = head is not None and head.weight.data_ptr() == embedding.data_ptr()
    total = sum(p.numel() * p.element_size() for p in module.parameters())
    return total - (0 if tied else embedding.numel() * embedding.element_size())


def read_bandwidth(device: torch.device, size: int = 2**29, tries: int = 7) -> float:
    """Return the bytes per second at which a device reads a large buffer: the best of several sums over it."""
    buffer: Any = torch.ones(size // 4, device=device)
    return size / min(_timed(buffer.sum, device, tries))


def forward_ms(model: LanguageModel, count: int, times: int) -> float:
    """Return the milliseconds of a forward of ``count`` tokens after the prompt."""
    cache = model.new_cache(PROMPT + count)
    with torch.inference_mode():
        model.forward(torch.zeros(1, PROMPT, dtype=torch.long, device=model.device), cache, logits_to_keep=1)
        tokens = torch.zeros(1, count, dtype=torch.long, device=model.device)

        def once() -> None:
            cache.rollback(PROMPT)
            model.forward(tokens, cache)

        return 1000 * median(_timed(once, model.device, times))


def _round_ms(
    target: LanguageModel, draft: LanguageModel, config: DecodingConfig, prompt: list[int], rounds: int
) -> float:
    """Return the milliseconds of a round of the loop."""
    seconds = []
    with DecodingSession(compose(ModelSet(target, draft), config), prompt, 0, frozenset()) as session:
        session.run_round()  # reads the prompt
        while session.stop_reason is None and len(seconds) < WARM_UP + rounds:
            seconds.append(session.run_round().seconds)
    return 1000 * median(seconds[WARM_UP:] or seconds)


def _timed(action: Callable[[], Any], device: torch.device, times: int) -> list[float]:
    """Return the seconds of each call, after uncounted warm-up calls."""
    seconds = []
    for _ in range(WARM_UP + times):
        started = finished_at(device)
        action()
        seconds.append(finished_at(device) - started)
    return seconds[WARM_UP:]
