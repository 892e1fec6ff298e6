"""A step against the length of the text, with softmax attention and with grouped linear attention: random weights.

python -m tools.linear_roofline    prints the table of docs/results/linear-attention-steps.csv

Both models have SmolLM2-135M's shape. Their texts mean nothing: what is measured is how long a step takes, and how much
of a text is kept. The two are asked in turn at each length.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fsd_core.models.caches import KVCache, LinearCache
from fsd_core.models.forwards import LinearLlama, LinearLlamaConfig
from fsd_core.models.language_model import LanguageModel
from tests.tools.documents import commit

SHAPE = {
    "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
LENGTHS = (512, 1024, 2048, 4096, 8000)
GROUP, TAPS = 64, 32


def models() -> tuple[LanguageModel, LanguageModel]:
    """The two models, in bfloat16. Both run through transformers' modules, so that attention alone differs."""
    torch.manual_seed(0)
    softmax = LlamaForCausalLM(LlamaConfig(**SHAPE)).bfloat16()
    linear = LinearLlama(LinearLlamaConfig(**SHAPE, attention_group=GROUP, attention_taps=TAPS)).bfloat16()
    return LanguageModel(softmax, lean=False), LanguageModel(linear)


def kept(cache: KVCache) -> int:
    """Bytes that a cache keeps of its text."""
    if isinstance(cache, LinearCache):
        return cache.bytes()
    return sum(
        part[:, :, : cache.length].numel() * part.element_size() for pair in cache._buffers.values() for part in pair
    )


@torch.inference_mode()
def measured(length: int, steps: int, pair: tuple[LanguageModel, LanguageModel]) -> tuple[list[float], list[int]]:
    """Median seconds of a step, and bytes kept, of each model behind a text of this length."""
    caches = [model.new_cache(length + steps + 1) for model in pair]
    times: list[list[float]] = [[], []]
    for model, cache in zip(pair, caches, strict=True):
        for start in range(0, length, 256):
            model.forward(torch.zeros(1, min(256, length - start), dtype=torch.long), cache, logits_to_keep=1)
            cache.rollback(cache.length)
    for _ in range(steps):
        for seconds, model, cache in zip(times, pair, caches, strict=True):
            started = time.perf_counter()
            model.forward(torch.zeros(1, 1, dtype=torch.long), cache)
            seconds.append(time.perf_counter() - started)
            cache.rollback(cache.length)
    return [median(seconds) for seconds in times], [kept(cache) for cache in caches]


def main(steps: int) -> None:
    """Measure, and print the page."""
    pair, rows = models(), []
    for length in LENGTHS:
        seconds, sizes = measured(length, steps, pair)
        figures = [f"{1000 * seconds[0]:.0f}", f"{1000 * seconds[1]:.0f}", f"{seconds[0] / seconds[1]:.2f}×"]
        rows.append(f"| {length:,} | {' | '.join(figures)} | {sizes[0] / 1e6:.1f} | {sizes[1] / 1e6:.1f} |")
        print(rows[-1], flush=True)
    threads = torch.get_num_threads()
    facts = (
        f"model pair none; task none; prompts 0; {steps} steps at each length; temperature 0; {threads} thread(s) of a "
        f"CPU; commit {commit()}"
    )
    print(PAGE.format(rows="\n".join(rows), facts=facts, steps=steps, threads=threads))


PAGE = """\
# A step against the length of the text, with softmax and with grouped linear attention

{facts}

Untrained weights of SmolLM2-135M's shape in bfloat16, one text, the two models in turn. Median time of a step; both
run through transformers' modules. Groups of 64, 32 taps.

```
OMP_NUM_THREADS={threads} python -m tools.linear_roofline --steps {steps}
```

| Text (tokens) | Step, softmax (ms) | Step, linear (ms) | Softmax ÷ linear | Kept, softmax (MB) | Kept, linear (MB) |
|---|---|---|---|---|---|
{rows}

What the linear model keeps does not grow with the text. Whether a model of this kind answers as well is not asked here.
"""

if __name__ == "__main__":
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--steps", type=int, default=30)
    main(told.parse_args().steps)
