"""The goals of the tests' counted clicks are those of docs/pages.md."""

from __future__ import annotations

import re

from tests.tools.counted_hand import GOALS
from tests.tools.worker_process import ROOT


def test_every_goal_that_a_test_reaches_is_in_the_document_and_the_other_way() -> None:
    texts = [(ROOT / "tests" / "ui" / name).read_text() for name in ("test_the_hour.py", "test_ones_own_pair.py")]
    reached = {goal for text in texts for goal in re.findall(r'(?:reaching\(|GOALS\[)"([^"]+)"', text)}
    assert reached | {"Setting, speed, accuracy"} == GOALS.keys()
