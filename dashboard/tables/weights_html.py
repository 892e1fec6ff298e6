"""What runs were measured with, in one line."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.ui.templates import Html, render


def weights_html(weights: Mapping[str, str]) -> Html:
    """Of each model the fingerprint of its weights, and where it came from."""
    models = [(role, *told.partition(" ")[::2]) for role, told in weights.items()]
    return render("tables/measured.html", "weights", models)
