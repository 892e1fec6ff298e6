"""Trains a draft for a large target, or an adapter of the target: ``train draft`` and ``train adapter``.

Trains a LoRA adapter that teaches a target word problems: ``python -m fsd_core train adapter --out FOLDER``.

Hu et al. 2021 (arXiv 2106.09685), with PEFT. The problems are those of the training split of GSM8K and generated ones
(:mod:`fsd_core.tasks.generators`), never those of a
test split or of the task ``short-problems``. Their prompts are those of the tasks without examples.

Trains a draft for a large target: ``python -m fsd_core train draft --target smollm2-135m --out FOLDER``.

The draft is a few of the target's layers between the target's own embedding and head. They learn to do the work of all
layers, on texts that the target wrote to questions of training splits and on existing texts that it read (Hinton et al.
2015; layers kept as in DistilBERT, arXiv 1910.01108). The head covers only the commonest tokens
(``models.reduced_vocab``).
"""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, NotEnough, UnknownName
from fsd_core.models import draft_weights
from fsd_core.models.hub import obtain
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import adapted, resolve_device
from fsd_core.models.model_pairs import MODEL_PAIRS, TARGETS
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.sources import origin
from fsd_core.tasks import generators
from fsd_core.tasks.word_problems import held_out_short_questions, worked, zero_shot_prompt
from fsd_core.training.loop import (
    Model,
    Schedule,
    earlier,
    is_own,
    learning,
    llama_of,
    machine,
    mixed_precision,
    on_device,
    target_of,
    train,
    writing,
)
from fsd_core.training.target_texts import (
    SAMPLE,
    TOP_TOKENS,
    Source,
    TrainingText,
    agreement,
    batches,
    common_tokens,
    cross_entropy,
    existing_texts,
    own_prompts,
    read_anew,
    read_existing,
    read_texts,
    reread,
    share_of_others,
    stack,
    training_prompts,
    write_texts,
)

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


