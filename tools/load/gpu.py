"""What a GPU needs for forwards and rounds: ``python -m tools.load.gpu limits rules profile peers --out DIR``.

limits: forwards, and rounds of every shape and of several texts, on random weights in real sizes, against the time that
reading the weights takes. rules: what verifying by each rule costs beside a round. profile: a trace of some rounds for
Chrome, and what most time goes into. peers: the bundled pair beside transformers' own loops, and drafts, heads, chains
and trees of it, exact and fuzzy, each prompt in turn. trees: the same of SmolLM2 on Spec-Bench, beside transformers'
``generate``, as it comes and compiled; with ``--quiet FILE`` the timing waits until the file is there, as all has been
compiled and captured by then. Each section writes DIR/NAME.json as soon as it is done, and says on the way what it
found; one that fails says so, and the next begins.
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
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import Batch, compose
from fsd_core.evaluation.speed import (
    PROMPT,
    bytes_read,
    forward_ms,
    measure,
    measure_rounds,
    read_bandwidth,
    synthetic_pair,
    transformers_loop,
)
from fsd_core.models.draft_weights import EagleHead
from fsd_core.models.eagle_files import new_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, ModelSet, load_pair, resolve_device
from fsd_core.ops.kernels import finished_at
from fsd_core.rules import KSeq
from fsd_core.statistics.intervals import median_interval
from fsd_core.tasks import get_task
from fsd_core.tasks.word_problems import Arithmetic
from tools.load.rule_cost import measure as rule_costs

SAMPLED = SamplingConfig(temperature=1.0)
ROUNDS = 24
Models = tuple[LanguageModel, LanguageModel]
Writer = Callable[[list[int]], tuple[int, int]]
"""writes a text after prompt ids; returns its tokens and rounds"""


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
    say_times("bundled", times := race(our_loops(pair, 128), prompts_of(pair, prompts), device), say)
    return found | {"shapes": times}


def trees(device: torch.device, quiet: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """SmolLM2's drafts and heads on four prompts of each category of Spec-Bench, 64 tokens each."""
    pair, tokens = load_pair("smollm2-135m", str(device), "bfloat16"), 64
    texts = [example.model_input for example in get_task("spec-bench").examples(24)]  # its categories alternate
    prompts = prompts_of(pair, texts)
    longest = max(prompts, key=len)
    writers = our_loops(pair, tokens) | {
        "transformers generate": generate(pair, tokens),
        "transformers generate, compiled": generate(pair, tokens, "static"),
    }
    for name, write in writers.items():
        began = time.perf_counter()
        for prompt in (longest, longest, *prompts[::8]):  # a static cache is made once, for the longest
            write(prompt)
        say(f"{name}: ready after {time.perf_counter() - began:.0f} s")
    while quiet is not None and not quiet.exists():
        time.sleep(0.5)
    times = race(writers, prompts, device, warm_up=0)
    say_times("smollm2-135m", times, say)
    return {"prompts": len(prompts), "tokens": tokens, "times": times}


def prompts_of(pair: LoadedPair, texts: list[Any]) -> list[list[int]]:
    decoder = PairDecoder(pair, DecodingConfig(acceptance=Autoregressive()))
    return [decoder.prompt_ids(text) for text in texts]


def our_loops(pair: LoadedPair, tokens: int) -> dict[str, Writer]:
    def writer(decoder: PairDecoder) -> Writer:
        def write(ids: list[int]) -> tuple[int, int]:
            text = decoder.generate(ids, seed=0)
            return len(text.tokens), len(text.records)

        return write

    return {
        name: writer(PairDecoder(pair, config.model_copy(update={"max_new_tokens": tokens})))
        for name, config in shapes().items()
    }


def generate(pair: LoadedPair, tokens: int, cache: str | None = None) -> Writer:
    write = transformers_loop(pair, tokens, cache)

    def counted(ids: list[int]) -> tuple[int, int]:
        count = len(write(ids))
        return count, count

    return counted


def race(
    writers: dict[str, Writer], prompts: list[list[int]], device: torch.device, warm_up: int = 3
) -> dict[str, list[tuple[float, int, int]]]:
    """Seconds, tokens and rounds of each text, all writers one prompt before the next."""
    times: dict[str, list[tuple[float, int, int]]] = {name: [] for name in writers}
    for turn, prompt in enumerate([*prompts[:warm_up], *prompts]):
        names = list(writers)
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            began = finished_at(device)
            tokens, rounds = writers[name](prompt)
            if turn >= warm_up:  # the graphs are captured
                times[name].append((finished_at(device) - began, tokens, rounds))
    return times


def say_times(pair: str, times: dict[str, list[tuple[float, int, int]]], say: Callable[[str], None]) -> None:
    alone = [tokens / seconds for seconds, tokens, _ in times["target alone"]]
    for name, each in times.items():
        seconds, tokens, rounds = (sum(column) for column in zip(*each, strict=True))
        ratios = [text[1] / text[0] / speed for text, speed in zip(each, alone, strict=True)]
        low, high = median_interval(ratios) or (float("nan"), float("nan"))
        say(
            f"{pair}, {name}: {tokens / seconds:.0f} tokens/s, {tokens / rounds:.2f} tokens a round, "
            f"{median(ratios):.2f} [{low:.2f}, {high:.2f}] x target alone"
        )


def shapes() -> dict[str, DecodingConfig]:
    """Exact and fuzzy, chain and tree, draft and head."""
    tree = DynamicTreeTopology(length=5, top_k=10, total_tokens=60)
    kinds = {"draft": DraftModelDrafter(), "head": EagleDrafter()}
    structures = {"chain of 5": ChainTopology(length=5), "tree of 60": tree}
    rules = {"exact": Speculative(), "fuzzy": Fuzzy(threshold=0.1)}
    fast = {
        f"{rule}, {structure} of the {kind}": {
            "acceptance": rules[rule],
            "topology": structures[structure],
            "drafter": kinds[kind],
        }
        for rule in rules
        for structure in structures
        for kind in kinds
    }
    found: dict[str, dict[str, Any]] = {"target alone": {"acceptance": Autoregressive()}} | fast
    return {name: DecodingConfig(**settings, max_new_tokens=128) for name, settings in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="+", choices=["limits", "rules", "profile", "peers", "trees"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", default="llama-8b/1b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quiet", type=Path)
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
        "trees": lambda: trees(device, given.quiet, say),
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
