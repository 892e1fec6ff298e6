"""The interface to transformers: a causal language model as a function from tokens to logits.

A target split over several processes, as torchrun starts them: tensor parallelism.

transformers' plan of a model (``tp_plan``) gives each process a part of every matrix; at two points of a layer the
processes add up what they have. So all of them must run every forward of the target. The first process leads. It alone
drafts, samples and records, and tells the others each forward, and each change of a cache that is more than arithmetic
on lengths. The others follow: see :func:`follow`.
"""

from __future__ import annotations

import math
import os
import signal
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.distributed import DistributedConfig

from fsd_core.config import CHAIN
from fsd_core.errors import IncompatibleModels, IncompatibleOptions
from fsd_core.models import sources
from fsd_core.models.caches import KVCache
from fsd_core.models.forward import AuxHiddenStates, Forward, StaticForward
from fsd_core.models.forwards import (
    FusedLlama,
    LinearForward,
    LinearLlama,
    ModuleForward,
    RecurrentForward,
    layer_kinds,
    recurrent_layers,
)
from fsd_core.ops.kernels import TreeAttention
from fsd_core.system import handle_hangup

FAMILIES = frozenset({"gemma2", "llama", "mistral", "qwen2", "qwen3"})
"""families that are split; tests hold their logits and caches"""
_PATIENCE = timedelta(days=365)  # a worker may wait that long for its next run


def processes() -> int:
    """Return over how many processes a target is split: as many as torchrun has started, else 1."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def begin() -> None:
    """Meet the other processes. On CUDA each has the device of its local rank."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)


def end() -> None:
    """Let the other processes end, if they have not."""
    with suppress(RuntimeError):
        _tell(None)
    dist.destroy_process_group()


def follow() -> None:
    """Run what the first process runs of its targets, until it ends. Signals go to all; what they end, it decides."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    handle_hangup(lambda number, frame: None)
    begin()
    followed = _Followed()
    with torch.inference_mode():
        while (step := _heard()) is not None:
            for number in step.closed:
                followed.caches.pop(number, None)
                followed.modules.pop(number, None)
            step.run(followed)
    dist.destroy_process_group()


def load_split(folder: Path, options: dict[str, Any]) -> Any:
    """Return what transformers loads from a folder with ``options``, each process its part.

    Raises like ``from_pretrained``.
    """
    number = next(_numbers)
    _tell(_Load(number, str(folder), options))
    loaded, report = _loaded(str(folder), options)
    _modules[loaded] = number
    weakref.finalize(loaded, _closed.append, number)
    return loaded, report


def is_split(module: PreTrainedModel) -> bool:
    """Return whether a module was loaded by :func:`load_split`."""
    return module in _modules


class SplitForward(Forward):
    """The forward of a split module on its caches. Raises ``IncompatibleModels`` for another family."""

    def __init__(self, module: PreTrainedModel) -> None:
        family = module.config.get_text_config(decoder=True).model_type
        if family not in FAMILIES:
            raise IncompatibleModels(
                f"A {family} model is not split over processes: expected one of {', '.join(sorted(FAMILIES))}. Start "
                "the command without torchrun; a target that is too large for one GPU is then spread over all of them."
            )
        self._number, self._forward = _modules[module], ModuleForward(module)

    def new_cache(self, layers: int, capacity: int, rows: int) -> KVCache:
        cache = _LedCache(layers, capacity, rows)
        _tell(_Open(cache.number, layers, capacity, rows))
        return cache

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Raises for a cache of another kind, as beams have. Nothing here reads hidden states, so there is no EAGLE
        head."""
        if not isinstance(cache, _LedCache):
            raise IncompatibleModels(
                "Beams cannot be written by a target that is split over processes: start the command without torchrun."
            )
        tree = None if tree_attention is None else (tree_attention.prefix, len(tree_attention.depths))
        shape = (tokens.shape[0], tokens.shape[1])
        _tell(_Forward(self._number, cache.number, tuple(cache.lengths), shape, logits_to_keep, tree))
        dist.broadcast(tokens.contiguous(), 0)
        if tree_attention is not None:
            dist.broadcast(tree_attention.depths.contiguous(), 0)
            dist.broadcast(tree_attention.attends_to.to(torch.uint8), 0)
        return self._forward(tokens, cache, logits_to_keep, tree_attention)


class _LedCache(KVCache):
    """A cache of which every process has its own heads."""

    def __init__(self, layers: int, capacity: int, rows: int = 1) -> None:
        super().__init__(layers, capacity, rows)
        self.number = next(_numbers)
        weakref.finalize(self, _closed.append, self.number)

    def row(self, index: int) -> KVCache:
        cache = self._shared(_LedCache(self._layers, self.capacity), index)
        _tell(_Row(cache.number, self.number, index))
        return cache

    def compact(self, start: int, accepted: Tensor) -> None:
        _tell(_Compact(self.number, start, len(accepted)))
        dist.broadcast(accepted.contiguous(), 0)
        super().compact(start, accepted)

    def keep_rows(self, rows: Tensor) -> None:
        _tell(_KeepRows(self.number, tuple(rows.tolist())))
        super().keep_rows(rows)


