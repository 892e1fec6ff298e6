"""``config.json`` of an EAGLE head, as EAGLE, SpecForge, SGLang, vLLM, ModelOpt and speculators write it.

Most are one flat object, a Llama's with ``draft_vocab_size``. Speculators keeps the layer's settings in
``transformer_layer_config`` and its own beside it. SpecForge and ModelOpt put what is EAGLE's into ``eagle_config``. A
key that is not known may change what the head computes, so it is refused.

Layer ids count in two ways. At the top level, where vLLM and speculators write them, i is the input of layer i, as in
``AuxHiddenStates``. In ``eagle_config`` SpecForge and ModelOpt mean the output of layer i, which is the input of layer
i + 1, but some heads count inputs there. SGLang tells them apart by the first id: outputs begin at 1, inputs at 2, and
both mean the same state. Ids that this does not settle are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from transformers import LlamaConfig, PreTrainedConfig

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.eagle import HeadVariant, aux_hidden_state_layers

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
