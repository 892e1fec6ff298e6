"""Check of a pair before it is loaded: where its models are, what they need, whether they fit.

Configurations, headers of weights and tokenizers are read, which takes little time. No torch: the pages read this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fsd_core.errors import FsdError, ModelUnavailable
from fsd_core.models import config_facts
from fsd_core.models.hub_offers import HubUnreachable, offered
from fsd_core.models.json_files import read_object
from fsd_core.models.local_models import obtained, remembered_size
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.models.tokenizer_files import TOKENIZER, differing_tokens, tokenizer_folder
from fsd_core.models.weight_files import folder_fault, loaded_bytes, stored_numbers, weight_files

HERE, TO_FETCH, TOO_LARGE, UNUSABLE = "here", "to fetch", "too large for this machine", "cannot be used"
_OWNER_KEY = "embedding_of"  # of a draft on its target's embedding, which has no tokenizer of its own
_MARGIN, _OVERHEAD = 1.1, 5e8

CPU = "cpu"


class DeviceMemory(NamedTuple):
    """A device by torch's name for it, such as ``cuda``, and the bytes that it has in all."""

    device: str
    total: int

    @property
    def on_cpu(self) -> bool:
        return self.device == CPU


AskHub = Callable[[HubModel], int]
"""the bytes that a model takes at the hub; raises ``ModelUnavailable``"""


@dataclass
class PairCheck:
    """Result of a check."""

    facts: list[str] = field(default_factory=list)
    """a sentence on each model"""
    notes: list[str] = field(default_factory=list)
    """sentences that a user should read; the pair can be used"""
    problems: list[str] = field(default_factory=list)
    """why it cannot be used"""
    to_fetch: int = 0
    """bytes"""
    memory: int = 0
    """bytes that the models which are here take at least, once loaded"""
    fits: bool = True
    """whether the memory is enough"""
    missing: bool = False
    """whether a model has to be fetched"""
    unsized: bool = False
    """whether one of these has an unknown size"""

    @property
    def badge(self) -> str:
        """The state of the pair in a few words."""
        if self.problems:
            return UNUSABLE
        if not self.fits:
            return TOO_LARGE
        if self.missing:
            return f"{TO_FETCH}, {size(self.to_fetch)}" if self.to_fetch and not self.unsized else TO_FETCH
        return HERE


def size(bytes_: float) -> str:
    """Return a size such as ``2.9 GB``."""
    return f"{bytes_ / 1e9:.1f} GB" if bytes_ >= 1e9 else f"{max(bytes_ / 1e6, 0.1):.1f} MB"


def check_pair(spec: PairSpec, memory: DeviceMemory, ask_hub: AskHub = lambda model: offered(model).size) -> PairCheck:
    """Check a pair. ``memory``: of the device that it is to be loaded on."""
    found = PairCheck()
    folders: dict[str, Path] = {}
    for role, model in models_by_role(spec):
        folder = obtained(model)
        if folder is None and isinstance(model, HubModel):
            _check_offer(role, model, ask_hub, found)
        elif folder is not None:
            folders[role] = folder
            _check_folder(role, folder, spec.dtype, memory.on_cpu, found)
    configs = {role: read_object(folder / "config.json") for role, folder in folders.items()}
    if not found.problems:
        found.problems += _conflicts(folders, configs)
        found.notes += _short_draft(configs)
    found.notes.append(f"It can draft with {', '.join(_drafters(spec))}.")
    if spec.dtype != "auto":
        found.notes.append(f"It is loaded as {spec.dtype}, unless a setting names another dtype.")
    found.fits = _MARGIN * found.memory + _OVERHEAD <= memory.total
    if not found.fits:
        holder = "this machine" if memory.on_cpu else f"the worker's device ({memory.device})"
        found.notes.append(
            f"Its weights take about {size(found.memory)} in memory, and {holder} has {size(memory.total)}: choose "
            "smaller models, or run the worker on a larger machine."
        )
    return found


