"""Published EAGLE heads: their folders, configurations and tensors.

``config.json`` of an EAGLE head, as EAGLE, SpecForge, SGLang, vLLM, ModelOpt and speculators write it.

Most are one flat object, a Llama's with ``draft_vocab_size``. Speculators keeps the layer's settings in
``transformer_layer_config`` and its own beside it. SpecForge and ModelOpt put what is EAGLE's into ``eagle_config``. A
key that is not known may change what the head computes, so it is refused.

Layer ids count in two ways. At the top level, where vLLM and speculators write them, i is the input of layer i, as in
``AuxHiddenStates``. In ``eagle_config`` SpecForge and ModelOpt mean the output of layer i, which is the input of layer
i + 1, but some heads count inputs there. SGLang tells them apart by the first id: outputs begin at 1, inputs at 2, and
both mean the same state. Ids that this does not settle are refused.

Tensors of published EAGLE heads: their names and shapes, and a head made of them.

Generation 1 and 2: ``fc.weight`` [H,2H], ``fc.bias`` in some, ``layers.0.*``. Generation 3: ``fc.weight`` [H,3H'],
``midlayer.*`` (``layers.0.*`` in some), ``norm.weight``, ``lm_head.weight`` [K,H], ``d2t`` int64 [K] (the offset from a
drafted token's id to the target's) and ``t2d`` bool [V]; with norms before ``fc``, ``input_norm.weight`` [3H'] or
``fc_norm.0.weight`` [H'] and so on. Either may hold ``embed_tokens.weight``. A missing embedding or LM head is the
target's. Projections may be fused (``qkv_proj``, ``gate_up_proj``). Speculators calls generation 1's ``fc`` and
``layers.0`` ``fusion_fc`` and ``transformer``.

EAGLE heads in folders: ``config.json`` and tensors, as safetensors or as the pickle that the authors published.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.draft_weights import (
    PLAIN,
    EagleHead,
    Generation,
    HeadVariant,
    ReducedHead,
    attention_sizes,
    aux_hidden_state_layers,
)
from fsd_core.models.language_model import vocabulary_of
from fsd_core.models.sources import LARGEST_JSON, bounded_text

_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_OWN_LAYERS = "aux_hidden_state_layers"
_VARIANT_FLAGS = [field.name for field in fields(HeadVariant) if field.name != _OWN_LAYERS]

_IN_FORCE = {
    "attention_bias", "bias", "draft_vocab_size", "eagle_config", "fusion_bias", "head_dim", "hidden_act",
    "hidden_size", "intermediate_size", "layer_types", "max_position_embeddings", "mlp_bias", "num_attention_heads",
    "num_aux_hidden_states", "num_key_value_heads", "qkv_bias", "rms_norm_eps", "rope_parameters", "rope_scaling",
    "rope_theta", "sliding_window", "target_hidden_size", "tie_word_embeddings", "truncated_vocab_size", "vocab_size",
    _LAYER_IDS, _OWN_LAYERS,
}  # fmt: skip
"""keys that are read, here or by ``eagle_tensors``"""

_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama", "qwen2", "mistral", "phi3"),
    "num_hidden_layers": (1,),
    "speculators_model_type": ("eagle", "eagle3"),
    "transformer_layer_architecture": ("LlamaDecoderLayer",),
    "inference_type": ("text",),
    "layernorms": (False,),
    "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
    "use_aux_norm": (False,),
    "next_layer_regular": (True,),
    "additional_fc": (False,),
    "parallel_draft_step": (1,),
    "parallel_drafting": (False,),
    "use_sliding_window": (False,),
    "is_causal": (True,),
    "logit_scale": (1.0,),
    "partial_rotary_factor": (1.0,),
    "rope_interleaved": (False,),
    **dict.fromkeys(_VARIANT_FLAGS, (False, True)),
}
"""keys and the only values that heads support here"""

_WITHOUT_EFFECT = {
    *PreTrainedConfig().to_dict(),
    "add_cross_attention", "attention_dropout", "auto_map", "bad_words_ids", "base_model_ep_plan",
    "base_model_pp_plan", "base_model_tp_plan", "begin_suppress_tokens", "cross_attention_hidden_size",
    "decoder_sparse_step", "diversity_penalty", "do_sample", "early_stopping", "embed_requires_grad",
    "enable_sp_ulysses", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "has_lm_head", "has_no_defaults_at_init", "initializer_range", "is_decoder", "is_llama_config",
    "length_penalty", "max_length", "max_window_layers", "min_length", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_return_sequences", "output_scores", "parallel_draft_heads_num_layers", "prefix",
    "pretraining_tp", "pruned_heads", "remove_invalid_values", "repetition_penalty", "reuse_target_lm_head",
    "return_dict_in_generate", "speculators_config", "speculators_version", "suppress_tokens", "target_model_type",
    "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k",
    "top_p", "torch_dtype", "torchscript", "transformers.js_config", "typical_p", "use_bfloat16", "use_cache",
}  # fmt: skip
"""keys about storing, training and generating; so are ``_…``, ``…_token_id`` and ``…_token_ids``"""

_LLAMA = {*LlamaConfig().to_dict(), "rope_scaling", "rope_theta"} - {"model_type", "transformers_version"}

_MADE_HERE = ("head_of", "rest_share")
"""keys of ``save_head``, whose other keys are the target's and had no effect when the head was trained"""


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a head from ``config.json``. ``config``: a Llama's, for the layer."""

    config: LlamaConfig
    variant: HeadVariant
    flat: Mapping[str, Any]
    """all keys on one level"""


