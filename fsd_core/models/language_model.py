"""The seam to transformers: a causal language model as a function from tokens to logits over our cache."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from fsd_core.errors import IncompatibleModels
from fsd_core.models.kv_cache import KVCache, causal_mask
from fsd_core.models.lean_llama import LeanLlama
from fsd_core.models.static import StaticCache, StaticForward
from fsd_core.models.taps import Taps
from fsd_core.ops.branches import Branches

FULL, SLIDING = "full_attention", "sliding_attention"
CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""what configurations call the number of positions"""
DEFAULT_CONTEXT = 2048
"""of models that name none, since a linear bias (ALiBi) takes the place of positions: what BLOOM was trained on"""


def vocabulary_of(module: PreTrainedModel) -> int:
    """How many tokens a model tells apart, also where it reads more than text."""
    return module.config.get_text_config(decoder=True).vocab_size


class LanguageModel:
    """A transformers model that is fed tokens and answers with logits; the cache belongs to the caller.

    ``vocabulary``: how many logits are returned, whatever the model's own number is; a token that it does not know has
    probability 0, and is read as the last one that it knows. ``lean``: whether a plain Llama runs through
    :class:`LeanLlama`, which rearranges the module's weights in memory. ``static``: whether one text alone is fed
    through ``models.static``, by default on CUDA; for a plain Llama only. Raises ``IncompatibleModels`` for
    architectures whose state this loop cannot roll back (recurrent layers, encoder-decoders).
    """

    def __init__(
        self, module: PreTrainedModel, vocabulary: int | None = None, lean: bool = True, static: bool | None = None
    ) -> None:
        config = module.config.get_text_config(decoder=True)
        self._window: int | None = getattr(config, "sliding_window", None)
        # Where the kinds of the layers are not told, all are alike.
        self._kinds: list[str] = sorted(set(getattr(config, "layer_types", None) or ()))
        if module.config.is_encoder_decoder or not set(self._kinds) <= {FULL, SLIDING}:
            raise IncompatibleModels(
                f"A {module.config.model_type} model of this kind is not supported: expected a decoder whose layers "
                "attend to the whole prefix, or to a sliding window of it. Choose another pair."
            )
        self.module = module.eval()
        self.kind: str = config.model_type
        self.known = vocabulary_of(module)
        self.vocabulary = vocabulary or self.known
        self.context: int = next(filter(None, (getattr(config, name, None) for name in CONTEXTS)), DEFAULT_CONTEXT)
        self._biased = self.kind == "bloom" or bool(getattr(config, "alibi", False))
        self.layers: int = config.num_hidden_layers
        self.device, self.dtype = module.device, module.dtype
        self._lean = LeanLlama(module, self.context) if lean and LeanLlama.supports(module) else None
        static = self.device.type == "cuda" if static is None else static
        self._static = StaticForward(self._static_logits, self.layers) if static and self._lean else None

    @property
    def eos_tokens(self) -> frozenset[int]:
        """Token ids that end a text."""
        ids = self.module.generation_config.eos_token_id
        ids = self.module.config.eos_token_id if ids is None else ids
        return frozenset() if ids is None else frozenset(ids if isinstance(ids, list) else [ids])

    def new_cache(self, capacity: int, rows: int = 1) -> KVCache:
        """An empty cache for up to ``capacity`` positions of each of ``rows`` texts."""
        if self._static is not None and rows == 1:
            return self._static.new_cache(capacity)
        return KVCache(self.layers, capacity, rows)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        keep: int | None = None,
        branches: Branches | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Feeds ``tokens`` behind what the cache holds and makes them part of it.

        tokens: int64 [B,S]. ``branches``: how the last of what the cache then holds branches off, if it does (B = 1).
        ``taps`` are given the states that they want.
        Returns float32 logits of the last ``keep`` positions (all by default), [B,keep,V].
        """
        start, count = cache.length, tokens.shape[1]
        # Branches have no fixed shape, and taps are read by who needs no graph: both go past what is static.
        plain = branches is not None or taps is not None
        places = KVCache.reserve(cache, count, self.device) if plain else cache.reserve(count, self.device)
        missing = self.vocabulary - self.known
        if missing > 0:
            tokens = tokens.clamp_max(self.known - 1)
        if branches is not None:
            places = branches.places(count)
        static = None if plain or places is None else self._static
        if static is not None and isinstance(cache, StaticCache):
            logits = static(tokens, cache)[:, -keep if keep else 0 :].clone()  # the next call overwrites it
        elif self._lean is not None:
            mask = branches.mask(count) if branches is not None else None
            if mask is None and not (count == 1 and places is None):  # but for one token, which sees all
                mask = causal_mask(self._places(places, start, count), start + count)
            logits = self._lean.forward(tokens, mask, cache, keep or count, places, taps)
        else:
            positions = {}
            if not self._biased:
                places = self._places(places, start, count)
                positions = {"position_ids": places, "attention_mask": self._masks(places, start + count, branches)}
            elif places is not None or branches is not None:
                raise IncompatibleModels(
                    f"A {self.kind} model adds a bias to its attention that knows one text without "
                    "branches: expected chains and a batch of 1."
                )
            found = self.module(
                input_ids=tokens,
                **positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep or 0,
                output_hidden_states=taps is not None,
            )
            logits = found.logits[:, -(keep or count) :]  # some architectures give all, whatever they are asked
            if taps is not None:
                taps.keep([found.hidden_states[index] for index in taps.layers])
        cache.advance(count)
        logits = logits[..., : self.vocabulary].float()
        return logits if missing <= 0 else F.pad(logits, (0, missing), value=-math.inf)

    def _static_logits(self, tokens: Tensor, places: Tensor, end: int, cache: KVCache) -> Tensor:
        assert self._lean is not None
        return self._lean.forward(tokens, causal_mask(places, end), cache, tokens.shape[1], places)

    def _places(self, places: Tensor | None, start: int, count: int) -> Tensor:
        """Positions of the tokens that are fed, int64 [B,S]; [1,S] where they are the same in all rows."""
        return torch.arange(start, start + count, device=self.device)[None] if places is None else places

    def _masks(self, places: Tensor, end: int, branches: Branches | None) -> Tensor | dict[str, Tensor]:
        """Ready masks, which transformers hands to the layers as they are: one, or one for each kind of layer.

        The cache keeps every position, so that it can be rolled back; a sliding window is a matter of the mask alone.
        """
        if not self._kinds:
            return self._mask(places, end, branches, self._window)
        windows = {kind: self._window if kind == SLIDING else None for kind in self._kinds}
        masks = {kind: self._mask(places, end, branches, window) for kind, window in windows.items()}
        return masks[FULL] if self._kinds == [FULL] else masks

    def _mask(self, places: Tensor, end: int, branches: Branches | None, window: int | None) -> Tensor:
        count = places.shape[1]
        mask = causal_mask(places, end, window) if branches is None else branches.mask(count, window)
        if self.module.config._attn_implementation != "eager":
            return mask
        # transformers' own attention, which models with capped scores use, adds the mask to the scores.
        return torch.zeros_like(mask, dtype=self.dtype).masked_fill_(~mask, torch.finfo(self.dtype).min)
