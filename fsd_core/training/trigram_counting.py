"""Counts the tri-grams of training texts: ``python -m fsd_core train trigrams --target bundled --out FOLDER``.

The texts are generated problems with their solutions for the bundled pair, and the existing texts that drafts are
trained on for others, under the target's chat template. Problems and questions of the tests are not among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from fsd_core.models.hub import obtain
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.trigrams import count, save_trigrams
from fsd_core.models.vocabularies import load_tokenizer
from fsd_core.tasks.arithmetic import held_out_questions
from fsd_core.tasks.generators import long_problems
from fsd_core.training.bundled_pair import BUNDLED_PLANS
from fsd_core.training.existing_texts import existing_texts


def training_texts(target: str, data: Path, seed: int) -> Iterator[tuple[str, str]]:
    """Return questions and answers for a pair's target, in an order of the seed alone. Raises ``ModelUnavailable`` if a
    file of them is missing."""
    if target != "bundled":
        return existing_texts(data, seed)
    stream = long_problems.stream(seed + 9_000, held_out_questions(), BUNDLED_PLANS["target"].style)
    return ((problem.prompt, solution) for problem, solution in stream)


def _tokens(tokenizer: PreTrainedTokenizerBase, question: str, answer: str) -> list[int]:
    end: Any = tokenizer.eos_token_id
    return [*encode_prompt(tokenizer, question), *tokenizer(answer, add_special_tokens=False)["input_ids"], end]


def main(target: str, out: Path, data: Path, texts: int = 3_000, seed: int = 0, least: int = 1) -> dict[str, Any]:
    """Count, write the table under ``out`` and return its figures. ``target``: the pair whose target it drafts for.
    ``least``: occurrences below which a tri-gram is left out.

    Raises ``UnknownName`` for an unknown pair, ``ModelUnavailable`` if its tokenizer or the texts cannot be had.
    """
    tokenizer = load_tokenizer(obtain(get_pair(target).target))
    vocabulary = 1 + max(tokenizer.get_vocab().values())
    read = [_tokens(tokenizer, *text) for text in islice(training_texts(target, data, seed), texts)]
    counts = count(read, vocabulary, least=least)
    save_trigrams(counts, out, tokenizer)
    return {
        "target": target, "seed": seed, "least": least, "texts": len(read), "tokens": sum(map(len, read)),
        "pairs": len(counts.keys), "successors": len(counts.tokens),
    }  # fmt: skip
