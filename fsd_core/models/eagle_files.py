"""EAGLE heads in the files that are published: names, shapes, and what they leave out.

Generation 1 and 2: ``fc.weight`` [H,2H], ``fc.bias`` in some, ``layers.0.*``; generation 3: ``fc.weight`` [H,3H'],
``midlayer.*`` (some say ``layers.0.*``), ``norm.weight``, ``lm_head.weight`` [K,H], ``d2t`` int64 [K] (what is to be
added to the number of a drafted token to get the target's) and ``t2d`` bool [V]. Either may hold
``embed_tokens.weight``. What is missing of embedding and head is the target's. Projections may be fused
(``qkv_proj``, ``gate_up_proj``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.eagle import EagleHead, Generation, attention_sizes
from fsd_core.models.reduced_vocab import ReducedHead

_LAYER = "layers.0."


def new_head(
    target: PreTrainedModel, generation: Generation, tokens: Tensor | None = None, rest: float = 0.0
) -> EagleHead:
    """A head that has learnt nothing, of the width and in the dtype of a Llama ``target``.

    ``tokens``: int64 [K], those that it tells apart, all by default; ``rest``: the probability of all others together.
    """
    config = cast(LlamaConfig, LlamaConfig.from_dict(target.config.to_dict() | {"num_hidden_layers": 1}))
    head = _head_of(target, tokens, rest)
    embedding: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    made = EagleHead(config, generation, embedding, head, state_width=config.hidden_size)
    return made.to(device=embedding.device, dtype=embedding.dtype)


def _head_of(target: PreTrainedModel, tokens: Tensor | None, rest: float) -> ReducedHead:
    """Rows of the target's own."""
    weight = cast(Any, target.get_output_embeddings()).weight.data
    if tokens is None:
        tokens = torch.arange(len(weight))
    tokens = tokens.to(weight.device)
    whole = len(tokens) == len(weight)
    return ReducedHead(weight if whole else weight[tokens], tokens, len(weight), rest)