def read_settings(told: Mapping[str, Any], layers: int, who: str) -> HeadSettings:
    """Return the settings in ``told``, the content of ``config.json``, for a target with ``layers`` layers.

    ``who`` begins the sentences of errors. Raises ``ModelUnavailable`` for a key or a value that is not known, and
    ``IncompatibleModels`` for layers that the target does not have.
    """
    flat = _flatten(told, who)
    rope = flat.get("rope_scaling") or {}
    if "mrope_section" in rope and rope.get("rope_type", rope.get("type", "default")) in ("mrope", "default"):
        flat["rope_scaling"] = None  # without pictures the three positions of a token are one
    if not any(key in flat for key in _MADE_HERE):
        for key, value in flat.items():
            _check_key(key, value, who)
        _check_attention(flat, who)
    variant = HeadVariant(
        aux_hidden_state_layers=_read_layers(flat, layers, who),
        **{name: bool(flat.get(name)) for name in _VARIANT_FLAGS},
    )
    if variant.norm_before_fc and variant.fc_norm:
        raise ModelUnavailable(
            f"{who} sets both 'norm_before_fc' and 'fc_norm' in its config.json: expected one, since a state is normed "
            "once. Set the one without tensors to false."
        )
    layer = {key: value for key, value in flat.items() if key in _LLAMA} | {"num_hidden_layers": 1}
    config = LlamaConfig.from_dict(layer)
    return HeadSettings(cast(LlamaConfig, config), variant, flat)


