"""Tensors of published EAGLE heads: their names and shapes, and a head made of them.

Generation 1 and 2: ``fc.weight`` [H,2H], ``fc.bias`` in some, ``layers.0.*``. Generation 3: ``fc.weight`` [H,3H'],
``midlayer.*`` (``layers.0.*`` in some), ``norm.weight``, ``lm_head.weight`` [K,H], ``d2t`` int64 [K] (the offset from a
drafted token's id to the target's) and ``t2d`` bool [V]; with norms before ``fc``, ``input_norm.weight`` [3H'] or
``fc_norm.0.weight`` [H'] and so on. Either may hold ``embed_tokens.weight``. A missing embedding or LM head is the
target's. Projections may be fused (``qkv_proj``, ``gate_up_proj``). Speculators calls generation 1's ``fc`` and
``layers.0`` ``fusion_fc`` and ``transformer``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.eagle import PLAIN, EagleHead, Generation, attention_sizes
from fsd_core.models.eagle_config import HeadSettings
from fsd_core.models.language_model import vocabulary_of
from fsd_core.models.reduced_vocab import ReducedHead

LAYER, EMBEDDING, LM_HEAD = "layers.0.", "embed_tokens.weight", "lm_head.weight"
_OTHER_NAMES = {
    "midlayer.": LAYER,
    "transformer.": LAYER,
    "fusion_fc.": "fc.",
    "aux_norm_low.": "fc_norm.0.",
    "aux_norm_mid.": "fc_norm.1.",
    "aux_norm_high.": "fc_norm.2.",
}
"""beginnings of names in files → in :class:`EagleHead`"""


def rename_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return all tensors under the names of :class:`EagleHead`."""
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        name = name.removeprefix("model.")
        for other, ours in _OTHER_NAMES.items():
            if name.startswith(other):
                name = ours + name.removeprefix(other)
        if name.endswith("rotary_emb.inv_freq"):  # in older files, though the configuration implies it
            continue
        if "gate_up_proj" in name:
            for part, rows in zip(("gate_proj", "up_proj"), value.chunk(2), strict=True):
                renamed[name.replace("gate_up_proj", part)] = rows
        else:
            renamed[name] = value
    return renamed


def target_lm_head(target: PreTrainedModel, tokens: Tensor | None, tail_mass: float) -> ReducedHead:
    """Return an LM head made of rows of the target's. ``tokens``: int64 [K], all by default."""
    weight: Tensor = cast(Any, target.get_output_embeddings()).weight.data
    return _rows_of(weight, tokens, tail_mass)


def _rows_of(weight: Tensor, tokens: Tensor | None, tail_mass: float) -> ReducedHead:
    """Return an LM head made of rows of ``weight``, [V,H]."""
    if tokens is None:
        tokens = torch.arange(len(weight))
    tokens = tokens.to(weight.device)
    whole = len(tokens) == len(weight)
    return ReducedHead(weight if whole else weight[tokens], tokens, len(weight), tail_mass)


def assemble_head(settings: HeadSettings, weights: dict[str, Tensor], target: PreTrainedModel, who: str) -> EagleHead:
    """Return the head of renamed tensors, which are taken out of ``weights``, for a loaded target.

    ``who`` begins the sentences of errors. Raises ``IncompatibleModels`` for a target of another width or vocabulary,
    ``ModelUnavailable`` for tensors that do not fit the settings.
    """
    config, variant = settings.config, settings.variant
    _split_qkv(weights, config)
    generation: Generation = 3 if f"{LAYER}hidden_norm.weight" in weights else 1
    if generation == 1 and variant != PLAIN:
        raise ModelUnavailable(
            f"{who} has settings of EAGLE-3 in its config.json and tensors of EAGLE-1, without 'hidden_norm': expected "
            "both of one generation. Restore the folder from where it came."
        )
    width: int = target.config.get_text_config(decoder=True).hidden_size
    _check_widths(settings, weights["fc.weight"].shape[1], 2 if generation == 1 else variant.num_states, width, who)
    _check_biases(settings, weights, who)
    target_embedding: Tensor = cast(Any, target.get_input_embeddings()).weight.data
    owns = frozenset({EMBEDDING, LM_HEAD} & weights.keys())
    embedding = weights.pop(EMBEDDING, target_embedding).to(target_embedding)
    is_tied = generation == 3 and config.tie_word_embeddings  # that of generation 1 is always the target's
    lm_head = _take_lm_head(weights, settings, target, embedding if is_tied else None, who)
    if len(embedding) != lm_head.vocabulary:
        raise IncompatibleModels(
            f"{who} knows {len(embedding)} tokens, and the target {lm_head.vocabulary}: choose "
            "the head that was trained for this target."
        )
    for name, rows in ((EMBEDDING, embedding), (LM_HEAD, lm_head.weight)):
        if rows.shape[1] != config.hidden_size:
            raise IncompatibleModels(
                f"{who} has states of width {config.hidden_size} and {name} of width {rows.shape[1]}: expected a head "
                "that is not as wide as its target to bring both of its own. Choose another head."
            )
    head = EagleHead(
        config, generation, embedding, lm_head,
        state_width=width,
        bias=f"{LAYER}self_attn.q_proj.bias" in weights,
        fc_bias="fc.bias" in weights,
        variant=variant,
        owns=owns,
    )  # fmt: skip
    missing, unknown = head.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not name.startswith("lm_head.")]
    if missing or unknown:
        lacks = f"it lacks {', '.join(missing)}" if missing else ""
        has = f"it has the unknown {', '.join(unknown)}" if unknown else ""
        raise ModelUnavailable(
            f"{who} cannot be loaded: {' and '.join(filter(None, (lacks, has)))}. Expected the tensors of its "
            "config.json and no others: restore the folder from where it came, or choose another head."
        )
    return head.to(device=target_embedding.device, dtype=target_embedding.dtype)


