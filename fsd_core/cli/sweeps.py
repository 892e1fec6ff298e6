"""What a sweep measures: its rules, drafters and shapes with one another, each with the options that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from fsd_core.cli.options import split_thresholds
from fsd_core.cli.settings import DRAFTING, build_decoding
from fsd_core.config import (
    LOOKUP,
    RULES,
    TREE,
    VERIFIERS,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    MultiDraftTopology,
    Speculative,
)


def families(
    rules: Sequence[str],
    drafters: Sequence[str | None],
    shapes: Sequence[str | None],
    thresholds: str | None,
    **options: Any,
) -> list[DecodingConfig]:
    """Every rule with every drafter in every shape at every threshold, each setting once.

    ``None`` is what was not given; ``options`` are further ones of ``build_decoding``. Of several rules, drafters and
    shapes, those that read an option are given it. Raises ``InvalidSetting`` for one that none of them reads, and as
    ``build_decoding`` does.
    """
    found = {}
    forms = list(product(rules, drafters, shapes))
    for form in forms:
        rule, drafter, shape = form
        given = {**options, "drafter": drafter, "shape": shape, "thresholds": thresholds}
        own: dict[str, Any] = {
            option: value if _reads(form, option) or not any(_reads(other, option) for other in forms) else None
            for option, value in given.items()
        }
        for threshold in split_thresholds(own.pop("thresholds"), rule):
            setting = build_decoding(acceptance=rule, threshold=threshold, threshold_flag="--thresholds", **own)
            found[setting] = None
    return list(found)


def _reads(form: tuple[str, str | None, str | None], option: str) -> bool:
    """Whether a rule, with a drafter in a shape, reads an option."""
    rule, drafter, shape = form
    match option:
        case "thresholds":
            return "threshold" in RULES[rule].model_fields
        case "divergence" | "guard" | "divergence_top_k":
            return option in RULES[rule].model_fields
        case "drafts":  # how many spec-hub takes is given
            return rule in VERIFIERS and rule != "spec-hub"
        case "shape":
            return rule in DRAFTING and rule not in VERIFIERS
        case "tree_width" | "tree_tokens":
            return shape == TREE and _reads(form, "shape")
        case "max_ngram":
            return drafter == LOOKUP and rule in DRAFTING
        case "drafter" | "draft_length":
            return rule in DRAFTING
    return True


def with_baselines(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """The same settings behind the target alone and exact SD: with each drafter in each shape that a rule of single
    drafts judges among them, and a chain where there is none."""
    first = decodings[0]
    shared = {"sampling": first.sampling, "max_new_tokens": first.max_new_tokens}
    shapes = dict.fromkeys(
        (
            decoding.drafter,
            decoding.topology
            if not isinstance(decoding.topology, MultiDraftTopology)
            else ChainTopology(length=decoding.topology.length),
        )
        for decoding in decodings
        if decoding.topology is not None
    )
    exact = [
        DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=topology, **shared)
        for drafter, topology in shapes
    ]
    return list(dict.fromkeys([DecodingConfig(acceptance=Autoregressive(), **shared), *exact, *decodings]))


def experiment_name(decodings: Sequence[DecodingConfig], task: str) -> str:
    """What a sweep is called where nobody named it, such as ``FSD reducible · js 0.05 to 0.6 on arithmetic``."""
    numbers = sorted({decoding.threshold for decoding in decodings if decoding.threshold is not None})
    words = [" to ".join(f"{number:g}" for number in dict.fromkeys((numbers[0], numbers[-1])))] if numbers else []
    words += ["off"] * any(
        decoding.threshold is None and "threshold" in type(decoding.acceptance).model_fields for decoding in decodings
    )
    first, *others = dict.fromkeys(decoding.family(" and ".join(words)) for decoding in decodings)
    more = f" and {len(others)} others" if len(others) > 1 else "".join(f" and {other}" for other in others)
    return f"{first}{more} on {task}"