def _flatten(told: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return all keys on one level. The ids of ``eagle_config`` stay there, where they count differently."""
    flat = dict(told)
    layer: Mapping[str, Any] | None = flat.pop("transformer_layer_config", None)
    if layer is not None:
        flat.pop("model_type", None)  # the container's, not the layer's
        flat = {**layer, **flat}
        if flat.get("speculators_model_type") == "eagle3" and flat.get("norm_before_residual") is None:
            raise ModelUnavailable(
                f"{who} does not say 'norm_before_residual' in its config.json, for which vLLM and speculators assume "
                "different values: add it as the head was trained, true or false."
            )
    inner: Mapping[str, Any] = flat.get("eagle_config") or {}
    for key, value in inner.items():
        if key == _LAYER_IDS:
            continue
        if flat.get(key, value) != value:
            raise ModelUnavailable(
                f"{who} sets '{key}' to {flat[key]!r} and, in 'eagle_config', to {value!r}: remove the one with which "
                "it was not trained from its config.json."
            )
        flat[key] = value
    return flat


def _check_key(key: str, value: object, who: str) -> None:
    """Raise ``ModelUnavailable`` unless the key is known and its value is one with which a head is computed here."""
    if value is None or key.startswith("_") or key.endswith(("_token_id", "_token_ids")):
        return
    if key in _ACCEPTED:
        if value not in _ACCEPTED[key]:
            expected = " or ".join(repr(one) for one in _ACCEPTED[key])
            raise ModelUnavailable(
                f"{who} sets '{key}' to {value!r} in its config.json, and heads are drafted with only for {expected}: "
                "choose another head."
            )
    elif key not in _IN_FORCE | _WITHOUT_EFFECT:
        raise ModelUnavailable(
            f"{who} has the key '{key}' in its config.json, which is not known and may change what the head computes: "
            "choose another head, or remove the key if it concerns training only."
        )


def _check_attention(flat: Mapping[str, Any], who: str) -> None:
    """Raise ``ModelUnavailable`` for a sliding window, and for positions that are rotated in another way."""
    kinds = set(flat.get("layer_types") or ())
    slides = flat.get("sliding_window") is not None and flat.get("use_sliding_window") is not False and not kinds
    if slides or kinds - {"full_attention"}:
        raise ModelUnavailable(
            f"{who} attends within a sliding window ('{'sliding_window' if slides else 'layer_types'}' in its "
            "config.json), and heads are drafted with only if they attend to the whole text: choose another head."
        )
    rope: Mapping[str, Any] = flat.get("rope_parameters") or flat.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn") or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelUnavailable(
            f"{who} rotates positions as {dict(rope)} in its config.json, and heads are drafted with only for whole "
            "heads rotated as 'default', 'linear', 'llama3' or 'yarn': choose another head."
        )


def _read_layers(flat: Mapping[str, Any], layers: int, who: str) -> tuple[int, ...] | None:
    """Return the layers whose inputs the head reads; ``None``: the usual three."""
    inner: Mapping[str, Any] = flat.get("eagle_config") or {}
    lists = {
        f"'{_OWN_LAYERS}'": flat.get(_OWN_LAYERS),
        f"'{_LAYER_IDS}'": flat.get(_LAYER_IDS),
        f"'{_LAYER_IDS}' of 'eagle_config'": inner.get(_LAYER_IDS),
    }
    named = {place: list(ids) for place, ids in lists.items() if ids}
    if not named:
        return None
    (place, ids), *others = named.items()
    if others or not all(type(i) is int for i in ids) or sorted(set(ids)) != ids:
        raise ModelUnavailable(
            f"{who} has {' and '.join(f'{where}: {value}' for where, value in named.items())} in its config.json: "
            "expected one list of layers, in rising order. Keep the one with which the head was trained."
        )
    inputs = _as_inputs(ids, place, layers, who)
    if inputs[0] < 0 or inputs[-1] >= layers:
        raise IncompatibleModels(
            f"{who} reads the inputs of the target's layers {', '.join(map(str, inputs))}, and those of layers 0 to "
            f"{layers - 1} can be read: choose the head that was trained for this target."
        )
    return inputs


def _as_inputs(ids: list[int], place: str, layers: int, who: str) -> tuple[int, ...]:
    """Return layer ids as the layers whose inputs they mean. Raises ``ModelUnavailable`` if that cannot be told."""
    usual = aux_hidden_state_layers(3, layers)
    if place == f"'{_OWN_LAYERS}'" or tuple(ids) == usual or ids[-1] == layers:  # no output has the number of layers
        return tuple(ids)
    is_top = place == f"'{_LAYER_IDS}'"
    if is_top and ids[0] != 1:
        return tuple(ids)
    if not is_top and ids[0] == 1:
        return tuple(i + 1 for i in ids)
    raise ModelUnavailable(
        f"{who} has {place}: {ids} in its config.json, where some authors mean inputs of layers and others "
        f"outputs: replace it by '{_OWN_LAYERS}', the layers whose inputs the head was trained on, such as "
        f"{[i + 1 for i in ids]} if {ids} are outputs."
    )


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
