"""Loading a pair: weights from safetensors only, no remote code, checked before and after."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from fsd_core.config import TemplateConfig
from fsd_core.errors import (
    FsdError,
    IncompatibleModels,
    InsufficientMemory,
    ModelUnavailable,
    UnfitModel,
    UnknownChoice,
)
from fsd_core.models import draft_weights
from fsd_core.models.draft_weights import EagleHead, TrigramCounts, load_trigrams
from fsd_core.models.eagle_files import load_head
from fsd_core.models.hub import OnProgress, obtain
from fsd_core.models.language_model import LanguageModel, load_split, processes, vocabulary_of
from fsd_core.models.load_failures import check_memory, load_failure, quote
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.pair_check import fingerprint, fingerprints, identity_of, models_by_role, notes_on
from fsd_core.models.prompt import check_tokenizers, encode_prompt, load_tokenizer
from fsd_core.models.sources import PairSpec, check_sizes, folder_fault, origin, read_object, tokenizer_folder

PROVEN = frozenset({"gemma2", "llama", "mistral", "qwen2", "qwen3"})
"""families that tests cover, and that are not checked again"""
TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
OTHER_TOLERANCE = 0.2
"""for 16-bit floats, whose rounding depends on how many tokens are fed at once"""
STATE_TOLERANCE = {torch.float32: 0.001, torch.float64: 0.001}
OTHER_STATE_TOLERANCE = 0.02
"""the same of the first recurrent layer's state, whose inputs are equal. One that was lost differs by 0.06 or more."""
_passed: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""modules that were checked already, and whether they continue a state at once: transformers' ``generate`` passes the
same ones at every call"""


@torch.inference_mode()
def check_cache(model: LanguageModel) -> None:
    """Raise ``IncompatibleModels`` if a model's logits through our cache differ from those without a cache.

    Twelve tokens are fed in pieces, some of them rejected, and then as one text. At each position the
    relative distance is ‖cached − uncached‖ / ‖uncached‖. Its median must be below a tolerance, since rounding alone
    may make a mixture of experts route one token elsewhere. This rejects models that look ahead, keep a state that
    cannot be rolled back, or need more than tokens. For a model with recurrent layers it also decides whether its state
    is continued by several tokens at once.
    """
    adapted = getattr(model.module, "_hf_peft_config_loaded", False)  # an adapter lay beside the weights
    if model.module in _passed or (model.kind in PROVEN and not adapted):
        if model.recurrent is not None:
            model.recurrent.at_once = _passed.get(model.module, False)
        return
    most = tolerance(model.dtype)
    distance = _distance(model)
    if not distance <= most:
        raise _refusal(model, f"its logits {apart(distance)}")
    if model.recurrent is not None:
        state_tolerance = STATE_TOLERANCE.get(model.dtype, OTHER_STATE_TOLERANCE)
        model.recurrent.at_once = _state_distance(model) <= state_tolerance and _distance(model) <= most
    _passed[model.module] = model.recurrent is not None and model.recurrent.at_once


def _distance(model: LanguageModel) -> float:
    """Return the median relative distance of a text's logits in pieces from those of the whole."""
    vocabulary = min(model.vocabulary, model.model_vocab_size)
    tokens = _tokens(model)
    try:
        uncached = model.module(input_ids=tokens, use_cache=False).logits[..., :vocabulary].float()
        cached = _in_pieces(model, tokens)[..., :vocabulary]
    except FsdError:
        raise
    except Exception as error:  # architectures fail in many ways on a cache or a mask that they do not know
        raise _refusal(model, f"it fails with {type(error).__name__}") from error
    return relative_distance(cached, uncached)


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest :func:`relative_distance` of logits that are equal up to rounding."""
    return TOLERANCE.get(dtype, OTHER_TOLERANCE)


def apart(distance: float) -> str:
    """Return a :func:`relative_distance` as text, such as ``differ by 40 %``."""
    return f"differ by {100 * distance:.0f} %" if math.isfinite(distance) else "are no finite numbers"


def relative_distance(found: Tensor, expected: Tensor) -> float:
    """Return the median over positions of ‖found − expected‖ / ‖expected‖, 0 where both are 0. [1,S,V], [1,S,V]"""
    difference, size = (found - expected).norm(dim=-1), expected.norm(dim=-1)
    return torch.where(difference == 0, 0, difference / size).median().item()


@torch.inference_mode()
def logits_of_twelve(module: nn.Module, model: PreTrainedModel) -> Tensor:
    """Return float32 logits [1,12,V] of the check's tokens by a ``module`` around ``model``."""
    size = model.config.get_text_config(decoder=True).vocab_size
    return module(input_ids=_twelve(size, model.device), use_cache=False).logits.float()


def _state_distance(model: LanguageModel) -> float:
    """Return the relative distance of the first recurrent state, after eight tokens and two more at once, from that
    after the two one by one. It is large if a module starts the two from an empty state, even where logits hardly
    depend on the state. Leaves the model feeding at once."""
    assert model.recurrent is not None
    states = []
    for model.recurrent.at_once in (False, True):
        cache = model.recurrent.new_cache(model.layers, 10, rows=1)
        model.forward(_tokens(model)[:, :8], cache)
        model.forward(_tokens(model)[:, 8:10], cache)
        states.append(cache.first_state())
    stepped, fed_at_once = states
    return ((fed_at_once - stepped).norm() / stepped.norm()).item()


