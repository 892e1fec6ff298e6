"""Prompts as two runs answered them, side by side, with the words marked in which they differ, and people's marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.tables.prompt_pairs import DiffPiece, Marks, Pair, difference
from dashboard.ui.components import escape, pill
from dashboard.ui.links import copy_link
from dashboard.ui.quantities import duration
from fsd_core.formatting import count
from fsd_core.storage.database.marks import VERDICTS

if TYPE_CHECKING:
    from fsd_core.storage.records import GenerationView, MarkView


def pairs_html(
    pairs: Sequence[Pair],
    name_a: str,
    name_b: str,
    marks: Marks | None = None,
    me: str = "",
    linked: int | None = None,
    *,
    links: bool = False,
) -> str:
    """Prompts with both texts side by side, differing words marked; that at the position ``linked`` stands out.

    With ``marks`` each output has the buttons with which ``me`` marks it. ``links``: each prompt has a button that
    copies an address of the page, which opens it.
    """
    return "".join(_pair(pair, (name_a, name_b), marks, me, pair.a.position == linked, links) for pair in pairs)


def _pair(pair: Pair, names: tuple[str, str], marks: Marks | None, me: str, linked: bool, links: bool) -> str:
    left, right = difference(pair.a.text, pair.b.text)
    reference = "" if pair.a.reference is None else f", expected answer {escape(pair.a.reference)}"
    sides = _side(pair.a, names[0], left, marks, me) + _side(pair.b, names[1], right, marks, me)
    return (
        f'<article class="pair{" linked" if linked else ""}"><div class="pair-head">'
        f'<p class="cmp-note">Prompt {pair.a.position + 1}{reference}</p>{_link(pair) if links else ""}</div>'
        f'<p class="prompt">{escape(pair.a.prompt)}</p><div class="sides">{sides}</div></article>'
    )


def _link(pair: Pair) -> str:
    place = {"a": pair.a.run_id, "b": pair.b.run_id, "prompt": str(pair.a.position + 1)}
    return copy_link(query=place)


def _side(generation: GenerationView, name: str, pieces: Sequence[DiffPiece], marks: Marks | None, me: str) -> str:
    text = "".join(f"<mark>{escape(piece.text)}</mark>" if piece.changed else escape(piece.text) for piece in pieces)
    answer = "" if generation.answer is None else f" · answer {escape(generation.answer)}"
    detail = f"{count(generation.tokens, 'token')} in {duration(generation.seconds)}"
    error = f"<p>{escape(generation.error)}</p>" if generation.error else ""
    if marks is None:
        opened, marking = '<div class="side">', ""
    else:
        label = escape(f"{name}, prompt {generation.position + 1}")
        opened = (
            f'<div class="side" tabindex="0" role="group" aria-label="{label}" data-run="{escape(generation.run_id)}" '
            f'data-position="{generation.position}">'
        )
        marking = _marking(marks.get((generation.run_id, generation.position), ()), me)
    return (
        f"{opened}<h3>{escape(name)}</h3><p>{pill(generation.outcome)}{answer} · {detail}</p>"
        f"<pre>{text or '(nothing)'}</pre>{error}{marking}</div>"
    )


def _marking(marks: Sequence[MarkView], me: str) -> str:
    """The buttons, pressed where they say what ``me`` thinks, and what everybody has said."""
    own = next((mark for mark in marks if mark.who == me), None)
    buttons = "".join(
        f'<button type="button" class="fsd-act" data-mark="{verdict}" '
        f'aria-pressed="{str(own is not None and own.verdict == verdict).lower()}">{verdict.capitalize()}</button>'
        for verdict in VERDICTS
    )
    note = escape(own.note) if own else ""
    buttons += f'<button type="button" class="fsd-act" data-mark="note" data-note="{note}">Note</button>'
    lines = "".join(
        f"<li><b>{escape(mark.who)}</b>{pill(mark.verdict) if mark.verdict else ''}"
        f"{f' <span>{escape(mark.note)}</span>' if mark.note else ''}</li>"
        for mark in marks
    )
    said = f'<ul class="marks">{lines}</ul>' if lines else ""
    return f'<div class="marking">{buttons}</div>{said}'
