"""EAGLE heads in their published files: names, shapes, and what the files leave out.

Generation 1 and 2: ``fc.weight`` [H,2H], ``fc.bias`` in some, ``layers.0.*``. Generation 3: ``fc.weight`` [H,3H'],
``midlayer.*`` (``layers.0.*`` in some), ``norm.weight``, ``lm_head.weight`` [K,H], ``d2t`` int64 [K] (the offset from a
drafted token's id to the target's) and ``t2d`` bool [V]. Either may hold ``embed_tokens.weight``. A missing embedding
or LM head is the target's. Projections may be fused (``qkv_proj``, ``gate_up_proj``).
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
    target: PreTrainedModel, generation: Generation, tokens: Tensor | None = None, tail_mass: float = 0.0
) -> EagleHead:
    """Return an untrained head with the width and the dtype of a Llama ``target``.

    ``tokens``: int64 [K], its reduced vocabulary, all tokens by default. ``tail_mass``: the total probability of
    the others.
    """
    config = cast(LlamaConfig, LlamaConfig.from_dict(target.config.to_dict() | {"num_hidden_layers": 1}))
    lm_head = _target_lm_head(target, tokens, tail_mass)
    embedding: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    eagle_head = EagleHead(config, generation, embedding, lm_head, state_width=config.hidden_size)
    return eagle_head.to(device=embedding.device, dtype=embedding.dtype)


def _target_lm_head(target: PreTrainedModel, tokens: Tensor | None, tail_mass: float) -> ReducedHead:
    """Return an LM head made of rows of the target's."""
    weight = cast(Any, target.get_output_embeddings()).weight.data
    if tokens is None:
        tokens = torch.arange(len(weight))
    tokens = tokens.to(weight.device)
    whole = len(tokens) == len(weight)
    return ReducedHead(weight if whole else weight[tokens], tokens, len(weight), tail_mass)


def save_head(head: EagleHead, folder: Path, about: dict[str, Any]) -> None:
    """Save the weights that are not the target's, in bfloat16. ``about`` is merged into ``config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    state = head.state_dict()
    shared = ("lm_head.", "embedding")
    weights = {name: value.bfloat16().contiguous() for name, value in state.items() if not name.startswith(shared)}
    tokens, vocabulary = head.lm_head.tokens, head.lm_head.vocabulary
    if head.generation == 3:
        weights = {name.replace(_LAYER, "midlayer."): value for name, value in weights.items()}
    if len(tokens) < vocabulary:
        drafted = torch.zeros(vocabulary, dtype=torch.bool)
        drafted[tokens] = True
        weights |= {"d2t": tokens - torch.arange(len(tokens)), "t2d": drafted}
    config = head.config.to_dict() | {
        "architectures": ["LlamaForCausalLMEagle3" if head.generation == 3 else "LlamaForCausalLMEagle"],
        "draft_vocab_size": len(tokens),
        **about,
    }
    for key in ("_name_or_path", "_model_name_or_path"):  # folders on the machine that trained the head
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def load_head(folder: Path | str, target: PreTrainedModel) -> EagleHead:
    """Return the head of :func:`read_head`, ready to draft."""
    return read_head(folder, target).for_drafting()


def read_head(folder: Path | str, target: PreTrainedModel) -> EagleHead:
    """Return the head in ``folder`` for a loaded target, in its dtype and on its device.

    Raises ``IncompatibleModels`` for a target of another width or vocabulary, ``ModelUnavailable`` for files that are
    missing, broken or of another kind.
    """
    folder = Path(folder)
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = _rename_tensors(_read(folder))
        head = _build(settings, weights, target, folder)
    except IncompatibleModels:
        raise
    except Exception as error:  # safetensors, transformers and torch raise any exception
        raise ModelUnavailable(
            f"The EAGLE head in {folder} cannot be loaded ({type(error).__name__}): expected config.json and an intact "
            "model.safetensors with fc.weight and layers.0.* or midlayer.*. Restore the folder from where it came."
        ) from error
    return head


def _read(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a head. Most published heads are pickles, from which only tensors are loaded."""
    if (file := folder / "model.safetensors").is_file():
        return load_file(file)
    return torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)


