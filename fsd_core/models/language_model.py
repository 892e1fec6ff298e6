"""The interface to transformers: a causal language model as a function from tokens to logits over our cache."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from fsd_core.config import CHAIN
from fsd_core.errors import IncompatibleOptions
from fsd_core.models import config_facts
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.cuda_graphs import StaticForward
from fsd_core.models.forward import Forward
from fsd_core.models.fused_llama import FusedLlama
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.linear_forward import LinearForward
from fsd_core.models.linear_llama import LinearLlama
from fsd_core.models.module_forward import ModuleForward, layer_kinds, recurrent_layers
from fsd_core.models.recurrent_forward import RecurrentForward
from fsd_core.models.split_target import SplitForward, is_split
from fsd_core.ops.tree_attention import TreeAttention


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
        self.context = config_facts.context(config.to_dict())
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
