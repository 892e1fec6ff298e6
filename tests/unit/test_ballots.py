"""A ballot of a blind vote says what is displayed, and not whose answer is where."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboard.review.blind_vote import Ballot
from fsd_core.storage.records import GenerationView
from tests.tools.tracking_examples import generation


def answer(run: str, text: str, position: int = 0) -> GenerationView:
    record = vars(generation(position, text))
    del record["records"]
    return GenerationView(**record, id=0, run_id=run, sitting_id=None, created_at=datetime.now(UTC))


def test_a_ballot_is_the_same_whosever_answers_it_shows() -> None:
    shown = Ballot("setting", answer("a" * 32, "Five."), answer("b" * 32, "Six.")).identity
    assert Ballot("baseline", answer("b" * 32, "Five."), answer("a" * 32, "Six.")).identity == shown
    others = [
        Ballot("setting", answer("a" * 32, "Six."), answer("b" * 32, "Five.")),
        Ballot("setting", answer("a" * 32, "Five!"), answer("b" * 32, "Six.")),
        Ballot("setting", answer("a" * 32, "Five.", 1), answer("b" * 32, "Six.", 1)),
    ]
    assert shown not in [other.identity for other in others]
