"""What a GPU needs for forwards and rounds: ``python -m tests.tools.load.gpu limits rules profile peers --out DIR``.

limits: forwards, and rounds of every shape and of several texts, on random weights in real sizes, against the time that
reading the weights takes. rules: what verifying by each rule costs beside a round. profile: a trace of some rounds for
Chrome, and what most time goes into. peers: the bundled pair beside transformers' own loops, and drafts, heads, chains
and trees of it, exact and fuzzy, each prompt in turn. Each section writes DIR/NAME.json as soon as it is done, and says
on the way what it found; one that fails says so, and the next begins.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    MultiDraftTopology,
    SamplingConfig,
    Speculative,
    Synthetic,
)
from fsd_core.decoding.batch import Batch
from fsd_core.decoding.composition import compose
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.roofline import PROMPT, bytes_read, forward_ms, measure_rounds, read_bandwidth
from fsd_core.evaluation.speed import measure
from fsd_core.models.eagle import EagleHead
from fsd_core.models.eagle_files import new_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import load_pair, resolve_device
from fsd_core.models.model_set import ModelSet
from fsd_core.models.random_pairs import synthetic_pair
from fsd_core.ops.transfer import finished_at
from fsd_core.rules import KSeq
from fsd_core.tasks.arithmetic import Arithmetic
from tests.tools.load.rule_cost import measure as rule_costs

SAMPLED = SamplingConfig(temperature=1.0)
ROUNDS = 24
Models = tuple[LanguageModel, LanguageModel]


def methods() -> dict[str, dict[str, Any]]:
    kept = Synthetic(probability=0.8)
    published = DynamicTreeTopology(length=6, top_k=10, total_tokens=60)
    small = DynamicTreeTopology(length=4, top_k=4, total_tokens=16)
    return {
        "target alone": {"acceptance": Autoregressive()},
        "chain 5": {"acceptance": kept, "topology": ChainTopology(length=5)},
        "chain 5, SD": {"acceptance": Speculative(), "topology": ChainTopology(length=5)},
        "tree 16": {"acceptance": kept, "topology": small},
        "tree 60": {"acceptance": kept, "topology": published},
        "3 drafts of 4": {"acceptance": KSeq(), "topology": MultiDraftTopology(length=4)},
        "EAGLE, chain 5": {"acceptance": kept, "topology": ChainTopology(length=5), "drafter": EagleDrafter()},
        "EAGLE, tree 60": {"acceptance": kept, "topology": published, "drafter": EagleDrafter()},
    }


def round_ms(models: Models, settings: dict[str, Any], rows: int, head: EagleHead | None = None) -> float:
    """Median milliseconds of a round of ``rows`` texts; what the device still does is waited for."""
    config = DecodingConfig(**settings, sampling=SAMPLED, max_new_tokens=1024)
    prompts = torch.randint(models[0].vocabulary, (rows, PROMPT), generator=torch.Generator().manual_seed(0)).tolist()
    seconds = []
    with Batch(compose(ModelSet(*models, head), config), frozenset(), PROMPT + 1100, rows) as texts:
        for row, prompt in enumerate(prompts):
            texts.put(row, prompt, seed=row)
        for _ in range(5 + ROUNDS):
            began = finished_at(models[0].device)
            texts.run_round()
            seconds.append(time.perf_counter() - began)
    return 1000 * median(seconds[5:])


def limits(pair: Models, name: str, say: Callable[[str], None]) -> dict[str, Any]:
    target, draft = pair
    found: dict[str, Any] = {"bandwidth": read_bandwidth(target.device), "bytes": [bytes_read(m) for m in pair]}
    say(f"bandwidth {found['bandwidth'] / 1e9:.0f} GB/s, bytes {found['bytes']}")
    for role, model in (("target", target), ("draft", draft)):
        floor = 1000 * bytes_read(model) / found["bandwidth"]
        found[role] = {count: forward_ms(model, count, 20) for count in (1, 2, 6, 16, 32, 64)}
        told = ", ".join(f"{count}: {ms:.2f}" for count, ms in found[role].items())
        say(f"{role}: floor {floor:.2f} ms; forward of tokens: {told}")
    found["bench"] = measure_rounds(target, draft)
    say(json.dumps({k: round(v, 3) for k, v in found["bench"].items() if isinstance(v, float)}))
    head = new_head(target.module, 1, None).to(target.device, target.dtype).for_drafting()
    found["rounds"] = {}
    for kind, settings in methods().items():
        many = [1] if settings.get("drafter") or ("chain" not in kind and "alone" not in kind) else [1, 8, 32]
        for rows in many:
            found["rounds"][f"{kind}, {rows} texts"] = ms = round_ms(pair, settings, rows, head)
            say(f"{name}: {kind}, {rows} texts: {ms:.2f} ms")
    return found


def rules(pair: Models, say: Callable[[str], None]) -> dict[str, Any]:
    vocabulary, seconds, more = rule_costs(*pair, 30)
    say(f"V = {vocabulary:,}, a round of SD is {seconds * 1e3:.2f} ms")
    for kind, extra in more.items():
        say(f"| `{kind}` | {1e3 * extra:.2f} ms, {extra / seconds:.1%} |")
    return {"vocabulary": vocabulary, "round": seconds, "more": more}


def profile(pair: Models, out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    found = {}
    for kind in ("chain 5, SD", "tree 16"):
        config = DecodingConfig(**methods()[kind], sampling=SAMPLED, max_new_tokens=400)
        with Batch(compose(ModelSet(*pair), config), frozenset(), PROMPT + 500) as texts:
            texts.put(0, list(range(1, PROMPT)), seed=0)
            for _ in range(5):
                texts.run_round()
            with torch.profiler.profile(activities=activities) as seen:
                for _ in range(3):
                    texts.run_round()
                finished_at(pair[0].device)
        table = seen.key_averages().table(sort_by="cuda_time_total", row_limit=18, max_name_column_width=60)
        say(kind + "\n" + "\n".join(line[:200] for line in table.splitlines()))
        found[kind] = table
        seen.export_chrome_trace(str(out / f"trace-{kind.replace(' ', '-').replace(',', '')}.json.gz"))
    return found


def peers(device: torch.device, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    prompts = [example.model_input for example in Arithmetic().examples(12)]
    for dtype in ("float32", "bfloat16"):
        pair = load_pair("bundled", str(device), dtype)
        found[dtype] = report = measure(pair, prompts)
        for row in report["contenders"]:
            ratio = row["versus_assisted"]
            say(
                f"{dtype}: {row['title']}: {row['tokens_per_second']:.0f} tokens/s, {ratio['median']:.2f} "
                f"[{ratio['low']:.2f}, {ratio['high']:.2f}] x assisted, {row['identical']} of {len(prompts)} identical"
            )
    decoders = {name: PairDecoder(pair, config) for name, config in shapes().items()}
    ids = [decoders["target alone"].prompt_ids(prompt) for prompt in prompts]
    times: dict[str, list[tuple[float, int, int]]] = {name: [] for name in decoders}
    for turn, prompt in enumerate([*ids[:3], *ids]):
        for name, decoder in decoders.items():
            began = finished_at(device)
            text = decoder.generate(prompt, seed=0)
            if turn >= 3:  # the graphs are captured
                times[name].append((finished_at(device) - began, len(text.tokens), len(text.records)))
    for name, each in times.items():
        seconds, tokens, rounds = (sum(column) for column in zip(*each, strict=True))
        say(f"bundled, {name}: {tokens / seconds:.0f} tokens/s, {tokens / rounds:.2f} tokens a round")
    return found | {"shapes": times}


def shapes() -> dict[str, DecodingConfig]:
    """Exact and fuzzy, chain and tree, draft and head."""
    tree = DynamicTreeTopology(length=5, top_k=10, total_tokens=60)
    kinds = {"draft": DraftModelDrafter(), "head": EagleDrafter()}
    structures = {"chain of 5": ChainTopology(length=5), "tree of 60": tree}
    rules = {"exact": Speculative(), "fuzzy": Fuzzy(threshold=0.1)}
    found = {
        f"{rule}, {structure} of the {kind}": {
            "acceptance": rules[rule],
            "topology": structures[structure],
            "drafter": kinds[kind],
        }
        for rule in rules
        for structure in structures
        for kind in kinds
    }
    found = {"target alone": {"acceptance": Autoregressive()}} | found
    return {name: DecodingConfig(**settings, max_new_tokens=128) for name, settings in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="+", choices=["limits", "rules", "profile", "peers"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", default="llama-8b/1b")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    device = resolve_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)

    pair = functools.cache(lambda: synthetic_pair(given.pair, device, torch.bfloat16))
    runs: dict[str, Callable[[], Any]] = {
        "limits": lambda: limits(pair(), given.pair, say),
        "rules": lambda: rules(pair(), say),
        "profile": lambda: profile(pair(), given.out, say),
        "peers": lambda: peers(device, say),
    }
    for section in given.sections:
        try:
            found = runs[section]()
            (given.out / f"{section}.json").write_text(json.dumps(found, indent=1, default=str))
        except Exception:
            say(f"{section} failed:\n{traceback.format_exc()}")
        gc.collect()


if __name__ == "__main__":
    main()
