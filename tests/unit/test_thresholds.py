"""The one grammar of thresholds, and that every door makes the same settings of it."""

from __future__ import annotations

import pytest

from dashboard.experiments.experiment_form import build_sweep
from fsd_core.config.options import OPTIONS, methods, parse_threshold, parse_thresholds
from fsd_core.errors import InvalidSetting, Malformed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", (0.1,)),
        ("0.05, 0.1,0.2", (0.05, 0.1, 0.2)),
        ("0:0.6:7", (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
        ("0.05:0.25:5", (0.05, 0.1, 0.15, 0.2, 0.25)),
        ("off, 0.1, 0.1", (None, 0.1)),
        ("0.3; 0:0.1:2, OFF", (0.3, 0, 0.1, None)),
        ("0,1;0,25", (0.1, 0.25)),
        ("0,1; off; 0,2:0,4:2", (0.1, None, 0.2, 0.4)),
        ("1;2", (1, 2)),
        ("0:1:7", (0, 0.166667, 0.333333, 0.5, 0.666667, 0.833333, 1)),
    ],
)
def test_thresholds_are_a_list_or_a_range(text: str, expected: tuple[float | None, ...]) -> None:
    assert parse_thresholds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " , ", "0,05", "0,1, 0,05", "a", "nan", "0:1", "1:2:3:4", "a:b:c", "1:0:5",
     "0:1:1", "0:1:x", "0:1:101", "0:1:2.5", "0:inf:3",
     "0:1:" + "9" * 5000],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected") as raised:
        parse_thresholds(text)
    assert len(str(raised.value)) < 250


def test_one_threshold_is_a_number_or_off() -> None:
    assert (parse_threshold(" Off "), parse_threshold("0.1"), parse_threshold("1e9")) == (None, 0.1, 1e9)
    with pytest.raises(Malformed, match="much"):
        parse_threshold("much")


def test_page_and_command_line_make_the_same_settings_of_a_range() -> None:
    form = {
        **{name: option.default for name, option in OPTIONS.items()}, "name": "", "seeds": "0", "baselines": [],
        "several": [], "tuned": ["fsd"], "divergence": ["tv"], "drafter": ["draft-model"], "topology": ["chain"],
        "threshold": "0:1:7", "draft_length": "5",
    }  # fmt: skip
    typed = methods({"acceptance": ["fsd"], "divergence": "tv", "threshold": "0:1:7"})
    assert build_sweep(form).decodings == tuple(typed)
    assert [setting.threshold for setting in typed] == [*parse_thresholds("0:1:7")]
