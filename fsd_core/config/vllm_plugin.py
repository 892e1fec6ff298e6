"""Definitions shared with our plug-in for vLLM: names, tested versions, rules, and how a rule is written.

The plug-in (``engines/vllm``) imports this module. Torch and vLLM are not imported here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsd_core.errors import Malformed, NoEquivalent, UnfitEngine
from fsd_core.frozen import before_fields
from fsd_core.rules import INFINITE_WITHOUT_Q, RULES, TOP_K, Rule

PLUGIN, PLUGIN_VERSION = "fsd-lab-vllm", "0.1.0"
VLLM_VERSIONS = ("0.32.0",)
"""versions of vLLM that the plug-in was tested with; it refuses others"""
RULE_VARIABLE, KNOB_VARIABLE = "FSD_LAB_RULE", "FSD_LAB_KNOB"
CONFIG_KEY = "fsd_lab"
"""key of the rule in vLLM's ``--additional-config``"""
OFF_KIND = "off"
"""in place of a rule's kind: vLLM as it comes"""
WORKER_EXTENSION = "fsd_lab_vllm.worker.RuleExtension"
"""value of vLLM's ``--worker-extension-cls``"""
SERVED_RULES = (
    "fsd", "fsd-reducible", "fsd-head", "lenience", "head", "head-strict", "typical", "top-n-delta", "margin",
)  # fmt: skip
"""kinds of the rules that the plug-in brings into vLLM"""
LEAST_TEMPERATURE = 0.2
"""Lowest temperature above 0 at which the plug-in measures a divergence. vLLM keeps q at the request's temperature in
float32. Below this one, tokens of raw probability e^(−103·temperature) are lost on the way back to temperature 1."""


def served_rule(value: str | Mapping[str, Any], knob: str | float | None = None) -> Rule | None:
    """Return the rule that a text or an object names; ``None`` for ``off``, which is vLLM as it comes.

    ``value``: a kind, or an object (as JSON text or a mapping) with ``kind`` and fields of the rule. ``knob``: value of
    the rule's knob, a number or ``off``. Raises ``InvalidSetting`` for what is no such rule, and for rules that the
    plug-in does not serve.
    """
    options = dict(value) if isinstance(value, Mapping) else _read(value)
    kind = options.get("kind")
    if kind == OFF_KIND:
        return None
    if kind not in SERVED_RULES:
        raise UnfitEngine(f"vLLM is given no rule '{kind}' by {PLUGIN}: expected off, or {', '.join(SERVED_RULES)}.")
    rule = RULES[kind]
    if knob is not None:
        assert rule.knob is not None
        options[rule.knob.field] = _number(knob)
    return rule.checked(**options)


def _read(text: str) -> dict[str, Any]:
    text = text.strip() or "off"
    if not text.startswith("{"):
        return {"kind": text}
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Malformed(
            f"The rule {text[:80]!r} is no JSON ({error}): expected a name such as fsd-reducible, or an object such as "
            '{"kind": "fsd-reducible", "threshold": 0.1}.'
        ) from None


def _number(knob: str | float) -> float | None:
    if str(knob).strip() == "off":
        return None
    try:
        return float(knob)
    except ValueError:
        raise Malformed(f"The knob {str(knob)[:40]!r} is no number: expected a number, or off.") from None


def rule_options(rule: Rule) -> dict[str, Any]:
    """Return a rule as the object that :func:`served_rule` reads, every field included."""
    return before_fields(type(rule)) | rule.as_json()


def told_options(rule: Rule | None) -> dict[str, Any]:
    """Return the message to an engine: a rule's fields as JSON, or ``{"kind": "off"}`` for its own strict test."""
    return {"kind": OFF_KIND} if rule is None or rule.lossless else json.loads(json.dumps(rule_options(rule)))


def is_off(rule: Rule | None) -> bool:
    """Whether vLLM's own test does what the rule does, so that vLLM is left as it comes."""
    return rule is None or (rule.knob is not None and rule.knob.is_off and rule.knob_value == rule.knob.strict)


def reads_draft(rule: Rule) -> bool:
    """Whether the rule reads q of other tokens than the drafted one, so that the draft's probabilities are needed."""
    return hasattr(rule, "divergence") or rule.needs_distribution


def check_copies(rule: Rule) -> None:
    """Raise ``NoEquivalent`` if the rule cannot judge copied tokens (n-grams), which have no distribution."""
    infinite = str(getattr(rule, "divergence", "")).removeprefix(TOP_K) in INFINITE_WITHOUT_Q
    if rule.needs_distribution or infinite:
        raise NoEquivalent(
            f"{rule.title} needs the probabilities of a draft model, which copied n-grams do not have: serve with a "
            "draft model, or choose typical, top-n-delta, margin or head-strict."
        )
