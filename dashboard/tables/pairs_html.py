"""Prompts with the answers of two runs side by side, differing words marked, and people's marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.prompt_pairs import DiffPiece, Marks, Pair, difference, quoting
from dashboard.ui.links import copy_link
from dashboard.ui.templates import Html, joined, render
from fsd_core.roles import same_name
from fsd_core.storage.database.marks import VERDICTS

if TYPE_CHECKING:
    from fsd_core.review.passages import Quoted
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
    quoted: Quoted | None = None,
    comments: bool = False,
) -> Html:
    """Return prompts with both texts side by side and differing words marked. The one at position ``linked`` stands
    out.

    With ``marks``, each output has the buttons by which ``me`` marks it. With ``links``, each prompt has a button that
    copies the address that opens it. With ``comments``, each output has a button that comments on it. The passage
    ``quoted`` stands out.
    """
    marking = Marking(marks, me, comments, quoted)
    return joined(_pair(pair, (name_a, name_b), marking, pair.a.position == linked, links) for pair in pairs)


class Marking(NamedTuple):
    """Marks, comments and quotes beside the texts of outputs."""

    marks: Marks | None
    me: str
    comments: bool
    quoted: Quoted | None


def _pair(pair: Pair, names: tuple[str, str], marking: Marking, linked: bool, links: bool) -> Html:
    left, right = difference(pair.a.text, pair.b.text)
    sides = [_side(pair.a, names[0], left, marking), _side(pair.b, names[1], right, marking)]
    query = {"a": pair.a.run_id, "b": pair.b.run_id, "prompt": str(pair.a.position + 1)}
    link = copy_link(query=query) if links else ""
    return render("tables/pairs.html", "pair", pair.a, sides=sides, linked=linked, link=link)


def _side(generation: GenerationView, name: str, pieces: Sequence[DiffPiece], marking: Marking) -> Html:
    at, quoted = (generation.run_id, generation.position), marking.quoted
    buttons = Html() if marking.marks is None else _marking(marking.marks.get(at, ()), marking.me, marking.comments)
    if quoted is not None and (quoted.run, quoted.position) == at:
        pieces = quoting(pieces, quoted.passage.start, quoted.passage.end)
    return render("tables/pairs.html", "side", generation, name=name, pieces=pieces, marking=buttons)


def _marking(marks: Sequence[MarkView], me: str, comments: bool) -> Html:
    """Return the buttons, with the marks of ``me`` pressed, and everybody's marks."""
    previous = next((mark for mark in marks if same_name(mark.who, me)), None)
    return render("tables/pairs.html", "marking", VERDICTS, marks=marks, previous=previous, comments=comments)