def adapter_problems(data: Path, mix: Mapping[str, float], seed: int) -> Iterator[tuple[str, str]]:
    """Yield problems and worked solutions without end, by shares of ``short``, ``arithmetic`` and ``gsm8k``.

    The last is read from ``gsm8k/train.jsonl`` in ``data``. Raises ``ModelUnavailable`` if that file is missing.
    """
    file = data / "gsm8k" / "train.jsonl"
    if not file.is_file():
        raise ModelUnavailable(f"The file {file} is missing: set FSD_DATA_DIR to the folder that has gsm8k.")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    shuffle, deck = random.Random(seed), []
    generated = {
        "short": generators.stream_short(seed, without=held_out_short_questions()),
        "arithmetic": generators.stream_long(seed),
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


def encode_texts(tokenizer: PreTrainedTokenizerBase, source: Iterator[tuple[str, str]]) -> Iterator[Row]:
    """Yield problems as token ids. Those that are too long are left out."""
    for question, solution in source:
        answer = [*tokenizer(solution, add_special_tokens=False)["input_ids"], cast(int, tokenizer.eos_token_id)]
        prompt = encode_prompt(tokenizer, question)
        if len(prompt) + len(answer) <= _LONGEST:
            yield prompt, answer


def adapter_batches(rows: Iterator[Row], size: int, seed: int) -> Iterator[Batch]:
    """Yield batches without end, problems of similar length together."""
    shuffle = random.Random(seed)
    while True:
        chunk = sorted(islice(rows, 16 * size), key=lambda row: len(row[0]) + len(row[1]))
        groups = [chunk[i : i + size] for i in range(0, len(chunk), size)]
        shuffle.shuffle(groups)
        yield from map(adapter_stack, groups)


def adapter_stack(rows: list[Row]) -> Batch:
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


def train_adapter(
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
    source = adapter_problems(data, plan.mix, seed)
    first = next(source)  # fails before a model is loaded if there is no data
    folder = obtain(TARGETS[target])
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    base = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    base = on_device(base, torch.device("cpu"))
    torch.manual_seed(seed)
    lora = LoraConfig(r=plan.rank, lora_alpha=2 * plan.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, lora)
    rows = encode_texts(tokenizer, chain([first], source))
    watched = list(islice(rows, HELD_OUT_PROBLEMS))
    held_out, rows = adapter_stack(watched), (row for row in rows if row not in watched)

    @torch.inference_mode()
    def watch() -> dict[str, float]:
        return {"held_out_loss": round(float(answer_loss(model, held_out)), 4)}

    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "adapter.checkpoint"
    log = train(
        model, plan.schedule, adapter_batches(rows, plan.schedule.batch, seed), answer_loss, checkpoint, watch, report
    )
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


Report = Callable[[dict], None]
HELD_OUT_ANSWERS = 64  # texts for evaluation only


@dataclass(frozen=True)
class DraftPlan:
    """Size of the draft and of its training data, and its schedule."""

    schedule: Schedule
    layers: tuple[int, ...] = (0, 1, -1)
    """layers of the target that initialise the draft"""
    head_tokens: int = 16_384
    """tokens that its head covers, or all that there are"""
    texts: int = 2_000
    """texts that the target writes"""
    longest_answer: int = 160
    existing: int = 6_000
    """texts that it reads"""
    longest_read: int = 200
    """answer tokens of these"""
    problems: int = 768
    """texts that the target writes with each shipped adapter for it, to problems like those the adapter learnt from"""
    own_prompts: int = 0
    """of ``texts``, those to prompts that the target writes itself"""
    side_by_side: int = 96
    """texts that are written at once"""
    anew: bool = False
    """whether the target reads each batch anew (``training.rereading``); existing texts are then left out"""


DRAFT_PLAN = DraftPlan(Schedule(steps=1100, batch=16, adamw_lr=3e-3, muon_lr=0.02, every=100))


def plan_for(
    target: str,
    *,
    steps: int | None = None,
    batch: int | None = None,
    texts: int | None = None,
    existing: int | None = None,
    problems: int | None = None,
    own_prompts: int | None = None,
    device: str = "cpu",
) -> DraftPlan:
    """Return the plan of the shipped draft for a target, with the given changes. A target of one's own reads no
    existing texts, unless they are asked for. Raises ``InvalidSetting`` for a device that is not here."""
    plan = replace(DRAFT_PLAN, existing=0) if is_own(target) else DRAFT_PLAN
    return replace(
        plan,
        schedule=replace(plan.schedule, steps=steps or plan.schedule.steps, batch=batch or plan.schedule.batch),
        existing=plan.existing if existing is None else existing,
        problems=problems or plan.problems,
        **writing(target, texts or plan.texts, own_prompts, device),
    )


def build_draft(
    plan: DraftPlan, target: PreTrainedModel, name: str, texts: list[TrainingText], held_out: list[TrainingText]
) -> LlamaForCausalLM:
    """Return an untrained draft, with a head over the tokens that the target likes in ``texts``.

    ``held_out`` shows how much it likes other tokens.
    """
    vocabulary, ends = target.config.vocab_size, LanguageModel(target, lean=False).eos_tokens
    tokens = common_tokens(texts, min(plan.head_tokens, vocabulary), vocabulary, ends)
    rest_share = round(max(share_of_others(held_out, tokens, vocabulary), 1e-5), 5)
    config = draft_weights.draft_config(target, name, len(plan.layers), len(tokens), rest_share)
    draft = draft_weights.assemble(config, target, tokens)
    for layer, index in zip(draft.model.layers, plan.layers, strict=True):
        layer.load_state_dict(target.model.layers[index].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft


def write_all(
    target: Model, folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, device: torch.device, report: Report
) -> list[Source]:
    """Write the target's texts, alone and with its adapters, and return them, each with the model that wrote it. Those
    of the target alone come first."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    problems = (question for question, _ in adapter_problems(data, ADAPTER_PLAN.mix, seed + 1))
    asked = training_prompts(data, seed) if plan.own_prompts < plan.texts else iter(())
    jobs = [("texts", None, asked, plan.texts)]
    jobs += [
        (f"texts-{spec.name}", spec.adapter, problems, plan.problems)
        for spec in MODEL_PAIRS.values()
        if spec.adapter is not None and spec.target == target
    ]
    sources: list[Source] = []
    for name, adapter, questions, count in jobs:
        module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        module = on_device(module if adapter is None else adapted(module, adapter), device)
        model = LanguageModel(module, static=False)  # a graph is captured for each number of rows, which falls
        if adapter is None:
            own = own_prompts(model, tokenizer, plan.own_prompts, out / "own-prompts.json", plan.side_by_side, seed)
            questions = chain(own, questions)
        write_texts(
            model, tokenizer, questions, out / name, count, plan.longest_answer,
            batch=plan.side_by_side, stored=0 if plan.anew else TOP_TOKENS, report=report,
        )  # fmt: skip
        sources.append((model, read_texts(out / name)))
    return sources


def read_all(folder: Path, out: Path, data: Path, plan: DraftPlan, seed: int, report: Report) -> list[TrainingText]:
    """Return the texts that the target reads."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    model, texts = LanguageModel(on_device(module, torch.device("cpu"))), existing_texts(data, seed)
    read_existing(model, tokenizer, texts, out / "read", plan.existing, plan.longest_read, report=report)
    return read_texts(out / "read")


def main(
    target: str,
    out: Path,
    data: Path,
    plan: DraftPlan = DRAFT_PLAN,
    seed: int = 0,
    report: Report = print,
    start: Path | None = None,
    device: str = "cpu",
) -> dict:
    """Write texts, train on them, save the draft with its log under ``out`` and return its figures.

    ``start``: the folder of an earlier draft to train further. After an interruption, call it again: written texts are
    kept, and training resumes at its checkpoint.

    Raises as :func:`target_of` and :func:`llama_of` do, ``ModelUnavailable`` if the earlier draft or the questions
    cannot be had, and ``InvalidSetting`` for too few texts and for a device that is not here.
    """
    where, source = resolve_device(device), target_of(target)
    before = None if start is None else earlier(start)
    folder = llama_of(source)
    sources = write_all(source, folder, out, data, plan, seed, where, report)
    read = read_all(folder, out, data, plan, seed, report) if plan.existing and not plan.anew else []
    texts = [text for _, written in sources for text in written] + read
    module = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    if len(texts) <= HELD_OUT_ANSWERS:
        raise NotEnough(
            f"Only {len(texts)} texts were written or read, of which {HELD_OUT_ANSWERS} are held out: "
            "ask for more with --texts."
        )
    plan = replace(plan, layers=tuple(range(module.config.num_hidden_layers)[layer] for layer in plan.layers))
    held_out, texts = texts[:HELD_OUT_ANSWERS], texts[HELD_OUT_ANSWERS:]
    batch_size, known = plan.schedule.batch, texts
    if plan.anew:
        (model, first), *others = sources
        sources = [(model, first[HELD_OUT_ANSWERS:]), *others]
        held_out = reread(model, held_out)
        known = [text for model, written in sources for text in reread(model, written[:SAMPLE])]
        taught = map(stack, read_anew(sources, batch_size, seed))
    else:
        taught = batches(texts, batch_size, seed)
    target_model = cast(Any, module).float().to(where)
    draft = (
        build_draft(plan, target_model, target, known, held_out)
        if start is None
        else draft_weights.load(start, target_model)
    )
    log = train(
        draft,
        plan.schedule,
        taught,
        cross_entropy,
        out / "draft.checkpoint",
        lambda: agreement(draft, held_out),
        report,
    )
    figures = {
        "target": target,
        "origin": origin(source),
        "plan": asdict(plan),
        "seed": seed,
        "start": before,
        "own_parameters": sum(p.numel() for p in draft.parameters() if p.requires_grad),
        "share_of_target": round(_parameters_read(draft) / _parameters_read(module), 4),
        "head_covers": round(1 - draft.config.rest_share, 5),
        "texts": len(texts),
        "answer_tokens": sum(len(text.top) for text in texts),
        "texts_read": len(read),
        "answer_tokens_read": sum(len(text.top) for text in read),
        **agreement(draft, held_out),
        "seconds": log[-1]["seconds"],
        "machine": machine(where),
    }
    draft_weights.save(draft, out / "draft")
    (out / "draft" / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures


def _parameters_read(model: PreTrainedModel) -> int:
    """Return the number of parameters that a forward reads: all but the embedding, which costs a row per token."""
    head = cast(Any, model).lm_head.weight.numel()
    return head + sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
