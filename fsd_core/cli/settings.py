"""From the options of a command to the configuration they amount to, refused in words of what was typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from fsd_core.config import (
    BASELINES,
    CHAIN,
    DIVERGENCES,
    DRAFTERS,
    RULES,
    TOP_K,
    TREE,
    VERIFIERS,
    DecodingConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    Frozen,
    SamplingConfig,
    sentence,
    shape_for,
)
from fsd_core.config.thresholds import parse_threshold
from fsd_core.errors import InvalidSetting

Value = TypeVar("Value", bound=Frozen)

_FLAGS = {"length": "--draft-length", "total_tokens": "--tree-tokens", "seeds": "--seed"}
DRAFTING = [kind for kind in RULES if kind not in BASELINES]
_THRESHOLD = "--threshold"


def flag(field: str) -> str:
    """The option that sets a field of the configuration."""
    return _FLAGS.get(field, "--" + field.replace("_", "-"))


def checked(model: type[Value], **values: Any) -> Value:
    """Builds the value; raises ``InvalidSetting`` with one sentence that names the option at fault."""

    def typed(path: Sequence[int | str]) -> str:
        """The option behind ``acceptance.fsd.divergence_top_k`` or ``seeds.0``."""
        field = [part for part in path if isinstance(part, str)][-1]
        # A tree has a top-k of its own, beside that of the sampling.
        return "--tree-width" if (model, field) == (DynamicTreeTopology, "top_k") else flag(field)

    try:
        return model(**values)
    except ValidationError as error:
        raise InvalidSetting(sentence(error, typed)) from None


def build_decoding(
    *,
    acceptance: str,
    divergence: str | None = None,
    threshold: str | None = None,
    guard: bool | None = None,
    divergence_top_k: int | None = None,
    drafter: str | None = None,
    draft_length: int | None = None,
    drafts: int | None = None,
    shape: str | None = None,
    tree_width: int | None = None,
    tree_tokens: int | None = None,
    max_ngram: int | None = None,
    temperature: float,
    top_p: float,
    top_k: int,
    max_new_tokens: int,
    threshold_flag: str = _THRESHOLD,
) -> DecodingConfig:
    """The decoding these options ask for; ``None`` is an option that was not given.

    ``threshold_flag`` is what the threshold was typed as. Raises ``InvalidSetting`` for a value out of range and for an
    option that the chosen rule, divergence or drafter does not read.
    """
    rule: dict[str, Any] = {"kind": acceptance}
    flags = {"threshold": threshold_flag, "guard": "--no-guard" if guard is False else "--guard"}
    of_rule = {
        "divergence": divergence, "threshold": threshold, "guard": guard, "divergence_top_k": divergence_top_k,
    }  # fmt: skip
    for field, value in of_rule.items():
        if value is not None:
            _check_read(flags.get(field, flag(field)), "rule", acceptance, _readers(RULES, field))
            rule[field] = _threshold(acceptance, str(value)) if field == "threshold" else value
    if divergence_top_k is not None:
        chosen = divergence or RULES[acceptance].model_fields["divergence"].default
        _check_read(flag("divergence_top_k"), "divergence", chosen, [d for d in DIVERGENCES if d.startswith(TOP_K)])

    values: dict[str, Any] = {"acceptance": rule, "max_new_tokens": max_new_tokens}
    for field, value in {"drafter": drafter, "length": draft_length, "max_ngram": max_ngram}.items():
        if value is not None:
            _check_read(flag(field), "rule", acceptance, DRAFTING)
    if max_ngram is not None:
        _check_read("--max-ngram", "drafter", drafter or DraftModelDrafter().kind, _readers(DRAFTERS, "max_ngram"))
    if drafter is not None:
        values["drafter"] = {"kind": drafter} | ({} if max_ngram is None else {"max_ngram": max_ngram})
    if drafts is not None:
        _check_read("--drafts", "rule", acceptance, list(VERIFIERS))
    if shape is not None:
        _check_read("--shape", "rule", acceptance, [kind for kind in DRAFTING if kind not in VERIFIERS])
    for field, value in {"tree_width": tree_width, "tree_tokens": tree_tokens}.items():
        if value is not None:
            _check_read(flag(field), "shape", shape or CHAIN, [TREE])
    if acceptance in DRAFTING:
        usual = shape_for(acceptance, tree=shape == TREE)
        given = {"length": draft_length, "drafts": drafts, "top_k": tree_width, "total_tokens": tree_tokens}
        given = {field: value for field, value in given.items() if value is not None}
        values["topology"] = checked(type(usual), **usual.model_dump() | given)
    sampling = checked(SamplingConfig, temperature=temperature, top_p=top_p, top_k=top_k)
    return checked(DecodingConfig, **values, sampling=sampling)


def _threshold(acceptance: str, text: str) -> float | None:
    value = parse_threshold(text)
    if value is None and RULES[acceptance].model_fields["threshold"].annotation is float:
        raise InvalidSetting(f"The rule '{acceptance}' cannot be off: give a threshold, or choose 'speculative'.")
    return value


def _readers(union: dict[str, type[Any]], field: str) -> list[str]:
    return [kind for kind, model in union.items() if field in model.model_fields]


def _check_read(option: str, what: str, chosen: str, readers: Sequence[str]) -> None:
    """Raises ``InvalidSetting`` for an option that was given though what was chosen does not read it."""
    if chosen not in readers:
        others = f"choose from {', '.join(readers)}" if len(readers) > 1 else f"choose {readers[0]}"
        raise InvalidSetting(f"{option} does not apply to the {what} '{chosen}': leave it out, or {others}.")
