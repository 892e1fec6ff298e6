"""What a page shows before anybody scrolls or opens anything, counted: words beside data, and controls.

``python -m tools.first_sight http://127.0.0.1:7860/experiments`` counts at three widths.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright

from tests.tools.chromium import launch
from tests.tools.settled import go, watch

MOST_WORDS = 120
"""what somebody reads before they begin"""
WINDOWS = ((1440, 900), (1024, 768), (400, 860))
# A name of a field, a choice or a button counts as the control that it names.
_COUNT = """() => {
  const seen = (box) => box.width > 1 && box.height > 1 && box.top < innerHeight && box.bottom > 0
    && box.left < innerWidth && box.right > 0;
  const shown = (element) => element.checkVisibility({checkVisibilityCSS: true, checkOpacity: true});
  const data = 'table, svg, .js-plotly-plot, pre, .toks, .lane, .pair, .run-question, .rev-words, article.exp, '
    + '.exp-measured, .fsd-tile, .fsd-facts, #news, .fsd-head, h1, option, [role=listbox], style, script, '
    + 'noscript, footer';
  const names = 'legend, button, summary, [data-testid=block-info], '
    + 'label:has(> input:is([type=checkbox], [type=radio]))';
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), words = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || element.closest(data) || element.closest(names) || !shown(element)) continue;
    for (const word of text.data.matchAll(/[\\p{L}\\p{N}][^\\s]*/gu)) {
      const range = new Range();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (seen(range.getBoundingClientRect())) words.push(word[0]);
    }
  }
  const kinds = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
  const controls = [...document.querySelectorAll(kinds)]
    .filter((one) => !one.closest(data) && !one.disabled && shown(one) && seen(one.getBoundingClientRect()));
  return [words, controls.length];
}"""


class FirstSight(NamedTuple):
    """What a window shows beside the head of the page and beside data: tables, tiles, cards of experiments, texts,
    figures and sentences on what was measured."""

    words: list[str]
    controls: int


def first_sight(page: Page) -> FirstSight:
    """What the page shows now, in its window."""
    return FirstSight(*page.evaluate(_COUNT))


def main(addresses: list[str]) -> None:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for address in addresses:
            for width, height in WINDOWS:
                context = browser.new_context(viewport={"width": width, "height": height})
                watch(context)
                page = context.new_page()
                go(page, address)
                sight, whole = first_sight(page), page.evaluate("document.documentElement.scrollHeight")
                print(
                    f"{address} {width} × {height}: {len(sight.words)} words, {sight.controls} controls, {whole} high"
                )
                context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
