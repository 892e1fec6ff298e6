"""Existing texts under a target's chat template, with the target's distribution at each of their tokens.

A target reads a text about ten times as fast as it writes one, so a draft sees more of its distributions in the same
time. However, they follow other people's words, not the target's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from fsd_core.models.language_model import LanguageModel
from fsd_core.models.prompt import encode_prompt
from fsd_core.tasks.word_problems import worked
from fsd_core.training.distillation import save_texts
from fsd_core.training.prompts import dolly, instruction, json_lines, mbpp, named_if_missing, prose
from fsd_core.training.rereading import TOKENS_AT_ONCE, read


def existing_texts(data: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Return an iterator over questions and their answers, each once, in an order of the seed alone.

    The texts are GSM8K's solutions, Dolly's answers, MBPP's programs, and stories and passages of WikiText to be
    continued. ``data``: as for ``prompts.training_prompts``. Raises ``ModelUnavailable`` if a file is missing.
    """
    with named_if_missing():
        sums = json_lines(data / "gsm8k" / "train.jsonl")[::3]  # all would be two thirds of the texts
        pairs = [(row["question"], worked(row)) for row in sums]
        pairs += [(instruction(row), row["output"].strip()) for row in dolly(data)]
        pairs += [(question, f"```python\n{code.strip()}\n```") for question, code in mbpp(data)]
        pairs += [_continued(text) for text in map(_as_written, prose(data)) if len(text) > 200]
    random.Random(seed).shuffle(pairs)
    return iter([(question, answer) for question, answer in pairs if answer])


def _continued(text: str) -> tuple[str, str]:
    """Return a request with the first sentence or so of a text, and the remainder as the answer."""
    end = text.find(". ", 40, 160)
    cut = end + 1 if end >= 0 else 100
    return f"Continue this text: {text[:cut]}", text[cut:].strip()


def _as_written(text: str) -> str:
    """Return a passage of WikiText without the spaces that its tokenisation put before punctuation."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    return re.sub(r" ([,.;:!?%)]|'s\b|n't\b)", r"\1", text).replace("( ", "(").strip()


def read_existing(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterator[tuple[str, str]],
    folder: Path,
    count: int,
    limit: int = 160,
    longest_prompt: int = 400,
    batch: int = 96,
    layers: tuple[int, ...] = (),
    report: Callable[[dict], None] = lambda row: None,
) -> None:
    """Read up to ``count`` texts, the first ``limit`` tokens of each answer, into files under ``folder``.

    The files are like those of ``distillation.write_texts``. Existing ones are not read again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    end = tokenizer.eos_token_id
    texts, groups = islice(texts, count), 0
    while group := list(islice(texts, batch)):
        groups += 1
        if (file := folder / f"{groups - 1:05d}.safetensors").exists():
            continue
        pairs = []
        for question, answer in group:
            prompt = encode_prompt(tokenizer, question)
            ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], end][:limit]
            if len(prompt) <= min(longest_prompt, target.context - limit):
                pairs.append((prompt, ids))
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        read_so_far = []
        while pairs:
            rows = max(1, TOKENS_AT_ONCE // (len(pairs[-1][0]) + len(pairs[-1][1])))
            pairs, chunk = pairs[:-rows], pairs[-rows:]
            read_so_far += read(target, chunk, layers)
        save_texts(read_so_far, file)
        report({"file": groups, "rows": len(read_so_far), "tokens": sum(len(text.top) for text in read_so_far)})
