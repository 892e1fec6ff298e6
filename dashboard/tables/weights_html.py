"""What runs were measured with, in one line."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.ui.components import escape


def weights_html(weights: Mapping[str, str]) -> str:
    """Of each model the fingerprint of its weights, and where it came from."""
    parts = []
    for role, told in weights.items():
        fingerprint, _, origin = told.partition(" ")
        parts.append(f"{escape(role)} <code>{escape(fingerprint)}</code>{escape(f' ({origin})' if origin else '')}")
    return ", ".join(parts) or "weights that were not recorded"