def save_head(head: EagleHead, folder: Path, about: dict[str, Any]) -> None:
    """Saves what the target does not lend, in bfloat16. ``about`` joins ``config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    named = head.state_dict()
    lent = ("lm_head.", "embedding")
    own = {name: value.bfloat16().contiguous() for name, value in named.items() if not name.startswith(lent)}
    tokens, vocabulary = head.lm_head.tokens, head.lm_head.vocabulary
    if head.generation == 3:
        own = {name.replace(_LAYER, "midlayer."): value for name, value in own.items()}
    if len(tokens) < vocabulary:
        known = torch.zeros(vocabulary, dtype=torch.bool)
        known[tokens] = True
        own |= {"d2t": tokens - torch.arange(len(tokens)), "t2d": known}
    config = head.config.to_dict() | {
        "architectures": ["LlamaForCausalLMEagle3" if head.generation == 3 else "LlamaForCausalLMEagle"],
        "draft_vocab_size": len(tokens),
        **about,
    }
    for of_target in ("_name_or_path", "_model_name_or_path"):  # a folder of the machine that trained the head
        config.pop(of_target, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    save_file(own, folder / "model.safetensors", {"format": "pt"})


def load_head(folder: Path | str, target: PreTrainedModel) -> EagleHead:
    """As :func:`read_head`, ready to draft."""
    return read_head(folder, target).for_drafting()


def read_head(folder: Path | str, target: PreTrainedModel) -> EagleHead:
    """The head in ``folder`` for a loaded target, in its dtype and on its device.

    Raises ``IncompatibleModels`` for a target of another width or vocabulary, ``ModelUnavailable`` for files that are
    missing, broken or of another kind.
    """
    folder = Path(folder)
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = _named(_read(folder))
        head = _built(settings, weights, target, folder)
    except IncompatibleModels:
        raise
    except Exception as error:  # safetensors, transformers and torch raise what they like
        raise ModelUnavailable(
            f"The EAGLE head in {folder} cannot be loaded ({type(error).__name__}): expected config.json and an intact "
            "model.safetensors with fc.weight and layers.0.* or midlayer.*. Restore the folder from where it came."
        ) from error
    return head


def _read(folder: Path) -> dict[str, Tensor]:
    """The published heads are mostly pickles of tensors, of which nothing but tensors is built."""
    if (file := folder / "model.safetensors").is_file():
        return load_file(file)
    return torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)


def _named(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """All under the names of :class:`EagleHead`."""
    renamed = {}
    for name, value in weights.items():
        name = name.removeprefix("model.").replace("midlayer.", _LAYER)
        if name.endswith("rotary_emb.inv_freq"):  # older files keep what follows from the configuration
            continue
        if "gate_up_proj" in name:
            for part, rows in zip(("gate_proj", "up_proj"), value.chunk(2), strict=True):
                renamed[name.replace("gate_up_proj", part)] = rows
        else:
            renamed[name] = value
    return renamed


def _built(settings: dict[str, Any], weights: dict[str, Tensor], target: PreTrainedModel, folder: Path) -> EagleHead:
    config = cast(LlamaConfig, LlamaConfig.from_dict(settings))
    _split_qkv(weights, config)
    generation: Generation = 3 if f"{_LAYER}hidden_norm.weight" in weights else 1
    own, theirs = weights["fc.weight"].shape[1] // (2 if generation == 1 else 3), target.config.hidden_size
    if own != theirs:
        raise IncompatibleModels(
            f"The EAGLE head in {folder} reads states of width {own}, and those of the target have {theirs}: choose "
            "the head that was trained for this target."
        )
    lent: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    embedding = weights.pop("embed_tokens.weight", lent).to(lent)
    head = _own_head(weights, settings, target)
    if len(embedding) != head.vocabulary:
        raise IncompatibleModels(
            f"The EAGLE head in {folder} knows {len(embedding)} tokens, and the target {head.vocabulary}: choose the "
            "head that was trained for this target."
        )
    made = EagleHead(
        config, generation, embedding, head,
        state_width=theirs,
        bias=f"{_LAYER}self_attn.q_proj.bias" in weights,
        fc_bias="fc.bias" in weights,
    )  # fmt: skip
    missing, unexpected = made.load_state_dict(weights, strict=False)
    if unexpected or any(not name.startswith("lm_head.") for name in missing):
        raise KeyError("tensors of other names")
    return made.to(device=lent.device, dtype=lent.dtype)


def _own_head(weights: dict[str, Tensor], settings: dict[str, Any], target: PreTrainedModel) -> ReducedHead:
    """Takes the head's tensors out of ``weights``."""
    offsets, known = weights.pop("d2t", None), weights.pop("t2d", None)
    weight, vocabulary = weights.pop("lm_head.weight", None), target.config.vocab_size
    if known is not None and len(known) != vocabulary:
        raise IncompatibleModels(
            f"The EAGLE head was trained for {len(known)} tokens, and the target has {vocabulary}: choose the head "
            "that was trained for this target."
        )
    tokens = None if offsets is None else torch.arange(len(offsets)) + offsets
    rest = float(settings.get("rest_share", 0.0))
    if weight is None:
        return _head_of(target, tokens, rest)
    return ReducedHead(weight, torch.arange(len(weight)) if tokens is None else tokens, vocabulary, rest)


def _split_qkv(weights: dict[str, Tensor], config: LlamaConfig) -> None:
    _, queries, keys = attention_sizes(config)
    for kind in ("weight", "bias"):
        fused = weights.pop(f"{_LAYER}self_attn.qkv_proj.{kind}", None)
        if fused is not None:
            for part, rows in zip("qkv", fused.split([queries, keys, keys]), strict=True):
                weights[f"{_LAYER}self_attn.{part}_proj.{kind}"] = rows
