"""The weights of a measurement in one line."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.ui.templates import Html, render


def weights_html(weights: Mapping[str, str]) -> Html:
    """Return the fingerprint of each model's weights, and where it came from."""
    models = [(role, *fingerprint_origin.partition(" ")[::2]) for role, fingerprint_origin in weights.items()]
    return render("tables/measured.html", "weights", models)
