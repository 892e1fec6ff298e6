"""EAGLE heads in folders: ``config.json`` and tensors, as safetensors or as the pickle that the authors published.

The layouts that are read are described in :mod:`fsd_core.models.eagle_config` and :mod:`fsd_core.models.eagle_tensors`.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.eagle import EagleHead, Generation
from fsd_core.models.eagle_config import read_settings
from fsd_core.models.eagle_tensors import EMBEDDING, LAYER, LM_HEAD, assemble_head, rename_tensors, target_lm_head
from fsd_core.models.json_files import LARGEST_JSON, bounded_text


def new_head(
    target: PreTrainedModel, generation: Generation, tokens: Tensor | None = None, tail_mass: float = 0.0
) -> EagleHead:
    """Return an untrained head with the width and the dtype of a Llama ``target``.

    ``tokens``: int64 [K], its reduced vocabulary, all tokens by default. ``tail_mass``: the total probability of
    the others.
    """
    layer = target.config.get_text_config(decoder=True).to_dict() | {"num_hidden_layers": 1}
    config = cast(LlamaConfig, LlamaConfig.from_dict(layer))
    lm_head = target_lm_head(target, tokens, tail_mass)
    embedding: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    eagle_head = EagleHead(config, generation, embedding, lm_head, state_width=config.hidden_size)
    return eagle_head.to(device=embedding.device, dtype=embedding.dtype)


def save_head(head: EagleHead, folder: Path, about: dict[str, Any]) -> None:
    """Save the weights that are not the target's, in bfloat16. ``about`` is merged into ``config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    state = head.state_dict()
    shared = ("lm_head.", "embedding")
    weights = {name: value for name, value in state.items() if not name.startswith(shared)}
    weights |= {name: {EMBEDDING: head.embedding, LM_HEAD: head.lm_head.weight}[name] for name in head.owns}
    weights = {name: value.bfloat16().contiguous() for name, value in weights.items()}
    tokens, vocabulary = head.lm_head.tokens, head.lm_head.vocabulary
    if head.generation == 3:
        weights = {name.replace(LAYER, "midlayer."): value for name, value in weights.items()}
    if len(tokens) < vocabulary:
        drafted = torch.zeros(vocabulary, dtype=torch.bool)
        drafted[tokens] = True
        weights |= {"d2t": tokens - torch.arange(len(tokens)), "t2d": drafted}
    config = head.config.to_dict() | {
        "architectures": ["LlamaForCausalLMEagle3" if head.generation == 3 else "LlamaForCausalLMEagle"],
        "draft_vocab_size": len(tokens),
        **{key: value for key, value in asdict(head.variant).items() if value},
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

    Raises ``IncompatibleModels`` for a target of another width, vocabulary or depth, ``ModelUnavailable`` for files
    that are missing, broken or of another kind, and for settings and tensors that are not known.
    """
    folder = Path(folder)
    who = f"The EAGLE head in {folder}"
    try:
        told = json.loads(bounded_text(folder / "config.json", LARGEST_JSON))
        settings = read_settings(told, target.config.get_text_config(decoder=True).num_hidden_layers, who)
        return assemble_head(settings, rename_tensors(_read(folder)), target, who)
    except (IncompatibleModels, ModelUnavailable):
        raise
    except Exception as error:  # safetensors, transformers and torch raise any exception
        raise ModelUnavailable(
            f"{who} cannot be loaded ({type(error).__name__}): expected config.json and an intact "
            "model.safetensors with fc.weight and layers.0.* or midlayer.*. Restore the folder from where it came."
        ) from error


def _read(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a head. Most published heads are pickles, from which only tensors are loaded."""
    if (file := folder / "model.safetensors").is_file():
        return load_file(file)
    file = folder / "pytorch_model.bin"
    if zipfile.is_zipfile(file):  # as torch has written it since 2020: nothing in it is compressed
        with zipfile.ZipFile(file) as archive:
            if sum(info.file_size for info in archive.infolist()) > file.stat().st_size:
                raise ValueError("it unpacks to more than it is")
    return torch.load(file, map_location="cpu", weights_only=True)
