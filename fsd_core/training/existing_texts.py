"""Texts that exist, under a target's chat template, with the target's distribution at every token of them.

A target reads a text some ten times as fast as it writes one, so a draft sees more of its distributions in the same
time; they stand behind other people's words, though, and not behind the target's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.prompt import encode_prompt
from fsd_core.tasks.word_problems import worked
from fsd_core.training.distillation import TOP_TOKENS, TrainingText, save_texts
from fsd_core.training.prompts import dolly, instruction, json_lines, mbpp, named_if_missing, prose

TOKENS_AT_ONCE = 4096
"""that one forward reads; their float32 logits take 0.8 GB at a vocabulary of 50,000"""


def existing_texts(data: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Questions and their answers, each once, in an order of the seed alone.

    GSM8K's solutions, Dolly's answers, MBPP's programs, and stories and passages of WikiText that go on from their
    beginning. ``data``: as for ``prompts.training_prompts``; raises ``ModelUnavailable`` if a file is missing.
    """
    with named_if_missing():
        sums = json_lines(data / "gsm8k" / "train.jsonl")[::3]  # or they would be two thirds of all
        found = [(row["question"], worked(row)) for row in sums]
        found += [(instruction(row), row["output"].strip()) for row in dolly(data)]
        found += [(question, f"```python\n{code.strip()}\n```") for question, code in mbpp(data)]
        found += [_continued(text) for text in map(_as_written, prose(data)) if len(text) > 200]
    random.Random(seed).shuffle(found)
    return iter([(question, answer) for question, answer in found if answer])


def _continued(text: str) -> tuple[str, str]:
    """The first sentence or so as what is asked for, the rest as the answer."""
    end = text.find(". ", 40, 160)
    cut = end + 1 if end >= 0 else 100
    return f"Continue this text: {text[:cut]}", text[cut:].strip()


def _as_written(text: str) -> str:
    """A passage of WikiText without the spaces that its tokenisation put before marks."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    return re.sub(r" ([,.;:!?%)]|'s\b|n't\b)", r"\1", text).replace("( ", "(").strip()


@torch.inference_mode()
def read(
    target: LanguageModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]], layers: tuple[int, ...] = ()
) -> list[TrainingText]:
    """Token ids of prompts and answers, read side by side.

    layers: whose states are kept, as ``AuxHiddenStates`` counts them.
    """
    whole = [torch.tensor([*prompt, *answer]) for prompt, answer in texts]
    width = max(map(len, whole)) - 1  # nothing is predicted behind the last token
    tokens = torch.zeros(len(whole), width, dtype=torch.long)
    for row, text in enumerate(whole):
        tokens[row, : len(text) - 1] = text[:-1]
    aux = AuxHiddenStates(layers) if layers else None
    logits = target.forward(tokens, target.new_cache(width, len(whole)), aux_hidden_states=aux)  # [B,width,V]
    found = []
    for row, (text, (prompt, _)) in enumerate(zip(whole, texts, strict=True)):
        log_p, top = logits[row, len(prompt) - 1 : len(text) - 1].log_softmax(-1).topk(TOP_TOKENS)
        states = None if aux is None else aux.states[row, : len(text) - 1].bfloat16()
        found.append(TrainingText(text.int(), len(prompt), top.int(), log_p.half(), states))
    return found


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
    """Reads up to ``count`` texts, the first ``limit`` tokens of each answer, into files under ``folder`` as
    ``distillation.write_texts`` makes them; those that are there already are not read again."""
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
            pairs, some = pairs[:-rows], pairs[-rows:]
            read_so_far += read(target, some, layers)
        save_texts(read_so_far, file)
        report({"file": groups, "rows": len(read_so_far), "tokens": sum(len(text.top) for text in read_so_far)})
