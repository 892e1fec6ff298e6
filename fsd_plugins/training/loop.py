"""A training loop for small models, and the targets that it trains for."""

from __future__ import annotations

import json
import platform
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedModel

from fsd_core.config.model_names import MODELS
from fsd_core.errors import IncompatibleModels, ModelUnavailable, TrackingUnavailable, UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.loading import cpu_has_bfloat16, gpu_name
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.sources import HubModel, read_object
from fsd_core.system import whole_file
from fsd_core.tracking import connect, reached
from fsd_plugins.training.plans import TARGETS, Plan, Schedule

Model = Path | HubModel
"""a folder, or a model of the hub"""
CPU = torch.device("cpu")


def is_own(target: str) -> bool:
    """Return whether a name, ``models:target=…``, says which model is meant."""
    return target.startswith(MODELS)


def check_target(target: str, known: Collection[str], what: str) -> None:
    """Raise ``UnknownName`` for a target that is neither among the ``known`` nor one's own."""
    if target not in known and not is_own(target):
        raise UnknownName(
            f"No {what} can be trained for '{target}': expected one of {', '.join(known)}, or {MODELS}target= and the "
            "folder or id of a Llama."
        )


def target_of(target: str) -> Model:
    """Return the model of a name that a draft is trained for. Raises ``UnknownName``, and as ``get_pair`` does."""
    check_target(target, TARGETS, "draft")
    return get_pair(target).target if is_own(target) else TARGETS[target]


def read_model(folder: Path) -> Any:
    """Return a model of a folder, as it is stored there."""
    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)


def llama_of(model: Model) -> Path:
    """Return the folder of a model, fetched if it is missing. Raises ``IncompatibleModels`` for what is no Llama, whose
    layers a draft cannot be made of, and as ``obtain`` does."""
    folder = obtain(model)
    kind = read_object(folder / "config.json").get("model_type")
    if kind != "llama":
        raise IncompatibleModels(
            f"{folder.name} is of the architecture {kind}: drafts and heads are trained for Llamas (model_type llama) "
            "alone. Choose one, or draft by copying (ngram, suffix), which needs no training."
        )
    return folder


@contextmanager
def curves(uri: str, name: str, warn: Callable[[str], None]) -> Iterator[Callable[[dict], None]]:
    """Open an MLflow run and yield a function that takes the rows of a training log, each number at its ``step``.

    The run ends as finished, or as failed if the block raises. An unavailable MLflow never stops a training: ``warn``
    is called once and later rows are dropped.
    """
    lost = False

    @contextmanager
    def told() -> Iterator[None]:
        nonlocal lost
        try:
            with reached(uri):
                yield
        except TrackingUnavailable as error:
            if not lost:
                warn(f"The training continues without curves. {error}")
            lost = True

    run_id = ""
    with told():
        client, experiment = connect(uri)
        run_id = client.create_run(experiment, run_name=name, tags={"fsd.kind": "training"}).info.run_id

    def log(row: dict) -> None:
        if lost or "step" not in row:
            return
        from mlflow.entities import Metric

        moment = int(time.time() * 1000)
        numbers = {key: value for key, value in row.items() if key != "step" and isinstance(value, int | float)}
        with told():
            client.log_batch(run_id, [Metric(key, float(v), moment, row["step"]) for key, v in numbers.items()])

    status = "FAILED"
    try:
        yield log
        status = "FINISHED"
    finally:
        if run_id:
            with told():
                client.set_terminated(run_id, status)


B = TypeVar("B")
M = TypeVar("M", bound=nn.Module)
REPORT_EVERY = 25  # steps