def check_name(name: str, memory: DeviceMemory) -> PairCheck:
    """Check a pair by its name, without asking the hub. ``memory``: as :func:`check_pair` takes it."""
    try:
        return check_pair(get_pair(name), memory, remembered_size)
    except FsdError as error:
        return PairCheck(problems=[str(error)])


def badge_of(name: str, memory: DeviceMemory) -> str:
    """Return the state of a pair in a few words, as :func:`check_name` finds it."""
    return check_name(name, memory).badge


def models_by_role(spec: PairSpec) -> Iterator[tuple[str, Path | HubModel]]:
    models = {
        "target": spec.target, "draft": spec.draft, "head": spec.head, "adapter": spec.adapter,
        "draft adapter": spec.draft_adapter,
    }  # fmt: skip
    yield from ((role, model) for role, model in models.items() if model is not None)


def _check_offer(role: str, model: HubModel, ask_hub: AskHub, found: PairCheck) -> None:
    found.missing = True
    try:
        bytes_ = ask_hub(model)
    except HubUnreachable as error:
        found.notes.append(str(error))
        found.unsized = True
        return
    except ModelUnavailable as error:
        found.problems.append(f"The {role}: {error}")
        return
    found.unsized |= not bytes_
    found.to_fetch += bytes_
    found.memory += bytes_
    found.facts.append(f"The {role} {model.repo} has to be fetched: {size(bytes_)}.")


def _check_folder(role: str, folder: Path, dtype: str, on_cpu: bool, found: PairCheck) -> None:
    config = read_object(folder / ("adapter_config.json" if "adapter" in role else "config.json"))
    if fault := folder_fault(role, folder):
        found.problems.append(f"The {role} in {folder} {fault}")
        return
    files = weight_files(folder)
    if "auto_map" in config:
        found.notes.append(f"The {role} names code of its own, which is never run here.")
    if "quantization_config" in config:
        found.notes.append(f"The {role} is quantised: it loads if transformers and the package that it names can.")
    bytes_ = sum(file.stat().st_size for file in files)
    found.memory += sum(loaded_bytes(file, dtype) for file in files) * (
        2 if on_cpu and config.get("model_type") == "llama" and role in ("target", "draft") else 1
    )
    if any(map(stored_numbers, files)):
        kind = config.get("model_type") or config.get("peft_type") or "unnamed"
        name = role if folder.name == role else f"{role} {folder.name}"
        found.facts.append(f"The {name} is here: {kind}, {size(bytes_)}.")


def _conflicts(folders: Mapping[str, Path], configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield why two models cannot decode together."""
    if "target" not in folders:
        return
    if "draft" in folders and _OWNER_KEY not in configs["draft"]:
        target, draft = (
            tokenizer_folder(folders[role], folders.get(adapter))
            for role, adapter in (("target", "adapter"), ("draft", "draft adapter"))
        )
        differing = differing_tokens(target / TOKENIZER, draft / TOKENIZER)
        if differing:
            yield (
                f"The two models do not share a tokenizer: {differing:,} tokens differ. Speculation compares them "
                "token by token, so choose a draft of the target's family."
            )
    target, head = (config_facts.number(configs.get(role, {}), "hidden_size") for role in ("target", "head"))
    reads_target = not {"target_hidden_size", "transformer_layer_config"} & set(configs.get("head", {}))
    if reads_target and head is not None and target is not None and head != target:
        yield f"The head is {head} wide and the target {target}: choose the head that was trained for this target."


def _short_draft(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    both = [configs.get(role, {}) for role in ("target", "draft")]
    if any(config_facts.number(config, *config_facts.CONTEXTS) is None for config in both):
        return  # the family's, which its class knows
    target, draft = map(config_facts.context, both)
    if draft < target:
        yield f"The draft reads {draft:,} tokens and the target {target:,}: nothing is drafted beyond {draft:,}."


def _drafters(spec: PairSpec) -> list[str]:
    return (
        ["the draft model"] * (spec.draft is not None)
        + ["the EAGLE head"] * (spec.head is not None)
        + ["copies of the text"]
    )
