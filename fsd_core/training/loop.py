"""A training loop for small models, and the targets that it trains for."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fsd_core.config.model_names import MODELS
from fsd_core.errors import IncompatibleModels, ModelUnavailable, TrackingUnavailable, UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.loading import cpu_has_bfloat16, gpu_name, resolve_device
from fsd_core.models.model_pairs import TARGETS, get_pair
from fsd_core.models.sources import HubModel, read_object
from fsd_core.system import whole_file
from fsd_core.tracking import connect, reached

Model = Path | HubModel
"""a folder, or a model of the hub"""
_SIDE_BY_SIDE = 1024
"""texts that a GPU writes at once"""


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


def writing(target: str, texts: int, own_prompts: int | None, device: str) -> dict[str, Any]:
    """Return the fields of a plan that say how texts are written.

    ``own_prompts``: ``None`` for none, or for all of a target of one's own. A GPU writes many side by side, and each
    batch is read anew. Raises ``InvalidSetting`` for a device that is not here.
    """
    own = (texts if is_own(target) else 0) if own_prompts is None else own_prompts
    on_gpu = resolve_device(device).type != "cpu"
    return {"texts": texts, "own_prompts": own} | ({"anew": True, "side_by_side": _SIDE_BY_SIDE} if on_gpu else {})


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
    try:
        client, experiment = connect(uri)
        with reached(uri):
            run_id = client.create_run(experiment, run_name=name, tags={"fsd.kind": "training"}).info.run_id
    except TrackingUnavailable as error:
        warn(f"The training continues without curves. {error}")
        yield lambda row: None
        return
    lost = False

    def log(row: dict) -> None:
        nonlocal lost
        if lost or "step" not in row:
            return
        from mlflow.entities import Metric

        moment = int(time.time() * 1000)
        numbers = {key: value for key, value in row.items() if key != "step" and isinstance(value, int | float)}
        try:
            with reached(uri):
                client.log_batch(run_id, [Metric(key, float(v), moment, row["step"]) for key, v in numbers.items()])
        except TrackingUnavailable as error:
            lost = True
            warn(f"The training continues without curves. {error}")

    status = "FAILED"
    try:
        yield log
        status = "FINISHED"
    finally:
        try:
            with reached(uri):
                client.set_terminated(run_id, status)
        except TrackingUnavailable as error:
            warn(f"The training continues without curves. {error}")


B = TypeVar("B")
M = TypeVar("M", bound=nn.Module)
REPORT_EVERY = 25  # steps


@dataclass(frozen=True)
class Schedule:
    """``steps`` batches. Rates rise over 50 steps, stay until half of the steps, then fall linearly to zero."""

    steps: int
    batch: int = 64
    adamw_lr: float = 3e-3
    muon_lr: float | None = 0.02
    """rate of matrices between hidden states; ``None``: AdamW takes these too"""
    every: int = 250
    """steps between two evaluations, each followed by a checkpoint"""

    def factor(self, step: int) -> float:
        """Return the share of the peak rates at a step."""
        return min(1.0, (step + 1) / 50, (self.steps - step) / (0.5 * self.steps))


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


def weighted_loss(model: PreTrainedModel, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean next-token cross-entropy in nats, each token by its weight.

    batch: tokens int64 [B,T], weights [B,T].
    """
    tokens, weights = batch
    with mixed_precision(model.device):
        logits = model(tokens[:, :-1]).logits  # [B,T-1,V]
    losses = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
    counted = weights[:, 1:].flatten()
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


def machine(device: torch.device) -> str:
    """Return what a model is trained on, for its card."""
    on = gpu_name(str(device)) or f"{platform.machine()}, {torch.get_num_threads()} CPU threads"
    return f"{on}, torch {torch.__version__}"


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