def learning(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizers(model: nn.Module, schedule: Schedule) -> list[tuple[torch.optim.Optimizer, float]]:
    """Return the optimizers, each with its peak rate: Muon (Jordan et al. 2024) for matrices between hidden states,
    AdamW for embeddings and norms."""
    parameters, optimizers = learning(model), []
    # In the model's order, because a checkpoint identifies a matrix by its index, also in another process.
    other = ("embed", "kernel")  # taps of a convolution are no matrix
    hidden = [name for name, p in parameters.items() if p.ndim == 2 and not any(part in name for part in other)]
    if schedule.muon_lr is not None:
        muon = torch.optim.Muon((parameters.pop(name) for name in hidden), lr=schedule.muon_lr, weight_decay=0.01)
        optimizers.append((muon, schedule.muon_lr))
    adamw = torch.optim.AdamW(parameters.values(), lr=schedule.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0)
    return [*optimizers, (adamw, schedule.adamw_lr)]


def mixed_precision(device: torch.device) -> torch.autocast:
    """Return a context in which matrices are multiplied in bfloat16 where the device has instructions for it. A
    processor without them takes five times as long as in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu" or cpu_has_bfloat16())


def on_device(module: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Return a model on a device, in float32 on a processor without bfloat16."""
    slow = device.type == "cpu" and not cpu_has_bfloat16()
    return cast(Any, module).to(device, torch.float32 if slow else module.dtype)


Row = tuple[list[int], list[int]]
"""token ids of a problem's prompt, and of its solution with the end token"""
Batch = tuple[Tensor, Tensor]
"""tokens int64 [B,T]; weights float32 [B,T], 0 for padding"""


def pad_rows(rows: Sequence[Row], prompt_weight: float = 0.0, pad: int = 0) -> Batch:
    """Return rows padded on the right, which a causal model does not see. A token of a solution weighs 1."""
    tokens = [torch.tensor([*prompt, *solution]) for prompt, solution in rows]
    weights = [torch.tensor([prompt_weight] * len(prompt) + [1.0] * len(solution)) for prompt, solution in rows]
    return pad_sequence(tokens, batch_first=True, padding_value=pad), pad_sequence(weights, batch_first=True)


def alike(rows: Iterator[Row], size: int, batches: int, seed: int) -> Iterator[list[Row]]:
    """Yield groups of ``size`` rows without end, of similar length within the next so many ``batches``."""
    shuffle = random.Random(seed)
    while True:
        chunk = sorted(islice(rows, batches * size), key=lambda row: len(row[0]) + len(row[1]))
        groups = [chunk[i : i + size] for i in range(0, len(chunk), size)]
        shuffle.shuffle(groups)
        yield from groups


def weighted_loss(model: Any, batch: Batch) -> Tensor:
    """Return the mean next-token cross-entropy in nats, each token by its weight. Logits are of tokens that count."""
    tokens, weights = (part.to(model.device) for part in batch)
    llama: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    counts = weights[:, 1:] > 0
    with mixed_precision(model.device):
        hidden = llama.model(tokens[:, :-1], use_cache=False).last_hidden_state  # [B,T-1,H]
        logits = llama.lm_head(hidden[counts])  # [N,V]
    losses = nn.functional.cross_entropy(logits.float(), tokens[:, 1:][counts], reduction="none")
    counted = weights[:, 1:][counts]
    return (losses * counted).sum() / counted.sum()


def train(
    model: M,
    schedule: Schedule,
    batches: Iterator[B],
    loss_of: Callable[[M, B], Tensor],
    checkpoint: Path,
    evaluate: Callable[[], dict[str, float]],
    report: Callable[[dict], None],
) -> list[dict]:
    """Train in place and return the log: step, loss, seconds, and after each evaluation its figures.

    A checkpoint holds what is not frozen. If one exists, training goes on from it with the batches that come after. It
    is removed at the end.
    """
    optimizers = make_optimizers(model, schedule)
    start, log = 0, []
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"], strict=False)
        for (optimizer, _), state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        start, log = saved["step"], saved["log"]
    before = log[-1]["seconds"] if log else 0.0
    started = time.perf_counter()
    model.train()
    for step, batch in zip(range(start, schedule.steps), islice(batches, start, None), strict=False):
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * schedule.factor(step)
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        done = step + 1
        if done % REPORT_EVERY == 0 or done == schedule.steps:
            row = {
                "step": done,
                "loss": round(loss.item(), 4),
                "seconds": round(before + time.perf_counter() - started, 1),
            }
            if done % schedule.every == 0:
                model.eval()
                row |= evaluate()
                model.train()
            log.append(row)
            report(row)
        if done % schedule.every == 0:
            states = [optimizer.state_dict() for optimizer, _ in optimizers]
            state = {"model": learning(model), "optimizers": states, "step": done, "log": log}
            with whole_file(checkpoint) as partial:
                torch.save(state, partial)
    model.eval()
    checkpoint.unlink(missing_ok=True)
    return log


def make(
    folder: Path,
    model: M,
    plan: Plan,
    seed: int,
    batches: Iterator[B],
    loss_of: Callable[[M, B], Tensor],
    watch: Callable[[], dict[str, float]],
    save: Callable[[Path], object],
    report: Callable[[dict], None],
    about: dict[str, Any],
    judge: Callable[[], dict[str, Any]] | None = None,
    device: torch.device = CPU,
) -> dict[str, Any]:
    """Train a model, :func:`save` it into ``folder`` with its log, and return its figures.

    The checkpoint lies beside ``folder``. ``about`` are facts that are known before, ``judge`` those that the trained
    model shows, by default what is watched.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = train(model, plan.schedule, batches, loss_of, folder.with_suffix(".checkpoint"), watch, report)
    on = gpu_name(str(device)) or f"{platform.machine()}, {torch.get_num_threads()} CPU threads"
    figures = about | {"plan": asdict(plan), "seed": seed} | (judge or watch)()
    figures |= {"seconds": log[-1]["seconds"], "machine": f"{on}, torch {torch.__version__}"}
    save(folder)
    (folder / "training.json").write_text(json.dumps({**figures, "log": log}, indent=1) + "\n")
    return figures


def earlier(folder: Path) -> dict:
    """Return how an earlier model was trained, from its ``training.json``: texts, tokens, seconds and steps.

    ``measured`` has the rows of its card, if these were stored. Raises ``ModelUnavailable`` if there is no such file.
    """
    if not (file := folder / "training.json").is_file():
        raise ModelUnavailable(f"{folder} holds no model to train on: expected a folder with {file.name} and weights.")
    data = json.loads(file.read_text())
    facts = {key: data[key] for key in ("texts", "answer_tokens", "seconds")} | {"steps": data["log"][-1]["step"]}
    if (measured := folder / "measured.json").is_file():
        facts["measured"] = json.loads(measured.read_text())["rows"]
    return facts