def _tokens(model: LanguageModel) -> Tensor:
    """Return the twelve tokens of the check, int64 [1,12]."""
    return _twelve(min(model.vocabulary, model.model_vocab_size), model.device)


def _twelve(vocabulary: int, device: torch.device) -> Tensor:
    return (torch.arange(12, device=device)[None] * 7919 + 11) % vocabulary


def _in_pieces(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return logits [1,S,V] of a prompt, a half-accepted draft, the next tokens and a single token."""
    cache = model.new_cache(16)
    first = model.forward(tokens[:, :3], cache)
    accepted = model.forward(tokens[:, [3, 4, 3, 2]], cache)[:, :2]
    cache.rollback(5)
    rest = model.forward(tokens[:, 5:11], cache), model.forward(tokens[:, 11:], cache)
    return torch.cat([first, accepted, *rest], dim=1)


def _refusal(model: LanguageModel, reason: str) -> IncompatibleModels:
    return IncompatibleModels(
        f"A {model.kind} model of this kind is not supported: a text fed in pieces, with rollbacks, does not give the "
        f"logits of the whole text ({reason}). Expected a causal decoder whose layers attend to the prefix. Choose "
        "another pair."
    )


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A target, and the models that may draft for it. Target and draft return logits over the same vocabulary."""

    target: LanguageModel
    draft: LanguageModel | None = None
    head: EagleHead | None = None
    """trained for the target"""
    tokenizer: PreTrainedTokenizerBase | None = None
    """needed if strings are looked for in texts"""
    trigrams: TrigramCounts | None = None
    """of training texts, for a drafter that begins with them"""


def over_one_vocabulary(
    target: PreTrainedModel, draft: PreTrainedModel | None, lean: bool = True
) -> tuple[LanguageModel, LanguageModel | None]:
    """Return both as models that return logits over all of the target's tokens.

    A token that the draft lacks has q = 0, and one that only the draft has is taken out before q is made. ``lean``: as
    :class:`LanguageModel` takes it. Raises ``IncompatibleModels`` as it and :func:`check_cache` do.
    """
    writer = LanguageModel(target, lean=lean)
    drafting = None if draft is None else LanguageModel(draft, writer.vocabulary, lean=lean)
    for model in filter(None, (writer, drafting)):
        check_cache(model)
    return writer, drafting


def adapted(model: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    """Return the model with an adapter merged into its weights.

    A model with fewer tokens than the adapter's own tokenizer gets more rows, as PEFT's ``AutoPeftModel`` does it. A
    head on the embedding's matrix gets one of its own, if the adapter changes either. Raises ``ModelUnavailable`` for
    files that cannot be read or do not fit, and for an adapter that cannot be merged: twelve tokens must give the
    logits of the model with the adapter beside it.
    """
    from peft import PeftModel

    check_sizes(adapter)
    try:
        _add_tokens(model, adapter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT warns of shared matrices, which are looked after here
            warnings.filterwarnings("error", "Found missing adapter keys")  # parts of it would be random
            beside: Any = PeftModel.from_pretrained(model, str(adapter), local_files_only=True).eval()
            expected = logits_of_twelve(beside, model)
            _untie(model)
            merged = beside.merge_and_unload()
            distance = relative_distance(logits_of_twelve(merged, merged), expected)
    except ModelUnavailable:
        raise
    except Exception as error:
        raise ModelUnavailable(
            f"The adapter in {adapter} cannot be loaded ({type(error).__name__}: {quote(str(error))}): expected "
            "adapter_config.json and adapter_model.safetensors that fit the model. Choose the model that it was "
            "trained on, or fetch the adapter again."
        ) from error
    if not distance <= tolerance(model.dtype):
        raise ModelUnavailable(
            f"The adapter in {adapter} cannot be merged: against those before, the merged model's logits "
            f"{apart(distance)}. Give the model that its authors merged, or another adapter."
        )
    return merged


def _add_tokens(model: PreTrainedModel, adapter: Path) -> None:
    """Give a model rows for the tokens that an adapter's tokenizer adds. The adapter holds their weights.

    Raises ``ModelUnavailable`` if it does not, since they would be random.
    """
    if tokenizer_folder(adapter.parent, adapter) != adapter:
        return
    embedding: Any = model.get_input_embeddings()
    count, rows = len(load_tokenizer(adapter)), len(embedding.weight)
    if count <= rows:
        return
    from peft import PeftConfig, load_peft_weights

    trained = any(count in tensor.shape for tensor in load_peft_weights(str(adapter), device="cpu").values())
    if not trained and not getattr(PeftConfig.from_pretrained(str(adapter)), "trainable_token_indices", None):
        raise ModelUnavailable(
            f"The tokenizer of the adapter in {adapter} has {count} tokens, the model {rows}, and the adapter no "
            "weights for the others: save it with its embedding layers, or without its tokenizer."
        )
    model.resize_token_embeddings(count, mean_resizing=False)


def _untie(model: PreTrainedModel) -> None:
    """Give the head a matrix of its own, if it shares the embedding's and an adapter is to change one of the two."""
    ends: tuple[Any, Any] = model.get_input_embeddings(), model.get_output_embeddings()
    embedding, head = (getattr(end, "base_layer", end) for end in ends)
    if head is None or (embedding, head) == ends or head.weight is not embedding.weight:
        return
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (model.config, model.config.get_text_config(decoder=True)):
        config.tie_word_embeddings = False


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
    is_reduced = draft_folder is not None and draft_weights.owner_of(draft_folder) is not None
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
                draft_weights.load(draft_folder, target)
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