_numbers = count()
_modules: weakref.WeakKeyDictionary[PreTrainedModel, int] = weakref.WeakKeyDictionary()
_closed: list[int] = []
"""caches and modules that are no longer used here, and that the others are told of with the next step"""


@dataclass
class _Followed:
    """What a process that follows has, by the numbers that the first one gave."""

    modules: dict[int, ModuleForward] = field(default_factory=dict)
    caches: dict[int, KVCache] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(kw_only=True)
class _Step:
    """Something that all processes do. The first has done its part itself."""

    closed: Sequence[int] = ()

    def run(self, followed: _Followed) -> None:
        raise NotImplementedError


@dataclass
class _Load(_Step):
    number: int
    folder: str
    options: dict[str, Any]

    def run(self, followed: _Followed) -> None:
        module, _ = _loaded(self.folder, self.options)
        followed.modules[self.number] = ModuleForward(module.eval())
        followed.device = module.device  # pyrefly: ignore[read-only]


@dataclass
class _Open(_Step):
    cache: int
    layers: int
    capacity: int
    rows: int

    def run(self, followed: _Followed) -> None:
        followed.caches[self.cache] = KVCache(self.layers, self.capacity, self.rows)


@dataclass
class _Row(_Step):
    cache: int
    of: int
    index: int

    def run(self, followed: _Followed) -> None:
        followed.caches[self.cache] = followed.caches[self.of].row(self.index)


@dataclass
class _Compact(_Step):
    cache: int
    start: int
    count: int

    def run(self, followed: _Followed) -> None:
        cache = followed.caches[self.cache]
        cache.compact(self.start, _received((self.count,), followed.device))


@dataclass
class _KeepRows(_Step):
    cache: int
    rows: tuple[int, ...]

    def run(self, followed: _Followed) -> None:
        followed.caches[self.cache].keep_rows(torch.tensor(self.rows, device=followed.device))


@dataclass
class _Forward(_Step):
    module: int
    cache: int
    lengths: tuple[int, ...]
    """of the cache's rows, before"""
    shape: tuple[int, int]
    """of the tokens, [B,S]"""
    logits_to_keep: int
    tree: tuple[int, int] | None
    """prefix and number of tokens of a :class:`TreeAttention`"""

    def run(self, followed: _Followed) -> None:
        cache, device = followed.caches[self.cache], followed.device
        tokens, attention = _received(self.shape, device), None
        if self.tree is not None:
            prefix, size = self.tree
            depths = _received((size,), device)
            attention = TreeAttention(prefix, depths, _received((size, size), device, torch.uint8).bool())
        cache.lengths = list(self.lengths)
        followed.modules[self.module](tokens, cache, self.logits_to_keep, attention)


def _tell(step: _Step | None) -> None:
    if step is not None:
        step.closed = [_closed.pop(0) for _ in range(len(_closed))]
    dist.broadcast_object_list([step], 0)


def _heard() -> _Step | None:
    """Return the first process's next step; ``None`` once it has ended, however it did."""
    steps: list[_Step | None] = [None]
    try:
        dist.broadcast_object_list(steps, 0)
    except RuntimeError:
        return None
    return steps[0]


