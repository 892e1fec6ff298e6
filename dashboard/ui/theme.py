"""The theme of the pages: paper and ink, one accent, light and dark. Nothing is loaded from other sites.

``theme.css`` has the colours as ``--fsd-…`` variables, each once per theme. Gradio's own variables refer to them here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes.utils import fonts

_FOLDER = Path(__file__).parent
_SHEETS = (
    "ui/theme.css",
    "ui/annotations.css",
    "ui/sharing.css",
    "playground/playground.css",
    "experiments/experiment_list.css",
    "compare/comparison.css",
    "runs/runs.css",
    "settings/settings.css",
    "start/start.css",
    "review/review.css",
    "reports/reports.css",
    "people/people.css",
)
# Given to Gradio as a whole: it prefixes every rule with its own class, without which its resets would win.
STYLE_SHEETS = "".join((_FOLDER.parent / sheet).read_text(encoding="utf-8") for sheet in _SHEETS)
_SCRIPTS = ("drafts.js", "view.js", "tokens.js", "sharing.js", "terms.js", "focus.js")
HEAD = "".join(f"<script>{(_FOLDER / script).read_text(encoding='utf-8')}</script>" for script in _SCRIPTS)
FAVICON = _FOLDER / "favicon.svg"

# Gradio's semi-bold files lack most letters. Without them, a browser uses the complete bold ones for weight 600.
_FULL_WEIGHTS = (400, 700)

_TEAL = gr.themes.colors.Color(
    name="fsd-teal",
    c50="#eef7f6",
    c100="#d5ebe8",
    c200="#add8d3",
    c300="#7cbfb8",
    c400="#4aa39b",
    c500="#23867e",
    c600="#0f6b65",
    c700="#0d5752",
    c800="#0d4643",
    c900="#0c3a37",
    c950="#062321",
)

_SAME_IN_BOTH: dict[str, str] = {
    "body_background_fill": "var(--fsd-paper)",
    "body_text_color": "var(--fsd-ink)",
    "body_text_color_subdued": "var(--fsd-faded)",
    "background_fill_primary": "var(--fsd-surface)",
    "background_fill_secondary": "var(--fsd-sunken)",
    "border_color_primary": "var(--fsd-line)",
    "border_color_accent": "var(--fsd-accent)",
    "block_background_fill": "var(--fsd-surface)",
    "block_border_color": "var(--fsd-line)",
    "block_label_background_fill": "var(--fsd-surface)",
    "block_label_text_color": "var(--fsd-faded)",
    "block_title_text_color": "var(--fsd-ink)",
    "block_info_text_color": "var(--fsd-faded)",
    "input_background_fill": "var(--fsd-field)",
    "input_background_fill_focus": "var(--fsd-field)",
    "input_border_color": "var(--fsd-edge)",
    "input_border_color_focus": "var(--fsd-edge)",
    "input_placeholder_color": "var(--fsd-faded)",
    "panel_background_fill": "var(--fsd-surface)",
    "panel_border_color": "var(--fsd-line)",
    "link_text_color": "var(--fsd-accent)",
    "link_text_color_active": "var(--fsd-accent)",
    "link_text_color_hover": "var(--fsd-accent-strong)",
    "link_text_color_visited": "var(--fsd-accent)",
    "slider_color": "var(--fsd-accent)",
    "checkbox_background_color_selected": "var(--fsd-accent)",
    "checkbox_border_color": "var(--fsd-edge)",
    "checkbox_border_color_selected": "var(--fsd-accent)",
    "checkbox_label_background_fill": "var(--fsd-field)",
    "checkbox_label_background_fill_hover": "var(--fsd-sunken)",
    "checkbox_label_background_fill_selected": "var(--fsd-accent-soft)",
    "checkbox_label_text_color_selected": "var(--fsd-ink)",
    "checkbox_label_border_color": "var(--fsd-line)",
    "button_primary_background_fill": "var(--fsd-button)",
    "button_primary_background_fill_hover": "var(--fsd-button-hover)",
    "button_primary_border_color": "transparent",
    "button_primary_text_color": "var(--fsd-on-accent)",
    "button_secondary_background_fill": "var(--fsd-surface)",
    "button_secondary_background_fill_hover": "var(--fsd-sunken)",
    "button_secondary_border_color": "var(--fsd-edge)",
    "button_secondary_text_color": "var(--fsd-ink)",
    "button_cancel_background_fill": "var(--fsd-surface)",
    "button_cancel_background_fill_hover": "var(--fsd-sunken)",
    "button_cancel_border_color": "var(--fsd-bad)",
    "button_cancel_text_color": "var(--fsd-bad)",
    "table_border_color": "var(--fsd-line)",
    "table_even_background_fill": "var(--fsd-surface)",
    "table_odd_background_fill": "var(--fsd-surface)",
    "block_border_width": "1px",
    "input_border_width": "1px",
    "button_border_width": "1px",
    "block_shadow": "none",
    "button_primary_shadow": "none",
    "button_secondary_shadow": "none",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "checkbox_label_shadow": "none",
}


def build_theme() -> gr.themes.Base:
    """Return Gradio's theme. Its font files are those that Gradio itself serves."""
    theme = gr.themes.Base(
        primary_hue=_TEAL,
        secondary_hue=_TEAL,
        neutral_hue=gr.themes.colors.stone,
        text_size=gr.themes.sizes.text_md,
        spacing_size=gr.themes.sizes.spacing_md,
        radius_size=gr.themes.sizes.radius_sm,
        font=[fonts.LocalFont("IBM Plex Sans", _FULL_WEIGHTS), "system-ui", "sans-serif"],
        font_mono=[fonts.LocalFont("IBM Plex Mono", _FULL_WEIGHTS), "ui-monospace", "monospace"],
    )
    parameters = set(theme.set.__code__.co_varnames)
    values: dict[str, Any] = dict(_SAME_IN_BOTH)
    values |= {f"{key}_dark": value for key, value in _SAME_IN_BOTH.items() if f"{key}_dark" in parameters}
    return theme.set(
        **values,
        block_title_text_weight="600",
        block_label_text_weight="600",
        block_title_text_size="*text_sm",
        block_info_text_size="*text_sm",
        button_large_text_weight="600",
        button_medium_text_weight="600",
        button_small_text_weight="500",
        layout_gap="16px",
    )
