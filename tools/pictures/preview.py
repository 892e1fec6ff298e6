"""The picture that a link to the application shows: ``python -m tools.pictures.preview``.

Our name, what it is for, and texts of tokens as the mark has them: accepted ones, and some that leniency accepted.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from dashboard.server.requests import PICTURE

SIZE = (1200, 630)
TEAL, WHITE, AMBER, PALE = "#0f6b65", "#ffffff", "#f5c15b", "#add8d3"
ROWS = ((150, 90, 210, 120), (80, 240, 110, 60, 90), (190, 130), (110, 70, 160, 230))
"""widths of the tokens of each text"""
LENIENT = {(0, 2), (1, 1), (1, 4), (3, 3)}
"""row and place of those that leniency accepted"""


def draw(file: Path) -> None:
    """Draw the picture."""
    picture = Image.new("RGB", SIZE, TEAL)
    pen = ImageDraw.Draw(picture)
    pen.text((80, 78), "FSD Lab", WHITE, _font(92, "bold"))
    pen.text((84, 206), "How far a language model may be sped up,", WHITE, _font(38))
    pen.text((84, 258), "and what each step costs in accuracy", WHITE, _font(38))
    for row, widths in enumerate(ROWS):
        left = 84
        for place, width in enumerate(widths):
            colour = AMBER if (row, place) in LENIENT else PALE
            top = 380 + 56 * row
            pen.rounded_rectangle((left, top, left + width, top + 26), 13, colour)
            left += width + 18
    picture.quantize(64).save(file, optimize=True)


def _font(size: int, weight: str = "normal") -> ImageFont.FreeTypeFont:
    name = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans", weight=weight))
    return ImageFont.truetype(name, size)


if __name__ == "__main__":
    draw(PICTURE)
