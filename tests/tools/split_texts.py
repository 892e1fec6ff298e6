"""Texts of a pair by methods of every shape, as JSON: under torchrun, ``-m tests.tools.split_texts NAME``."""

from __future__ import annotations

import json
import sys
from typing import Any

from fsd_core.cli.commands import among_others
from fsd_core.config.options import method
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.loading import LoadedPair, load_pair

METHODS: dict[str, dict[str, Any]] = {
    "target alone": {"acceptance": "autoregressive"},
    "chain": {"acceptance": "speculative", "draft_length": 4},
    "fuzzy": {"acceptance": "fsd-reducible", "threshold": 0.05, "draft_length": 3, "temperature": 0.8},
    "tree": {"acceptance": "speculative", "topology": "dynamic-tree", "tree_tokens": 12, "draft_length": 4},
    "several": {"acceptance": "k-seq", "draft_length": 3, "temperature": 0.8},
    "lookup": {"acceptance": "speculative", "drafter": "prompt-lookup"},
}
TOGETHER = ("target alone", "chain", "fuzzy")
"""methods whose texts can be written side by side"""
PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6], [7], [2, 7, 1, 8] * 4, [5, 3, 5])


def texts(pair: LoadedPair) -> dict[str, list[list[int]]]:
    """Return the tokens of each method's texts: each alone, and three side by side while rows leave and come."""
    found = {}
    for name, settings in METHODS.items():
        decoder = PairDecoder(pair, method(settings | {"max_new_tokens": 16}))
        seeds = range(len(PROMPTS))
        found[name] = [decoder.generate(prompt, seed).tokens for prompt, seed in zip(PROMPTS, seeds, strict=True)]
        if name in TOGETHER:
            together = dict(decoder.generate_all(PROMPTS, seeds, rows=3))
            found[f"{name}, together"] = [together[place].tokens for place in seeds]
    return found


if __name__ == "__main__":
    with among_others() as leads:
        if leads:
            loaded = load_pair(sys.argv[1], "cpu", "float32")
            print(json.dumps({"computed_on": loaded.computed_on, "texts": texts(loaded)}))
