"""Trains a LoRA adapter that teaches a target word problems: ``python -m fsd_core train adapter --out FOLDER``.

Hu et al. 2021 (arXiv 2106.09685), with PEFT. The problems are those of the training split of GSM8K and generated ones
(:mod:`fsd_core.tasks.generators.one_step_problems`, :mod:`fsd_core.tasks.generators.long_problems`), never those of a
test split or of the task ``short-problems``. Their prompts are those of the tasks without examples.
"""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.local_models import origin
from fsd_core.models.model_pairs import TARGETS
from fsd_core.models.prompt import encode_prompt
from fsd_core.tasks.generators import long_problems, one_step_problems
from fsd_core.tasks.short_problems import held_out_questions
from fsd_core.tasks.word_problems import worked, zero_shot_prompt
from fsd_core.training.loop import Schedule, learning, mixed_precision, on_device, train

HELD_OUT_PROBLEMS = 64  # problems for evaluation only
_LONGEST = 320  # tokens; the few longer problems are left out


@dataclass(frozen=True)
class AdapterPlan:
    """Size of the adapter, and its schedule."""

    schedule: Schedule
    rank: int = 16
    mix: Mapping[str, float] = field(default_factory=lambda: {"short": 0.65, "arithmetic": 0.15, "gsm8k": 0.2})
    """shares of the problems: generated with one or two steps, generated with more, from GSM8K's training split"""


ADAPTER_PLAN = AdapterPlan(Schedule(steps=280, batch=16, adamw_lr=1e-3, muon_lr=None, every=50))

Row = tuple[list[int], list[int]]
"""token ids of the prompt of a problem, and of its solution with the end token"""
Batch = tuple[Tensor, Tensor]
"""tokens int64 [B,T]; answers bool [B,T], the tokens to be learnt"""


def problems(data: Path, mix: Mapping[str, float], seed: int) -> Iterator[tuple[str, str]]:
    """Yield problems and worked solutions without end, by shares of ``short``, ``arithmetic`` and ``gsm8k``.

    The last is read from ``gsm8k/train.jsonl`` in ``data``. Raises ``ModelUnavailable`` if that file is missing.
    """
    file = data / "gsm8k" / "train.jsonl"
    if not file.is_file():
        raise ModelUnavailable(f"The file {file} is missing: set FSD_DATA_DIR to the folder that has gsm8k.")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    shuffle, deck = random.Random(seed), []
    generated = {
        "short": one_step_problems.stream(seed, without=held_out_questions()),
        "arithmetic": long_problems.stream(seed),
    }
    while True:
        (kind,) = shuffle.choices(list(mix), list(mix.values()))
        if kind in generated:
            problem, solution = next(generated[kind])
            yield zero_shot_prompt(problem.question), solution.strip()
            continue
        deck = deck or shuffle.sample(rows, len(rows))
        row = deck.pop()
        yield zero_shot_prompt(row["question"]), worked(row)


def encoded(tokenizer: PreTrainedTokenizerBase, source: Iterator[tuple[str, str]]) -> Iterator[Row]:
    """Yield problems as token ids. Those that are too long are left out."""
    for question, solution in source:
        answer = [*tokenizer(solution, add_special_tokens=False)["input_ids"], cast(int, tokenizer.eos_token_id)]
        prompt = encode_prompt(tokenizer, question)
        if len(prompt) + len(answer) <= _LONGEST:
            yield prompt, answer


def batches(rows: Iterator[Row], size: int, seed: int) -> Iterator[Batch]:
    """Yield batches without end, problems of similar length together."""
    shuffle = random.Random(seed)
    while True:
        chunk = sorted(islice(rows, 16 * size), key=lambda row: len(row[0]) + len(row[1]))
        groups = [chunk[i : i + size] for i in range(0, len(chunk), size)]
        shuffle.shuffle(groups)
        yield from map(stack, groups)


def stack(rows: list[Row]) -> Batch:
    """Return rows padded on the right, which a causal model does not see."""
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    tokens, answers = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.bool)
    for i, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        tokens[i, :end] = torch.tensor(prompt + answer)
        answers[i, len(prompt) : end] = True
    return tokens, answers


def answer_loss(model: PreTrainedModel | PeftModel, batch: Batch) -> Tensor:
    """Return the mean next-token cross-entropy over the tokens of the solutions, in nats."""
    tokens, answers = (part.to(model.device) for part in batch)
    llama: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    with mixed_precision(model.device):
        hidden = llama.model(tokens, use_cache=False).last_hidden_state[:, :-1]  # [B,T-1,H]
        logits = llama.lm_head(hidden[answers[:, 1:]])  # [N,V]
    return torch.nn.functional.cross_entropy(logits.float(), tokens[:, 1:][answers[:, 1:]])


def main(
    target: str,
    out: Path,
    data: Path,
    plan: AdapterPlan = ADAPTER_PLAN,
    seed: int = 0,
    report: Callable[[dict], None] = print,
) -> dict:
    """Train an adapter into ``out/adapter`` with its log and return its figures. Resumes an interrupted training.

    Raises ``UnknownName`` for a target without a plan, ``ModelUnavailable`` if it or the problems cannot be had.
    """
    if target not in TARGETS:
        raise UnknownName(f"No adapter can be trained for '{target}': expected one of {', '.join(TARGETS)}.")
    source = problems(data, plan.mix, seed)
    first = next(source)  # fails before a model is loaded if there is no data
    folder = obtain(TARGETS[target])
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    base = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    base = on_device(base, torch.device("cpu"))
    torch.manual_seed(seed)
    lora = LoraConfig(r=plan.rank, lora_alpha=2 * plan.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, lora)
    rows = encoded(tokenizer, chain([first], source))
    watched = list(islice(rows, HELD_OUT_PROBLEMS))
    held_out, rows = stack(watched), (row for row in rows if row not in watched)

    @torch.inference_mode()
    def watch() -> dict[str, float]:
        return {"held_out_loss": round(float(answer_loss(model, held_out)), 4)}

    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "adapter.checkpoint"
    log = train(model, plan.schedule, batches(rows, plan.schedule.batch, seed), answer_loss, checkpoint, watch, report)
    figures = {
        "target": target,
        "origin": origin(TARGETS[target]),
        "plan": asdict(plan),
        "seed": seed,
        "parameters": sum(p.numel() for p in learning(model).values()),
        **watch(),
        "seconds": log[-1]["seconds"],
        "machine": f"{platform.machine()}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}",
    }
    for parameter in learning(model).values():
        parameter.data = parameter.data.bfloat16()
    model.save_pretrained(out / "adapter")
    config_file = out / "adapter" / "adapter_config.json"  # holds the model's path on this machine
    name = getattr(TARGETS[target], "repo", target)
    config_file.write_text(
        json.dumps(json.loads(config_file.read_text()) | {"base_model_name_or_path": name}, indent=1) + "\n"
    )
    (out / "adapter" / "README.md").unlink(missing_ok=True)  # an empty template
    (out / "adapter" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures
