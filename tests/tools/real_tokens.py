"""A run whose tokens are real ones, of a tokenizer made here, so that a page can show them one by one."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.evaluation.aggregate import summarise
from fsd_core.storage.records import GenerationRecord
from fsd_core.storage.repository import Repository

HOSTILE = "<img src=x onerror=alert(1)> ${alert(1)} {{7*7}} `ls` é🙂"
TEXTS = (
    " First, 4 * 6 = 24. Then 24 + 7 = 31. So the answer is 31.\n#### 31",
    f" {HOSTILE}\n#### 5",
)


def save_tokenizer(folder: Path) -> Tokenizer:
    """A byte-level tokenizer in the shape of a pair's folder, with nothing else in it that a model needs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS[:1] * 9, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    for role in ("target", "draft"):
        (folder / role).mkdir(parents=True, exist_ok=True)
        (folder / role / "config.json").write_text(json.dumps({}))
        tokenizer.save(str(folder / role / "tokenizer.json"))
    return tokenizer


def add_run(repository: Repository, folder: Path) -> str:
    """A finished run of two prompts on the pair in ``folder``, the second one hostile; returns its id."""
    tokenizer = save_tokenizer(folder)
    setting = SettingConfig(pair=f"path:{folder}", decoding=DecodingConfig())
    run = repository.create_run(RunConfig(setting=setting, limit=len(TEXTS)))
    repository.start_run(run, {"device": "cpu", "versions": {"torch": "2.13.0"}})
    generations = [_generation(i, text, tokenizer.encode(text).ids) for i, text in enumerate(TEXTS)]
    for generation in generations:
        repository.record_generation(run, generation)
    repository.finish_run(run, summarise(generations, (g.records for g in generations)))
    return run


def _generation(position: int, text: str, ids: list[int]) -> GenerationRecord:
    rounds = [_round(ids[i : i + 6], i // 6) for i in range(0, len(ids), 6)]
    return GenerationRecord(
        position=position, example_id=f"arithmetic-{position}", prompt=f"Question: {HOSTILE}\nAnswer:",
        reference="31", text=text, answer="31" if position == 0 else "5", outcome="wrong" if position else "correct",
        stop_reason="eos", error=None, tokens=len(ids), rounds=len(rounds), drafted=5 * len(rounds),
        accepted=sum(r.accepted for r in rounds), fuzzy=sum(r.kinds.count("lenient") for r in rounds),
        negative_log_likelihood=0.2 * len(ids), seconds=0.01 * len(rounds), time_to_first_token=0.01, records=rounds,
    )  # fmt: skip


def _round(emitted: list[int], number: int) -> RoundRecord:
    """Every other round ends in a bonus token, the others in a correction; the second token is a lenient one."""
    accepted, bonus = len(emitted) - 1, number % 2 == 0 and len(emitted) == 6
    judged = accepted if bonus else accepted + 1
    kinds: list[Kind] = ["strict" if i != 1 else "lenient" for i in range(accepted)]
    return RoundRecord(
        drafted=tuple(emitted[:accepted]) + (() if bonus else (40,)), accepted=accepted, emitted=tuple(emitted),
        kinds=(*kinds, "bonus" if bonus else "correction"),
        divergence=tuple(0.004 + 0.02 * i for i in range(judged)),
        target_probability=tuple(0.91 - 0.1 * i for i in range(judged)),
        draft_probability=tuple(0.72 - 0.1 * i for i in range(judged)),
        emitted_probability=(0.83,) * len(emitted), seconds=0.01,
    )  # fmt: skip
