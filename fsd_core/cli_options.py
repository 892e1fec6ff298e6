"""The options that commands share, and the configuration they amount to. No torch: ``--help`` answers at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

import numpy as np
import typer

from fsd_core.config import (
    ACCEPTANCES,
    DIVERGENCES,
    DRAFTERS,
    RULES,
    ChainTopology,
    DecodingConfig,
    RunConfig,
    SamplingConfig,
)
from fsd_core.errors import InvalidSetting

DTYPES = get_args(RunConfig.model_fields["dtype"].annotation)


def _choice(flag: str, names: Sequence[str], meaning: str) -> Any:
    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise InvalidSetting(f"{flag} {value!r} is not known: expected one of {', '.join(names)}.")
        return value

    return typer.Option(flag, callback=check, metavar="NAME", help=f"{meaning}: {', '.join(names)}.")


Pair = Annotated[str, typer.Option("--pair", help="Model pair; `pairs` lists them.")]
Acceptance = Annotated[str, _choice("--acceptance", ACCEPTANCES, "What is kept of a draft")]
Divergence = Annotated[str | None, _choice("--divergence", DIVERGENCES, "How far the two models are apart (js)")]
Threshold = Annotated[
    str | None, typer.Option("--threshold", metavar="NUMBER|off", help="Largest divergence forgiven; off is exact SD.")
]
Drafter = Annotated[str | None, _choice("--drafter", tuple(DRAFTERS), "What writes the draft (draft-model)")]
DraftLength = Annotated[int | None, typer.Option("--draft-length", help="Tokens drafted in a round (5).")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Nucleus sampling; 1 is off.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sampling from the k likeliest; 0 is off.")]
MaxNewTokens = Annotated[int, typer.Option("--max-new-tokens", help="Longest text, in tokens.")]
TaskName = Annotated[str, typer.Option("--task", help="The prompts, and how they are scored.")]
Limit = Annotated[int, typer.Option("--limit", help="How many prompts of the task, from its first.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all randomness.")]
Dtype = Annotated[str, _choice("--dtype", DTYPES, "Arithmetic of the models")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N (FSD_DEVICE, or auto).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


def parse_threshold(text: str) -> float | None:
    """``off`` is ``None``. Raises ``InvalidSetting`` for what is neither that nor a number; ranges are not checked."""
    if text.strip().lower() == "off":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(f"The threshold {text!r} is not a number: expected one such as 0.1, or 'off'.") from None


def split_thresholds(text: str) -> list[str]:
    """The thresholds of ``0.05,0.1,off``, or of ``start:stop:count``, both ends included. Raises ``InvalidSetting``."""
    if ":" not in text:
        return [part.strip() for part in text.split(",")]
    expected = "expected start:stop:count with count from 2 to 100, such as 0.05:0.4:8, or a list such as 0.05,0.1,off"
    try:
        start, stop, count = text.split(":")
        low, high, steps = float(start), float(stop), int(count)
    except ValueError:
        raise InvalidSetting(f"The thresholds {text!r} cannot be read: {expected}.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high and 2 <= steps <= 100):
        raise InvalidSetting(f"The thresholds {text!r} are no range: {expected}.")
    # Rounded, so that 0.15 is 0.15 and is the same setting wherever it is typed.
    return [repr(round(float(value), 10)) for value in np.linspace(low, high, steps)]


def build_decoding(
    *,
    acceptance: str,
    divergence: str | None,
    threshold: str | None,
    drafter: str | None,
    draft_length: int | None,
    temperature: float,
    top_p: float,
    top_k: int,
    max_new_tokens: int,
) -> DecodingConfig:
    """The decoding these options ask for; ``None`` is an option that was not given.

    Raises ``InvalidSetting`` for a value out of range and for an option that the rule does not read.
    """
    rule: dict[str, Any] = {"kind": acceptance}
    if _given("--divergence", divergence, acceptance, lambda name: "divergence" in RULES[name].model_fields):
        rule["divergence"] = divergence
    if _given("--threshold", threshold, acceptance, lambda name: "threshold" in RULES[name].model_fields):
        rule["threshold"] = _threshold_of(acceptance, str(threshold))
    values: dict[str, Any] = {"acceptance": rule, "max_new_tokens": max_new_tokens}
    if _given("--drafter", drafter, acceptance, _drafts):
        values["drafter"] = {"kind": drafter}
    if _given("--draft-length", draft_length, acceptance, _drafts):
        values["topology"] = ChainTopology.checked(length=draft_length)
    sampling = SamplingConfig.checked(temperature=temperature, top_p=top_p, top_k=top_k)
    return DecodingConfig.checked(**values, sampling=sampling)


def _threshold_of(acceptance: str, text: str) -> float | None:
    value = parse_threshold(text)
    if value is None and RULES[acceptance].model_fields["threshold"].annotation is float:
        raise InvalidSetting(f"The rule '{acceptance}' cannot be off: give a threshold, or choose 'speculative'.")
    return value


def _drafts(acceptance: str) -> bool:
    return DecodingConfig.model_validate({"acceptance": {"kind": acceptance}}).drafter is not None


def _given(flag: str, value: object, acceptance: str, applies: Callable[[str], bool]) -> bool:
    """Whether the option was given. Raises ``InvalidSetting`` if it was, for a rule that does not read it."""
    if value is None:
        return False
    if not applies(acceptance):
        readers = ", ".join(filter(applies, RULES))
        raise InvalidSetting(
            f"{flag} does not apply to the rule '{acceptance}': leave it out, or choose from {readers}."
        )
    return True


def read_prompt(argument: str) -> str:
    """The prompt as given, or standard input for ``-``, less one line break at its end."""
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
        argument.encode()
    except UnicodeError:
        raise InvalidSetting("The prompt is not valid UTF-8: expected text in that encoding.") from None
    return argument