def _rename_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return all tensors under the names of :class:`EagleHead`."""
    renamed = {}
    for name, value in weights.items():
        name = name.removeprefix("model.").replace("midlayer.", _LAYER)
        if name.endswith("rotary_emb.inv_freq"):  # in older files, though the configuration implies it
            continue
        if "gate_up_proj" in name:
            for part, rows in zip(("gate_proj", "up_proj"), value.chunk(2), strict=True):
                renamed[name.replace("gate_up_proj", part)] = rows
        else:
            renamed[name] = value
    return renamed


def _build(settings: dict[str, Any], weights: dict[str, Tensor], target: PreTrainedModel, folder: Path) -> EagleHead:
    config = cast(LlamaConfig, LlamaConfig.from_dict(settings))
    _split_qkv(weights, config)
    generation: Generation = 3 if f"{_LAYER}hidden_norm.weight" in weights else 1
    width, expected = weights["fc.weight"].shape[1] // (2 if generation == 1 else 3), target.config.hidden_size
    if width != expected:
        raise IncompatibleModels(
            f"The EAGLE head in {folder} reads states of width {width}, and those of the target have {expected}: "
            "choose the head that was trained for this target."
        )
    target_embedding: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    embedding = weights.pop("embed_tokens.weight", target_embedding).to(target_embedding)
    lm_head = _take_lm_head(weights, settings, target)
    if len(embedding) != lm_head.vocabulary:
        raise IncompatibleModels(
            f"The EAGLE head in {folder} knows {len(embedding)} tokens, and the target {lm_head.vocabulary}: choose "
            "the head that was trained for this target."
        )
    eagle_head = EagleHead(
        config, generation, embedding, lm_head,
        state_width=expected,
        bias=f"{_LAYER}self_attn.q_proj.bias" in weights,
        fc_bias="fc.bias" in weights,
    )  # fmt: skip
    missing, unexpected = eagle_head.load_state_dict(weights, strict=False)
    if unexpected or any(not name.startswith("lm_head.") for name in missing):
        raise KeyError("tensors of other names")
    return eagle_head.to(device=target_embedding.device, dtype=target_embedding.dtype)


def _take_lm_head(weights: dict[str, Tensor], settings: dict[str, Any], target: PreTrainedModel) -> ReducedHead:
    """Remove the LM head's tensors from ``weights`` and return the LM head."""
    offsets, drafted = weights.pop("d2t", None), weights.pop("t2d", None)
    weight, vocabulary = weights.pop("lm_head.weight", None), target.config.vocab_size
    if drafted is not None and len(drafted) != vocabulary:
        raise IncompatibleModels(
            f"The EAGLE head was trained for {len(drafted)} tokens, and the target has {vocabulary}: choose the head "
            "that was trained for this target."
        )
    tokens = None if offsets is None else torch.arange(len(offsets)) + offsets
    tail_mass = float(settings.get("rest_share", 0.0))
    if weight is None:
        return _target_lm_head(target, tokens, tail_mass)
    return ReducedHead(weight, torch.arange(len(weight)) if tokens is None else tokens, vocabulary, tail_mass)


def _split_qkv(weights: dict[str, Tensor], config: LlamaConfig) -> None:
    _, queries, keys = attention_sizes(config)
    for kind in ("weight", "bias"):
        fused = weights.pop(f"{_LAYER}self_attn.qkv_proj.{kind}", None)
        if fused is not None:
            for part, rows in zip("qkv", fused.split([queries, keys, keys]), strict=True):
                weights[f"{_LAYER}self_attn.{part}_proj.{kind}"] = rows
