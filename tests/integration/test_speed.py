from __future__ import annotations

import json
import math

import pytest

from fsd_core.evaluation.speed import ASSISTED, EXACT_KINDS, GENERATE, measure
from fsd_core.models.loading import LoadedPair
from fsd_core.testing import toy_pair

PROMPTS = ["Ava has 3 eggs and", "Ben buys four", "Question:"]


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair()


def test_all_contenders_are_timed_and_the_exact_ones_agree(pair: LoadedPair) -> None:
    before, done = pair.draft.module.generation_config, []
    report = measure(pair, PROMPTS, draft_length=3, threshold=0.1, max_new_tokens=20, on_prompt=done.append)

    rows = {row["name"]: row for row in report["contenders"]}
    assert set(rows) == {*EXACT_KINDS, "fsd-reducible", GENERATE}
    assert report["outputs_agree"] is True
    for name in (*EXACT_KINDS, GENERATE):
        assert rows[name]["identical"] == report["prompts"] == 3
        assert rows[name]["tokens"] == rows[GENERATE]["tokens"] <= 3 * 20
    for row in rows.values():
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])
        for ratio in (row["versus_generate"], row["versus_assisted"]):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert rows[GENERATE]["versus_generate"]["median"] == rows[ASSISTED]["versus_assisted"]["median"] == 1
    forth, back = rows[ASSISTED]["versus_generate"]["median"], rows[GENERATE]["versus_assisted"]["median"]
    assert math.isclose(forth * back, 1)

    assert done == [1, 2, 3]
    assert pair.draft.module.generation_config is before
    json.dumps(report, allow_nan=False)


def test_a_loose_threshold_is_not_exact_and_the_report_says_so(pair: LoadedPair) -> None:
    report = measure(pair, PROMPTS, draft_length=3, threshold=math.log(2), max_new_tokens=20)
    rows = {row["name"]: row for row in report["contenders"]}
    assert rows["fsd-reducible"]["identical"] < 3
    assert report["outputs_agree"] is True  # only the exact ones are asked to
