"""Placeholders for answers that are put to a blind vote."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.ui.templates import Html, render


def hidden_html(prompts: int, proposals: Sequence[str], opened: str = "") -> Html:
    """Return how many prompts are hidden, with links to the proposals that they are voted on for; nothing for none.

    ``opened``: the proposal on whose page this stands, which needs no link.
    """
    if not prompts:
        return Html()
    return render("tables/pairs.html", "hidden", prompts, [id for id in proposals if id != opened], opened in proposals)
