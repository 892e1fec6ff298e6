"""Recorded rounds become the tokens that a page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.runs.opened_run import displayed_tokens
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.errors import ModelUnavailable
from tests.tools.real_tokens import HOSTILE, save_tokenizer


def one_round(ids: list[int], rejected: int) -> RoundRecord:
    """All of ``ids`` but the last were accepted, and that one stands in place of ``rejected``."""
    n = len(ids)
    strict: list[Kind] = ["strict"] * (n - 1)
    return RoundRecord(
        drafted=(*ids[:-1], rejected), accepted=n - 1, emitted=tuple(ids), kinds=(*strict, "correction"),
        divergence=tuple(i / 10 for i in range(n)), target_probability=(0.5,) * n, draft_probability=(0.4,) * n,
        emitted_probability=(0.3,) * n, seconds=0.1,
    )  # fmt: skip


def test_the_texts_joined_are_the_decoded_text_also_inside_characters(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    ids = tokenizer.encode(HOSTILE).ids
    shown = displayed_tokens(f"path:{tmp_path}", [one_round([i], 5) for i in ids])
    assert "".join(token.text for token in shown) == HOSTILE
    assert [token.id for token in shown] == ids
    assert displayed_tokens(f"path:{tmp_path}", []) == []


def test_a_text_that_ends_inside_a_character_is_told_with_what_is_left(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    ids = tokenizer.encode("a🙂").ids[:-1]
    texts = [token.text for token in displayed_tokens(f"path:{tmp_path}", [one_round(ids, 5)])]
    assert "".join(texts) == tokenizer.decode(ids) != "a"


def test_numbers_belong_to_judged_tokens_and_a_correction_names_what_it_replaces(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    a, b, c = tokenizer.encode("abc").ids
    first, last = displayed_tokens(f"path:{tmp_path}", [one_round([a, b], c)])
    assert (first.divergence, first.p, first.q) == (0.0, 0.5, 0.4)
    assert first.rejected is None
    assert (last.kind, last.divergence, last.rejected, last.probability) == ("correction", 0.1, "c", 0.3)

    bonus = RoundRecord((a,), 1, (a, b), ("strict", "bonus"), (0.2,), (0.5,), (0.5,), (0.5, 0.6), 0.1)
    assert displayed_tokens(f"path:{tmp_path}", [bonus])[1].p is None


def test_a_damaged_tokenizer_is_told_in_a_sentence(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "target" / "tokenizer.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="tokenizer of the pair"):
        displayed_tokens(f"path:{tmp_path}", [])


def test_marks_of_the_runs_model_are_shown_where_they_are_special_tokens(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    tokenizer.add_special_tokens(["[MUSE]", "[/MUSE]"])
    tokenizer.save(str(tmp_path / "target" / "tokenizer.json"))
    ids = tokenizer.encode("[MUSE]a[/MUSE]b").ids
    texts = [
        "".join(token.text for token in displayed_tokens(f"path:{tmp_path}", [one_round(ids, 5)], marks))
        for marks in ("", "[MUSE] … [/MUSE]")
    ]
    assert texts == ["ab", "[MUSE]a[/MUSE]b"]
