"""Predictions, and their comparison to measurements, as rows of plain data."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from fsd_core.formatting import DASH, number
from fsd_core.replays.prediction import Prediction
from fsd_core.replays.replay_trace import Trace
from fsd_core.replays.validation import Validated
from fsd_core.statistics.intervals import Estimate, keyed


def prediction_row(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a flat row, with intervals in ``_low`` and ``_high``."""
    config = prediction.config
    rule = config.acceptance
    return {
        "label": config.label, "acceptance": rule.kind, "knob": rule.knob.field if rule.knob else None,
        "value": rule.knob_value, "draft_length": prediction.draft_length,
        **keyed("acceptance_rate", prediction.acceptance_rate), **keyed("tokens_per_pass", prediction.tokens_per_pass),
        **keyed("passes", prediction.passes), **keyed("tokens_per_second", prediction.tokens_per_second),
        **keyed("speed_up", prediction.speed_up), "best_draft_length": prediction.is_best,
        "near_best_draft_length": prediction.is_near_best,
        "acceptance_at_position": list(prediction.acceptance_at),
    }  # fmt: skip


def checked_row(checked: Validated) -> dict[str, Any]:
    """Return the same row with the measurements, in ``measured_…``."""
    return prediction_row(checked.prediction) | {
        **keyed("measured_acceptance_rate", checked.acceptance_rate),
        **keyed("acceptance_error", checked.acceptance_error),
        **keyed("measured_tokens_per_pass", checked.tokens_per_pass), **keyed("measured_passes", checked.passes),
        "measured_length_ratio": checked.length, **keyed("measured_speed_up", checked.speed_up),
    }  # fmt: skip


def markdown(trace: Trace, checks: Sequence[Validated], commands: Sequence[str] = ()) -> str:
    """Return predicted against measured as a page: by rule, then every setting."""
    info = trace.info
    lines = [
        f"# Replay against measurement: {info.task}, temperature {info.sampling.temperature:g}", "",
        f"{len(trace.prompts)} prompts of `{info.pair}`, {len(checks)} settings. Predicted from one strict run with "
        f"drafts of {info.draft_length}, measured by decoding the same prompts. Errors are predicted less measured; "
        "docs/replay.md of FSD Lab says where they come from.", "",
    ]  # fmt: skip
    if commands:
        lines += ["```", *commands, "```", ""]
    lines += ["## By rule", "", *_table(_BY_RULE, [_rule_row(kind, group) for kind, group in _by_rule(checks).items()])]
    lines += ["", "## Every setting", "", "Predicted / measured. Brackets: the interval of 95 % over prompts, paired."]
    lines += ["", *_table(_EVERY, [_setting_row(check) for check in checks]), ""]
    return "\n".join(lines)


_BY_RULE = (
    "Rule", "Settings", "Acceptance: mean error, points", "largest", "interval without 0", "Passes: mean error",
    "largest", "Answer length, × strict", "Speed: mean error",
)  # fmt: skip
_EVERY = (
    "Setting", "Acceptance, %", "Error, points", "Mean acceptance length", "Passes per answer",
    "Answer length, × strict", "× target alone",
)  # fmt: skip


def _by_rule(checks: Sequence[Validated]) -> dict[str, list[Validated]]:
    groups: dict[str, list[Validated]] = {}
    for check in checks:
        groups.setdefault(check.prediction.config.acceptance.kind, []).append(check)
    return groups


def _rule_row(kind: str, checks: Sequence[Validated]) -> list[str]:
    errors = [100 * check.acceptance_error.value for check in checks]
    sure = sum(_excludes_zero(check.acceptance_error) for check in checks)
    passes = [100 * (check.prediction.passes.value / check.passes.value - 1) for check in checks]
    lengths = [check.length for check in checks]
    speeds = [
        100 * (check.prediction.speed_up.value / check.speed_up.value - 1)
        for check in checks
        if check.prediction.speed_up
    ]
    return [
        f"`{kind}`", str(len(checks)), _signed(mean(errors)), _signed(max(errors, key=abs)), str(sure),
        f"{_signed(mean(passes))} %", f"{_signed(max(passes, key=abs))} %", f"{min(lengths):.2f} – {max(lengths):.2f}",
        f"{_signed(mean(speeds))} %" if speeds else DASH,
    ]  # fmt: skip


def _excludes_zero(error: Estimate) -> bool:
    return error.low is not None and error.high is not None and not error.low <= 0 <= error.high


def _setting_row(check: Validated) -> list[str]:
    prediction, error = check.prediction, check.acceptance_error
    ends = "" if error.low is None or error.high is None else (
        f" [{_signed(100 * error.low)}, {_signed(100 * error.high)}]"
    )  # fmt: skip
    speed = f"{prediction.speed_up.value:.2f} / " if prediction.speed_up else ""
    return [
        prediction.config.label,
        f"{100 * prediction.acceptance_rate.value:.1f} / {100 * check.acceptance_rate.value:.1f}",
        _signed(100 * error.value) + ends,
        f"{prediction.tokens_per_pass.value:.2f} / {check.tokens_per_pass.value:.2f}",
        f"{prediction.passes.value:.2f} / {check.passes.value:.2f}", f"{check.length:.2f}",
        f"{speed}{check.speed_up.value:.2f}",
    ]  # fmt: skip


def _signed(value: float) -> str:
    return number(value, 1, signed=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
