"""Loading a pair: weights from safetensors only, no remote code, tokenizers compared before anything is used."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from fsd_core.config import TemplateConfig
from fsd_core.errors import IncompatibleModels, InsufficientMemory, ModelUnavailable, UnfitModel, UnknownChoice
from fsd_core.models import reduced_vocab
from fsd_core.models.adapters import adapted
from fsd_core.models.eagle import EagleHead
from fsd_core.models.eagle_files import load_head
from fsd_core.models.fingerprints import fingerprint, fingerprints, identity_of
from fsd_core.models.hub import OnProgress, obtain
from fsd_core.models.json_files import check_sizes, read_object
from fsd_core.models.language_model import LanguageModel, vocabulary_of
from fsd_core.models.load_failures import load_failure
from fsd_core.models.load_notes import notes_on
from fsd_core.models.local_models import origin
from fsd_core.models.memory import check_memory
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.model_set import over_one_vocabulary
from fsd_core.models.pair_check import models_by_role
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.specs import PairSpec
from fsd_core.models.split_target import load_split, processes
from fsd_core.models.tokenizer_files import tokenizer_folder
from fsd_core.models.trigrams import TrigramCounts, load_trigrams
from fsd_core.models.vocabularies import check_tokenizers, load_tokenizer
from fsd_core.models.weight_files import folder_fault

logger = logging.getLogger(__name__)
_REDUNDANT = ("rotary_emb.inv_freq", "masked_bias", "attn.bias")
"""ends of the names of tensors that are computed anew"""


@dataclass(frozen=True)
class LoadedPair:
    """A pair ready to decode. Both models return logits over the same vocabulary."""

    spec: PairSpec
    tokenizer: PreTrainedTokenizerBase
    target: LanguageModel
    draft: LanguageModel
    device: str
    dtype: str
    head: EagleHead | None = None
    weights: dict[str, str] | None = None
    """each model's :func:`fingerprint` and source, and the fingerprint of the files beside the weights; ``None`` for
    modules made in memory"""
    trigrams: TrigramCounts | None = None
    note: str = ""
    """sentences on what its files say and people should know"""
    identity: str = ""
    """see :func:`identity_of`"""

    @property
    def computed_on(self) -> str:
        """The device, and how many more the target is split over."""
        return f"{self.device} and {processes() - 1} more" if self.target.split else self.device

    def inputs(self, prompt: str, **template: str) -> dict[str, torch.Tensor]:
        """Return a prompt as transformers' ``generate`` takes it: token ids and attention mask, int64 [1,T] each.

        It is rendered as in a measured run, by the chat template if there is one. ``template``: ``arguments`` and
        ``date`` of :class:`fsd_core.config.TemplateConfig`. Raises as :func:`encode_prompt` does.
        """
        in_force = TemplateConfig.checked(**template).filled(self.spec.template_arguments)
        ids = torch.tensor([encode_prompt(self.tokenizer, prompt, template=in_force)])
        ids = ids.to(self.target.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def __repr__(self) -> str:
        """Omit the models' layers, which would fill a screen."""
        return f"LoadedPair({self.spec.name!r}, device={self.device!r}, dtype={self.dtype!r})"


def resolve_device(name: str) -> torch.device:
    """Return a device; ``auto`` is CUDA if available. Raises ``InvalidSetting`` for a device this machine lacks."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UnknownChoice(f"'{name}' is not a device: expected auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UnknownChoice(
            f"The device {name} was asked for, but this machine has {torch.cuda.device_count()} CUDA devices: use cpu."
        )
    return device


def gpu_name(device: str) -> str | None:
    """Return the name of a CUDA device, the first one if none is named; ``None`` for any other device."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else None


def fitting_dtype(dtype: str, device: torch.device) -> str:
    """Return the dtype to load as. On a CPU, float16 is slower than float32, and so is bfloat16 without support."""
    if device.type != "cpu" or dtype in ("float32", "bfloat16"):
        return dtype
    return "auto" if dtype == "auto" and cpu_has_bfloat16() else "float32"


@cache
def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 matrices, by the flags that Linux lists."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


def _load_model(
    folder: Path,
    device: torch.device,
    dtype: str,
    notes: list[str],
    shares: dict[int, int] | None = None,
    split: bool = False,
) -> PreTrainedModel:
    """Load a model on one device, or let accelerate spread it: ``shares`` limits the bytes on each device. ``split``:
    each process has a part of it.

    ``notes`` gets a sentence on tensors that the model has no place for.
    """
    check_sizes(folder)
    progress = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    options: dict[str, Any] = {
        "dtype": dtype, "local_files_only": True, "use_safetensors": True, "trust_remote_code": False,
        "output_loading_info": True,
    }  # fmt: skip
    if shares is not None:
        options |= {"device_map": "auto", "max_memory": shares}
    try:
        options |= _computed_here(folder)
        loaded: Any = load_split(folder, options) if split else AutoModelForCausalLM.from_pretrained(folder, **options)
        model, report = loaded
    except ModelUnavailable:  # of a class of ours
        raise
    except Exception as error:  # the loaders of three libraries raise any exception
        expected = "config.json and intact safetensors weights"
        raise ModelUnavailable(load_failure(folder, "model", error, expected)) from error
    finally:
        if progress:
            transformers_logging.enable_progress_bar()
    broken = report["missing_keys"] or report["mismatched_keys"]
    if broken:
        raise ModelUnavailable(
            f"The weights in {folder} do not fit their configuration: {len(broken)} tensors are missing or of another "
            "shape. Restore the folder from where it came."
        )
    if unread := sorted(name for name in report["unexpected_keys"] if not name.endswith(_REDUNDANT)):
        notes.append(
            f"{len(unread)} tensors in {folder} are not used, such as {unread[0]}: the configuration describes a model "
            "without them. If they belong to it, its texts are not what its authors measured."
        )
    if device.type == "cpu" and model.dtype == torch.float16:  # the checkpoint's dtype
        model = model.float()
    return model if split or shares is not None else model.to(device)


