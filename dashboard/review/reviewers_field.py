"""The field in which people are chosen who are asked for a verdict."""

from __future__ import annotations

import gradio as gr


def reviewers_field() -> gr.Dropdown:
    """Return the field. Names that are not offered may be typed, since a proxy or a provider may name people."""
    return gr.Dropdown(
        [], label="Reviewers", info="Who is asked for a verdict", multiselect=True, allow_custom_value=True,
        min_width=280, scale=3,
    )  # fmt: skip
