"""A pair as folders that serving engines read: plain Llamas with heads of a size that attention kernels take.

    python -m engines.served_pair bundled FOLDER

writes ``FOLDER/target`` and ``FOLDER/draft``, a build product. Heads are widened by zero columns to a multiple of 64.
Queries are scaled and the rotary base is raised, so that scores and frequencies stay. Logits change by rounding alone.
A draft with a reduced head (:mod:`fsd_core.models.draft_weights`) is written with the target's whole head: its own
tokens keep their logits, and the others get one each in place of an equal share.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from fsd_core.errors import FsdError, UnfitModel
from fsd_core.library.text_decoder import load_pair
from fsd_core.models.draft_weights import ReducedHead

HEAD_STEP = 64


def write_pair(name: str, folder: Path) -> None:
    """Write the target and the draft of a pair. Raises ``InvalidSetting`` for models that are no Llamas, and as
    :func:`fsd_core.load_pair` does."""
    pair = load_pair(name, device="cpu")
    target, draft = pair.target.module, pair.draft.module
    for part, module in (("target", target), ("draft", draft)):
        if not isinstance(module, LlamaForCausalLM):
            raise UnfitModel(f"The {part} of '{name}' is no Llama ({type(module).__name__}): serve it as it is.")
    for part, module in (("target", target), ("draft", draft)):
        place = folder / part
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        config, weights = served(module, target)
        pair.tokenizer.save_pretrained(place)
        (place / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_file(weights, place / "model.safetensors", {"format": "pt"})


def served(module: Any, target: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights of a Llama, its heads widened and its LM head whole."""
    config = module.config.to_dict()
    weights = {name: value.detach() for name, value in module.state_dict().items()}
    if isinstance(module.lm_head, ReducedHead):
        weights["lm_head.weight"] = target.get_output_embeddings().weight.detach()
        weights.pop("lm_head.tokens")
        for key in ("embedding_of", "head_tokens", "rest_share"):
            config.pop(key, None)
    elif config["tie_word_embeddings"]:
        weights.pop("lm_head.weight", None)
    old = config["head_dim"]
    new = -(-old // HEAD_STEP) * HEAD_STEP
    if new != old:
        for name, value in weights.items():
            kind = name.rpartition("_proj.weight")[0].rpartition(".")[2]
            if kind in ("q", "k", "v", "o"):
                weights[name] = widened(value, kind, old, new)
        rope = config["rope_parameters"]
        if rope["rope_type"] != "default" or config["attention_bias"]:
            raise UnfitModel("Only Llamas with default rotary embeddings and without biases can be widened.")
        config |= {"head_dim": new, "rope_parameters": rope | {"rope_theta": rope["rope_theta"] ** (new / old)}}
    return config, {name: value.clone().contiguous() for name, value in weights.items()}


def widened(weight: Tensor, kind: str, old: int, new: int) -> Tensor:
    """Return a projection (``q``, ``k``, ``v``, ``o``) whose heads have ``new`` in place of ``old`` dimensions.

    Rotary embeddings turn dimension i with i + half, so each half of q and k keeps its place in the wider half. With
    the base raised to the power new/old, frequency i is what it was.
    """
    if kind == "o":
        return widened(weight.T, "v", old, new).T
    heads = weight.shape[0] // old
    rows = torch.arange(old)
    if kind in ("q", "k"):
        rows = torch.where(rows < old // 2, rows, rows - old // 2 + new // 2)
    wide = weight.new_zeros(heads, new, weight.shape[1])
    wide[:, rows] = weight.view(heads, old, -1) * ((new / old) ** 0.5 if kind == "q" else 1.0)
    return wide.view(heads * new, -1)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("Expected: python -m engines.served_pair PAIR FOLDER", file=sys.stderr)
        return 2
    try:
        write_pair(arguments[0], Path(arguments[1]))
    except FsdError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
