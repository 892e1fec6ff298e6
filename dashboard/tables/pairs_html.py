"""Prompts as two runs answered them, side by side, with the words marked in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.tables.prompt_pairs import Pair, Piece, difference
from dashboard.ui.components import escape, pill
from dashboard.ui.formatting import duration
from fsd_core.figures.numbers import count

if TYPE_CHECKING:
    from fsd_core.tracking.records import GenerationView


def pairs_html(pairs: Sequence[Pair], name_a: str, name_b: str) -> str:
    """Prompts with both texts side by side, differing words marked."""
    return "".join(_pair(pair, name_a, name_b) for pair in pairs)


def _pair(pair: Pair, name_a: str, name_b: str) -> str:
    left, right = difference(pair.a.text, pair.b.text)
    reference = "" if pair.a.reference is None else f", expected answer {escape(pair.a.reference)}"
    return (
        f'<article class="pair"><p class="cmp-note">Prompt {pair.a.position + 1}{reference}</p>'
        f'<p class="prompt">{escape(pair.a.prompt)}</p>'
        f'<div class="sides">{_side(pair.a, name_a, left)}{_side(pair.b, name_b, right)}</div></article>'
    )


def _side(generation: GenerationView, name: str, pieces: Sequence[Piece]) -> str:
    text = "".join(f"<mark>{escape(piece.text)}</mark>" if piece.changed else escape(piece.text) for piece in pieces)
    answer = "" if generation.answer is None else f" · answer {escape(generation.answer)}"
    detail = f"{count(generation.tokens, 'token')} in {duration(generation.seconds)}"
    error = f"<p>{escape(generation.error)}</p>" if generation.error else ""
    return (
        f'<div class="side"><h3>{escape(name)}</h3><p>{pill(generation.outcome)}{answer} · {detail}</p>'
        f"<pre>{text or '(nothing)'}</pre>{error}</div>"
    )