def _received(shape: Sequence[int], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    values = torch.empty(tuple(shape), dtype=dtype, device=device)
    dist.broadcast(values, 0)
    return values


def _loaded(folder: str, options: dict[str, Any]) -> Any:
    split = DistributedConfig(tp_plan="auto", tp_size=processes())
    return AutoModelForCausalLM.from_pretrained(folder, distributed_config=split, **options)


def vocabulary_of(module: PreTrainedModel) -> int:
    """Return the size of a model's text vocabulary, also for a multimodal model."""
    return module.config.get_text_config(decoder=True).vocab_size


class LanguageModel:
    """A transformers model that takes tokens and returns logits. The cache belongs to the caller.

    It runs in one of six ways. A plain Llama runs through :class:`FusedLlama`, a model with recurrent layers through
    :class:`RecurrentForward`, one with grouped linear attention through :class:`LinearForward`, one that is split over
    processes through :class:`SplitForward`, and any other architecture through its own module
    (:class:`ModuleForward`). On CUDA, a plain Llama's forwards after the prompts
    are replayed at fixed addresses (``models.cuda_graphs``).

    ``vocabulary``: how many logits are returned, whatever the model's own number. A token that the model lacks has
    probability 0, and is read as the model's last token. ``lean``: whether a plain Llama runs through
    :class:`FusedLlama`, which rearranges the module's weights in memory. ``static``: whether its forwards run at fixed
    addresses, by default on CUDA. Raises ``IncompatibleModels`` for architectures whose state cannot be rolled back
    (encoder-decoders).
    """

    def __init__(
        self, module: PreTrainedModel, vocabulary: int | None = None, lean: bool = True, static: bool | None = None
    ) -> None:
        config = module.config.get_text_config(decoder=True)
        self.context = sources.context(config.to_dict())
        layer_kinds(module)  # raises if the state cannot be rolled back
        self.split = is_split(module)
        """whether several processes compute it, each a part"""
        self.lean = lean and not self.split and FusedLlama.supports(module)
        """whether it runs through :class:`FusedLlama`"""
        self._run: Forward
        if self.lean:
            self._run = FusedLlama(module, self.context)
        elif self.split:
            self._run = SplitForward(module)
        elif isinstance(module, LinearLlama):
            self._run = LinearForward(module)
        else:
            self._run = RecurrentForward(module) if recurrent_layers(module) else ModuleForward(module)
        self.module = module.eval()
        self.kind: str = config.model_type
        self.model_vocab_size = vocabulary_of(module)
        self.vocabulary = vocabulary or self.model_vocab_size
        self.layers: int = config.num_hidden_layers
        self.device, self.dtype = module.device, module.dtype
        if self.device.type == "cuda":  # cuDNN's attention is planned anew for every length that a text comes to
            torch.backends.cuda.enable_cudnn_sdp(False)
        static = self.device.type == "cuda" if static is None else static
        fixed = self._run.at_fixed_positions if static and isinstance(self._run, FusedLlama) else None
        self._static = None if fixed is None else StaticForward(fixed, self.layers)

    @property
    def static(self) -> bool:
        """Whether forwards run at fixed addresses."""
        return self._static is not None

    @property
    def recurrent(self) -> RecurrentForward | None:
        """The forward of a model with recurrent layers, which takes one text without branches; else ``None``."""
        return self._run if isinstance(self._run, RecurrentForward) else None

    @property
    def one_text(self) -> bool:
        """Whether it reads one text at a time, since its state is of one."""
        return self._run.one_text

    @property
    def covers_all(self) -> bool:
        """Whether it can give each token of its ``vocabulary`` a probability."""
        head: Any = self.module.get_output_embeddings()
        return self.vocabulary <= self.model_vocab_size and getattr(head, "covers_all", True)

    def check_shape(self, shape: str, of: str) -> None:
        """Raise ``IncompatibleOptions`` if texts of a ``shape`` branch and the model has recurrent layers, whose state
        follows one chain. ``of``: what branches, such as ``the topology 'dynamic-tree'``."""
        if self.recurrent is not None and shape != CHAIN:
            raise IncompatibleOptions(
                f"A {self.kind} model keeps a recurrent state, which follows one chain of tokens, and {of} branches: "
                "choose the topology chain, and a rule that judges it."
            )

    @property
    def eos_tokens(self) -> frozenset[int]:
        """Token ids that end a text."""
        ids = self.module.generation_config.eos_token_id
        return end_ids(self.module.config.eos_token_id if ids is None else ids)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Strings that end a text."""
        strings = self.module.generation_config.stop_strings or ()
        return (strings,) if isinstance(strings, str) else tuple(strings)

    def new_cache(self, capacity: int, rows: int = 1) -> KVCache:
        """Return an empty cache for up to ``capacity`` positions of each of ``rows`` texts. The caller releases it.

        Raises ``IncompatibleModels`` for several rows of a model that reads one text at a time.
        """
        if self._static is not None:
            return self._static.new_cache(capacity, rows)
        return self._run.new_cache(self.layers, capacity, rows)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int | None = None,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Feed ``tokens`` after the cache's contents and append them to the cache.

        tokens: int64 [B,S]. ``tree_attention``: of the last tokens then in the cache, if they are a tree (B = 1).
        ``aux_hidden_states`` receives the hidden states of its layers.
        Returns float32 logits of the last ``logits_to_keep`` positions (all by default), [B,logits_to_keep,V].
        """
        count, missing = tokens.shape[1], self.vocabulary - self.model_vocab_size
        if missing > 0:
            tokens = tokens.clamp_max(self.model_vocab_size - 1)
        if self._static is not None and self._static.takes(cache, count):
            logits = self._static(tokens, cache, tree_attention, aux_hidden_states)
            logits = logits[:, -(logits_to_keep or count) :].to(torch.float32, copy=True)
        else:
            logits = self._run(tokens, cache, logits_to_keep or count, tree_attention, aux_hidden_states)
        logits = logits[..., : self.vocabulary].float()
        return logits if missing <= 0 else F.pad(logits, (0, missing), value=-math.inf)


def end_ids(ids: Any) -> frozenset[int]:
    """Return the token ids in what a configuration says of ends: an id, or a list of them, which may be nested. What is
    no id is left out; loading tells of an end that the tokenizer has and the configuration lacks."""
    if isinstance(ids, list | tuple):
        return frozenset().union(*map(end_ids, ids))
    return frozenset([ids] if type(ids) is int else ())
