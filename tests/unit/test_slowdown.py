"""Why a run is slower: one part at a time, and what would break even."""

from __future__ import annotations

import pytest

from fsd_core.analysis.recommendation import ACCEPTANCE, DRAFT, LONGER, VERIFICATION, Slowdown, slowdown
from fsd_core.storage.records import RunView
from tests.tools.run_views import decoding, metrics, prompts, run_view

TARGET = run_view(decoding("autoregressive"), metrics(47, speed=100) | {"draft_seconds": 0.0})


def slow(
    tokens: float = 3.0, length: float = 1.0, draft: float = 0.5, verification: float = 1.0, **changes: object
) -> Slowdown | None:
    """A run whose rounds bring so many tokens, draft for so many of the target's passes and verify for so many."""
    found = metrics(40, acceptance=0.5)
    run = run_view(
        decoding("speculative"), found | {"draft_seconds": draft, "seconds": draft + verification}, **changes
    )
    base = prompts(TARGET)[TARGET.id]
    ours = {}
    for i, one in base.items():
        rounds = round(10 * length * one.tokens)
        seconds = rounds / 10 / tokens * (draft + verification) * one.seconds / one.tokens * (1 + 0.01 * (i % 3))
        ours[i] = one._replace(
            tokens=round(10 * length * one.tokens), rounds=round(rounds / tokens), seconds=10 * seconds
        )
    # Ten times as many of everything, so that no count is rounded; the baseline likewise.
    theirs = {
        i: one._replace(tokens=10 * one.tokens, rounds=10 * one.tokens, seconds=10 * one.seconds)
        for i, one in base.items()
    }
    return slowdown(run, TARGET, {run.id: ours, TARGET.id: theirs})


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"tokens": 2.0, "length": 2.2}, (LONGER,)),
        ({"tokens": 2.0, "draft": 1.5}, (DRAFT,)),
        ({"tokens": 2.0, "verification": 2.2}, (VERIFICATION,)),
        ({"tokens": 1.05, "draft": 0.4, "verification": 1.1}, (ACCEPTANCE,)),
        ({"tokens": 2.0, "draft": 0.9, "verification": 1.5}, (DRAFT, VERIFICATION)),
    ],
)
def test_the_part_that_does_it_is_named(changes: dict[str, float], parts: tuple[str, ...]) -> None:
    found = slow(**changes)  # type: ignore[arg-type]
    assert found is not None
    assert found.parts == parts
    assert found.time > 1


def test_what_would_break_even() -> None:
    found = slow(tokens=2.0, draft=1.2, verification=1.3)
    assert found is not None
    assert found.break_even == pytest.approx(2.5, rel=0.03)
    alpha = found.acceptance
    assert alpha is not None
    assert (1 - alpha**6) / (1 - alpha) == pytest.approx(found.break_even)
    assert (
        f"break even at {found.break_even:.2f} tokens per pass, an acceptance of {100 * alpha:.0f} %"
        in found.sentence()
    )


def test_what_cannot_break_even_is_said() -> None:
    found = slow(tokens=2.0, draft=5.0, verification=2.0)
    assert found is not None
    assert found.acceptance is None
    assert "which 6 at most cannot reach" in found.sentence()


def test_a_run_that_is_not_surely_slower_has_no_reason() -> None:
    assert slow(tokens=3.0) is None
    assert slow(tokens=1.6) is None
    assert slowdown(TARGET, TARGET, prompts(TARGET)) is None
    assert slow(tokens=1.0, task="other") is None


def test_a_draft_alone_has_no_rounds_to_explain() -> None:
    draft: RunView = run_view(decoding("draft-only"), metrics(10, speed=10))
    assert slowdown(draft, TARGET, prompts(draft, TARGET)) is None
