"""Times of our decoding loops against those of transformers and the limit of memory bandwidth.

Readings of a GPU through NVML: the energy that it has used, and its memory in use.

NVML is read through ``pynvml`` (the package ``nvidia-ml-py``, which is optional). Without it, without a GPU, or where
the GPU does not report a value, nothing is recorded.

At batch size 1, speed is limited by reading weights: a forward of few tokens reads each weight once and computes
little. So a round cannot be faster than the bytes of its forwards over the bandwidth, and should be little slower than
its forwards timed alone.

Fair by construction: one process, the same modules, prompts, dtype and threads, all greedy. Each prompt goes to all
contenders before the next prompt, in an order that rotates from prompt to prompt, so that a machine that slows down
slows all contenders alike.
"""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig
from transformers.utils import logging as transformers_logging

from fsd_core import provenance
from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    FuzzyReducible,
    SamplingConfig,
    Speculative,
    Synthetic,
)
from fsd_core.decoding.decoder import DecodingSession, PairDecoder
from fsd_core.decoding.loop import compose
from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models.conversation import Messages
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.load_failures import copies, free_bytes
from fsd_core.models.loading import LoadedPair, ModelSet, gpu_name
from fsd_core.ops.kernels import finished_at
from fsd_core.statistics.intervals import median_interval
from fsd_core.storage.records import GenerationRecord

logger = logging.getLogger(__name__)


class DeviceMeter(Protocol):
    """Reads counters of a device."""

    def energy(self) -> float | None:
        """Return the joules that the device has taken since some moment before; ``None`` if it does not report them."""
        ...

    def memory(self) -> int | None:
        """Return the bytes of its memory in use by all processes; ``None`` if it does not report them."""
        ...


class NvmlMeter:
    """A GPU, read through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """``nvml``: the module ``pynvml``, initialised. ``handle``: of the GPU."""
        self._nvml, self._handle = nvml, handle

    def energy(self) -> float | None:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000  # from millijoules
        except self._nvml.NVMLError:  # GPUs before Volta, and parts of a GPU, do not say
            return None

    def memory(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        except self._nvml.NVMLError:
            return None


MeterOf = Callable[[str], DeviceMeter | None]
"""(torch's name of a device) -> what reads it; ``None`` if nothing does"""


def nvml_meter(device: str) -> NvmlMeter | None:
    """Return the meter of torch's device, such as ``cuda:1``; ``None`` without NVML or for another kind of device."""
    parsed = torch.device(device)
    if parsed.type != "cuda":
        return None
    try:
        uuid = str(torch.cuda.get_device_properties(parsed).uuid)  # CUDA_VISIBLE_DEVICES renumbers, this stays
    except (AttributeError, AssertionError, RuntimeError):
        return None
    return meter_of_gpu(uuid)


def meter_of_gpu(uuid: str) -> NvmlMeter | None:
    """Return the meter of the GPU with this UUID; ``None`` without ``pynvml``, a driver or that GPU."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return NvmlMeter(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"))
    except nvml.NVMLError as error:
        logger.info("Neither energy nor memory of the GPU is recorded: %s", error)
        return None


def metered(records: Iterator[GenerationRecord], meter: DeviceMeter | None) -> Iterator[GenerationRecord]:
    """Yield the records, each with the joules that the device took until it came and the memory in use then.

    What the device takes between two questions for a record is nobody's. In a batch a record is charged with what all
    texts took since the one before it, so a run's sum is right and a prompt's share is not known.
    """
    if meter is None:
        yield from records
        return
    while True:
        before = meter.energy()
        record = next(records, None)
        if record is None:
            return
        after = meter.energy()
        energy = after - before if before is not None and after is not None and after >= before else None
        yield replace(record, energy=energy, device_memory=meter.memory())


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


_LLAMA3: dict[str, Any] = {"vocab_size": 128_256, "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
_SMOL: dict[str, Any] = {"vocab_size": 49_152, "tie_word_embeddings": True}


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, **more: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=inner, max_position_embeddings=4096, **more,
    )  # fmt: skip


RANDOM_PAIR_SHAPES = {
    "llama-8b/1b": (
        _shape(4096, 32, 32, 8, 14_336, **_LLAMA3),
        _shape(2048, 16, 32, 8, 8192, tie_word_embeddings=True, **_LLAMA3),
    ),
    "smollm2-1.7b/135m": (_shape(2048, 24, 32, 32, 8192, **_SMOL), _shape(576, 30, 9, 3, 1536, **_SMOL)),
}
"""target/draft with the sizes of Llama 3.1 8B and 3.2 1B, and of SmolLM2 1.7B and 135M"""


def synthetic_pair(name: str, device: torch.device, dtype: torch.dtype) -> tuple[LanguageModel, LanguageModel]:
    """Return target and draft of a shape in ``RANDOM_PAIR_SHAPES``, with random weights that repeat on every call.

    Raises ``UnknownName`` for another name, ``ModelUnavailable`` with the numbers if they do not fit.
    """
    if name not in RANDOM_PAIR_SHAPES:
        raise UnknownName(f"There is no synthetic pair '{name}': expected one of {', '.join(RANDOM_PAIR_SHAPES)}.")
    with torch.device("meta"):
        empty = [AutoModelForCausalLM.from_config(config) for config in RANDOM_PAIR_SHAPES[name]]
    bytes_per_weight = dtype.itemsize * copies("llama", device)
    needed = bytes_per_weight * sum(parameter.numel() for model in empty for parameter in model.parameters())
    if (free := free_bytes(device)) < needed:
        raise ModelUnavailable(
            f"The synthetic pair '{name}' needs {needed / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free: "
            f"choose another of {', '.join(RANDOM_PAIR_SHAPES)}, or the dtype bfloat16."
        )
    torch.manual_seed(0)
    with torch.device(device):
        target, draft = (AutoModelForCausalLM.from_config(config, dtype=dtype) for config in RANDOM_PAIR_SHAPES[name])
    return LanguageModel(target), LanguageModel(draft)


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