def _computed_here(folder: Path) -> dict[str, Any]:
    """Return options that replace an implementation of attention that a configuration names, and that takes no masks of
    ours, by transformers' choice."""
    stored = read_object(folder / "config.json")
    if {stored.get(key) for key in ("_attn_implementation", "attn_implementation")} <= {None, "sdpa", "eager"}:
        return {}
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    config._attn_implementation = None
    return {"config": config}


def obtain_pair(spec: PairSpec, on_progress: OnProgress = lambda what, done, total: None) -> dict[str, Path]:
    """Return the folders of a pair's models by role, fetching those that are missing."""
    return {role: obtain(model, on_progress) for role, model in models_by_role(spec)}


def load_pair(
    name: str, device: str = "auto", dtype: str = "auto", on_progress: OnProgress = lambda what, done, total: None
) -> LoadedPair:
    """Load a pair by name (see ``models.model_pairs``), fetching what is missing.

    ``dtype``: float32, bfloat16, float16, or ``auto``: the pair's, or else the checkpoint's if the device computes in
    it.
    ``on_progress`` reports a download.
    Raises ``UnknownName``, ``ModelUnavailable``, ``IncompatibleModels`` or ``InvalidSetting``.
    """
    spec, torch_device = get_pair(name), resolve_device(device)
    folders = obtain_pair(spec, on_progress)
    for role, folder in folders.items():
        if fault := folder_fault(role, folder):
            raise ModelUnavailable(f"The {role} in {folder} cannot be loaded: it {fault}")
    tokenizer = load_tokenizer(tokenizer_folder(folders["target"], spec.adapter))
    trigrams = None if spec.trigrams is None else load_trigrams(spec.trigrams, tokenizer)
    draft_folder = folders.get("draft")
    # A reduced draft uses the target's tokenizer.
    is_reduced = draft_folder is not None and reduced_vocab.owner_of(draft_folder) is not None
    if draft_folder is not None and not is_reduced:
        check_tokenizers(tokenizer, load_tokenizer(tokenizer_folder(draft_folder, spec.draft_adapter)), name)
    dtype = fitting_dtype(spec.dtype if dtype == "auto" else dtype, torch_device)
    split = processes() > 1
    if split and (spec.head or spec.adapter or is_reduced):
        raise UnfitModel(
            f"The pair '{name}' has an adapter, an EAGLE head or a draft that reads the target's weights, and under "
            "torchrun no process has all of them: start the command without torchrun, or choose another pair."
        )
    drafts = [folders[role] for role in ("draft", "head") if role in folders]
    shares = None if split else check_memory(name, folders["target"], drafts, torch_device, dtype)
    notes: list[str] = []
    try:
        target = _load_model(folders["target"], torch_device, dtype, notes, shares, split)
        if spec.adapter is not None:
            target = adapted(target, spec.adapter)
        draft = None
        if draft_folder is not None:
            draft = (
                reduced_vocab.load(draft_folder, target)
                if is_reduced
                else _load_model(draft_folder, torch_device, dtype, notes)
            )
        if draft is not None and spec.draft_adapter is not None:
            draft = adapted(draft, spec.draft_adapter)
    except torch.OutOfMemoryError as error:
        raise InsufficientMemory(
            f"The pair '{name}' does not fit into the memory of {torch_device}: choose a smaller pair."
        ) from error
    pair = make_pair(spec, tokenizer, target, draft, load_head(folders["head"], target) if spec.head else None)
    origins = {role: origin(model) or "" for role, model in models_by_role(spec)}
    notes += notes_on(pair)
    for note in notes:
        logger.warning(note)
    weights = {role: f"{found} {origins.get(role, '')}".strip() for role, found in fingerprints(folders).items()}
    if spec.trigrams is not None:
        weights["trigrams"] = fingerprint(spec.trigrams)
    return replace(pair, weights=weights, trigrams=trigrams, identity=identity_of(name), note=" ".join(notes))


def make_pair(
    spec: PairSpec,
    tokenizer: PreTrainedTokenizerBase,
    target: PreTrainedModel,
    draft: PreTrainedModel | None,
    head: EagleHead | None = None,
) -> LoadedPair:
    """Make a pair of modules that are already in memory. Without a draft, the target stands in its place, and no method
    drafts with it.

    Raises ``IncompatibleModels`` if the target has fewer logits than its tokenizer has ids, and as
    :func:`over_one_vocabulary` does.
    """
    target_size = vocabulary_of(target)
    ids = 1 + max(tokenizer.get_vocab().values())  # more than its tokens, if it leaves ids out
    if target_size < ids:
        raise IncompatibleModels(
            f"The target of '{spec.name}' has {target_size} logits, and its tokenizer has ids up to {ids - 1}: put the "
            "tokenizer into its folder that was made for these weights."
        )
    target_model, draft_model = over_one_vocabulary(target, draft)
    device, dtype = str(target_model.device), str(target_model.dtype).removeprefix("torch.")
    return LoadedPair(spec, tokenizer, target_model, draft_model or target_model, device, dtype, head)