def _check_widths(settings: HeadSettings, reads: int, parts: int, width: int, who: str) -> None:
    """Raise ``IncompatibleModels`` unless the ``reads`` inputs of the first map are ``parts`` states of a target's
    ``width``, ``ModelUnavailable`` unless there are as many as ``config.json`` says."""
    said = settings.flat.get("target_hidden_size") or width
    if reads != parts * width or said != width:
        raise IncompatibleModels(
            f"{who} reads states of width {reads // parts if said == width else said}, and those of the target have "
            f"{width}: choose the head that was trained for this target."
        )
    if (count := settings.flat.get("num_aux_hidden_states")) not in (None, settings.variant.num_states):
        raise ModelUnavailable(
            f"{who} sets 'num_aux_hidden_states' to {count} in its config.json, and reads "
            f"{settings.variant.num_states} states: name the layers it was trained on in 'aux_hidden_state_layers'."
        )


def _check_biases(settings: HeadSettings, weights: dict[str, Tensor], who: str) -> None:
    """Raise ``ModelUnavailable`` for a bias that ``config.json`` promises and no tensor holds."""
    attention, first = f"{LAYER}self_attn.q_proj.bias", "fc.bias"
    for key, names in (("attention_bias", [attention]), ("qkv_bias", [attention]), ("fusion_bias", [first]),
                       ("bias", [attention, first])):  # fmt: skip
        if settings.flat.get(key) and not any(name in weights for name in names):
            raise ModelUnavailable(
                f"{who} sets '{key}' in its config.json and lacks {' and '.join(names)}: restore the folder from where "
                "it came."
            )


def _take_lm_head(
    weights: dict[str, Tensor], settings: HeadSettings, target: PreTrainedModel, tied: Tensor | None, who: str
) -> ReducedHead:
    """Remove the LM head's tensors from ``weights`` and return the LM head.

    ``tied``: the embedding, [V,H], of whose rows it consists if it has no weight; ``None``: of those of the target's.
    """
    offsets, drafted = weights.pop("d2t", None), weights.pop("t2d", None)
    weight, vocabulary = weights.pop(LM_HEAD, None), vocabulary_of(target)
    if drafted is not None and len(drafted) != vocabulary:
        raise IncompatibleModels(
            f"{who} was trained for {len(drafted)} tokens, and the target has {vocabulary}: choose the head "
            "that was trained for this target."
        )
    tokens = None if offsets is None else torch.arange(len(offsets)) + offsets.long()
    rows = vocabulary if weight is None else len(weight)
    count = rows if tokens is None else len(tokens)
    if tokens is None and rows != vocabulary:
        raise ModelUnavailable(
            f"{who} has an LM head over {rows} of the target's {vocabulary} tokens and lacks d2t, which says over "
            "which: restore the folder from where it came."
        )
    if tokens is not None and (tokens.min() < 0 or tokens.max() >= vocabulary or len(tokens.unique()) != count):
        raise IncompatibleModels(
            f"{who} has a d2t that names a token twice, or one beyond the target's {vocabulary}: choose the head that "
            "was trained for this target."
        )
    for key in ("draft_vocab_size", "truncated_vocab_size"):
        if settings.flat.get(key) not in (None, count) or (weight is not None and rows != count):
            raise ModelUnavailable(
                f"{who} drafts {settings.flat.get(key, rows)} tokens by its config.json and {count} by its tensors: "
                "restore the folder from where it came."
            )
    tail_mass = float(settings.flat.get("rest_share", 0.0))
    if weight is not None:
        return ReducedHead(weight, torch.arange(rows) if tokens is None else tokens, vocabulary, tail_mass)
    return target_lm_head(target, tokens, tail_mass) if tied is None else _rows_of(tied, tokens, tail_mass)


def _split_qkv(weights: dict[str, Tensor], config: LlamaConfig) -> None:
    """Replace fused projections of attention by their parts."""
    _, queries, keys = attention_sizes(config)
    for kind in ("weight", "bias"):
        fused = weights.pop(f"{LAYER}self_attn.qkv_proj.{kind}", None)
        if fused is not None:
            for part, rows in zip("qkv", fused.split([queries, keys, keys]), strict=True):
                weights[f"{LAYER}self_attn.{part}_proj.{kind}"] = rows
