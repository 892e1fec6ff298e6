"""The rule that is on in this process, and what it has counted.

One process holds one model runner, so this is module state. The environment gives it at start, or vLLM's
``--additional-config``; the worker extension changes it between two steps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsd_core.config.vllm_plugin import (
    CONFIG_KEY,
    KNOB_VARIABLE,
    RULE_VARIABLE,
    check_copies,
    is_off,
    reads_draft,
    rule_options,
    served_rule,
)
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.rules import Rule

COPYING = ("ngram", "ngram_gpu", "suffix")
"""methods of vLLM that copy tokens, which have no distribution"""
MODELS = ("draft_model", "eagle", "eagle3", "mtp")
"""methods of vLLM whose draft has a distribution and drafts one token after another"""


@dataclass(frozen=True)
class Drafting:
    """What ``--speculative-config`` says about the drafts: vLLM's method, and whether their probabilities are kept."""

    method: str
    probabilistic: bool


rule: Rule | None = None
"""the rule in force; ``None`` leaves vLLM as it comes"""
drafting: Drafting | None = None
"""``None`` until the model runner is made"""
_asked: Rule | None = None
_in_environment = False
_second_runner = False


def read_environment() -> None:
    """Take the rule from the environment. Raises ``RuntimeError`` with a sentence if none is served by that name."""
    global _asked, _in_environment
    text, knob = os.environ.get(RULE_VARIABLE, ""), os.environ.get(KNOB_VARIABLE) or None
    if knob is not None and not text:
        raise RuntimeError(f"{KNOB_VARIABLE} is {knob!r} without a rule: set {RULE_VARIABLE} too.")
    _in_environment = bool(text)
    _asked = _in_a_sentence(text, knob)


def begin(found: Drafting | None, additional_config: Any, *, second_runner: bool) -> None:
    """Turn on the rule that was asked for, now that the worker knows how it drafts.

    ``found``: ``None`` without speculative decoding. ``additional_config``: that of vLLM. ``second_runner``: whether
    the worker uses vLLM's V2 model runner, which has another rejection step. Raises ``RuntimeError``.
    """
    global drafting, _asked, _second_runner
    drafting, _second_runner = found, second_runner
    configured = additional_config.get(CONFIG_KEY) if isinstance(additional_config, Mapping) else None
    if configured is not None:
        if _in_environment:
            raise RuntimeError(
                f"Both {RULE_VARIABLE} and '{CONFIG_KEY}' of --additional-config name a rule: keep one of them."
            )
        _asked = _in_a_sentence(configured)
    turn_on(_asked)


def change(value: str | Mapping[str, Any], knob: str | float | None = None) -> dict[str, Any]:
    """Replace the rule while vLLM runs, and return what is then in force. Raises ``RuntimeError`` and changes nothing
    if the rule cannot be served."""
    turn_on(_in_a_sentence(value, knob))
    return described()


def turn_on(asked: Rule | None) -> None:
    """Put a rule in force if the drafts have what it reads; else raise ``RuntimeError``."""
    global rule
    if not is_off(asked):
        assert asked is not None
        _check_drafts(asked)
    rule = None if is_off(asked) else asked
    clear_counts()


def _check_drafts(asked: Rule) -> None:
    if _second_runner:
        raise RuntimeError(
            f"{asked.title} is served by vLLM's V1 model runner alone: start vLLM with VLLM_USE_V2_MODEL_RUNNER=0."
        )
    if drafting is None:
        raise RuntimeError(f"{asked.title} judges drafted tokens: serve with --speculative-config.")
    if drafting.method in COPYING:
        try:
            check_copies(asked)
        except FsdError as error:
            raise RuntimeError(str(error)) from None
    elif drafting.method not in MODELS:
        raise RuntimeError(
            f"The speculative method '{drafting.method}' was not tried with {asked.title}: use one of "
            f"{', '.join((*MODELS, *COPYING))}."
        )
    elif reads_draft(asked) and not drafting.probabilistic:
        raise RuntimeError(
            f"{asked.title} reads the draft's probabilities, which vLLM keeps only with "
            '"draft_sample_method": "probabilistic" and "rejection_sample_method": "standard" in --speculative-config.'
        )


def _in_a_sentence(value: str | Mapping[str, Any], knob: str | float | None = None) -> Rule | None:
    try:
        return served_rule(value, knob)
    except FsdError as error:
        raise RuntimeError(str(error)) from None


def described() -> dict[str, Any]:
    """Return the rule in force as an object that turns it on again, ``{"kind": "off"}`` for none."""
    return {"kind": "off"} if rule is None else rule_options(rule)


_counts: Any = None


def add_counts(rounds: Any, drafted: Any, accepted: Any) -> None:
    """Add to the counts: integers, or tensors of one number, which are not read from the device here."""
    global _counts
    added = (rounds, drafted, accepted)
    _counts = added if _counts is None else tuple(a + b for a, b in zip(_counts, added, strict=True))


def clear_counts() -> None:
    global _counts
    _counts = None


def counts() -> dict[str, int]:
    """Return what the rule judged since it was put in force: rounds, drafted and accepted tokens. The drafted tokens
    behind the end of a text are among them, because vLLM cuts them off later."""
    values = (0, 0, 0) if _counts is None else (int(value) for value in _counts)
    return dict(zip(("rounds", "drafted", "accepted"), values, strict=True))
