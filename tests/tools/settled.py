"""When a page has settled: by what it asks and draws itself, and not by how long that takes on some machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import APIResponse, BrowserContext, Locator, Page, Request, Route

from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import until

T = TypeVar("T")
FRAMES = 8
"""frames, counted by the page itself, without a request under way or anything drawn: what follows an answer comes
sooner"""
# What the page asks is counted from before its own scripts run: each fetch until its answer is read to its end. The
# sign of life never ends.
_WATCH = """() => {
  const fetched = window.fetch;
  let underWay = 0, changed = 0;
  window.fetch = async (...asked) => {
    const url = String(asked[0].url ?? asked[0]);
    if (url.includes('/heartbeat/')) return fetched(...asked);
    underWay += 1;
    try {
      const answer = await fetched(...asked);
      underWay += 1;
      answer.clone().text().catch(() => {}).finally(() => { underWay -= 1; });
      return answer;
    } finally {
      underWay -= 1;
    }
  };
  const start = () => {
    new MutationObserver(() => { changed += 1; })
      .observe(document.documentElement, {subtree: true, childList: true, characterData: true});
  };
  if (document.documentElement) start(); else document.addEventListener('readystatechange', start, {once: true});
  window.fsdStirred = () => [underWay, changed];
}"""
# A page of the application has opened when it says how the worker is. Figures are drawn by a script of their own.
_SETTLED = """(frames) => new Promise((done) => {
  const opened = () => document.readyState === 'complete' && (!document.querySelector('gradio-app, .gradio-container')
    || document.querySelector('.fsd-worker'));
  const undrawn = () => [...document.querySelectorAll('[data-testid="plotly"]')]
    .some((figure) => figure.checkVisibility() && !figure.querySelector('.main-svg'));
  let quiet = 0, before = -1;
  const look = () => {
    const [underWay, changed] = window.fsdStirred();
    quiet = underWay === 0 && changed === before && opened() && !undrawn() ? quiet + 1 : 0;
    before = changed;
    quiet < frames ? requestAnimationFrame(look) : done();
  };
  look();
})"""

# A field that has just appeared is once more given what it was built with, some frames later.
_DRAWN = """() => new Promise((done) => {
  let quiet = 0, before = -1;
  const look = () => {
    const [, changed] = window.fsdStirred?.() ?? [0, 0];
    quiet = changed === before ? quiet + 1 : 0;
    before = changed;
    quiet < 3 ? requestAnimationFrame(look) : done();
  };
  look();
})"""


def watch(context: BrowserContext) -> None:
    """The windows of this browser can be waited for with ``settled``."""
    context.add_init_script(f"({_WATCH})()")


def go(page: Page, address: str) -> None:
    """Opens a page and waits until it has settled: an act before that may be overtaken by what the page opens with."""
    page.goto(address)
    settled(page)


def settled(page: Page) -> None:
    """Waits until the page has opened, and all that it asked for has come and is drawn."""
    page.evaluate(_SETTLED, FRAMES)


@contextmanager
def typing_as_people_do() -> Iterator[None]:
    """Nothing is typed into a field in the frames in which it appears: no hand is that fast."""
    fill = Locator.fill

    def typed(field: Locator, value: str, **options: Any) -> None:
        field.evaluate(_DRAWN)
        fill(field, value, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Locator, "fill", typed)
        yield


def polled(page: Page, seconds: float) -> None:
    """Waits until the page's clock of so many seconds has ticked once more, and was answered and the answer drawn."""
    settled(page)  # so that the next answer is to a question that is yet to be asked
    clocks = {c["id"] for c in _config(page, "components") if c["type"] == "timer" and c["props"]["value"] == seconds}
    ticks = {event["id"] for event in _config(page, "dependencies") if clocks & {one for one, _ in event["targets"]}}
    assert ticks, f"no clock of {seconds} s"
    page.wait_for_event("response", lambda answer: _function(answer.request) in ticks).finished()
    settled(page)


def meanwhile(page: Page, condition: Callable[[], T | None], what: str) -> T:
    """The condition's first value that is true. What a test routes goes on, which a plain ``until`` stops."""
    return until(lambda: condition() or page.wait_for_timeout(20), what, PATIENCE)  # type: ignore[func-returns-value]


def acts(page: Page) -> list[int]:
    """What the page asks from now on beside its clocks, as the numbers of its events; grows while it is looked at."""
    themselves = {
        (event["id"], target)
        for event in _config(page, "dependencies")
        for target, name in event["targets"]
        if name in ("tick", "load")
    }
    asked: list[int] = []

    def note(request: Request) -> None:
        event = _function(request)
        if event >= 0 and (event, json.loads(request.post_data or "{}").get("trigger_id")) not in themselves:
            asked.append(event)

    page.on("request", note)
    return asked


@contextmanager
def clockless(page: Page) -> Iterator[None]:
    """The page's clocks ask nothing meanwhile."""
    clocks = {c["id"] for c in _config(page, "components") if c["type"] == "timer"}
    stopped = [True]

    def pass_on(route: Route) -> None:
        asks = _function(route.request) >= 0 and stopped
        if not asks or json.loads(route.request.post_data or "{}").get("trigger_id") not in clocks:
            route.continue_()

    page.route("**/gradio_api/run/**", pass_on)
    yield
    stopped.clear()


def acting(request: Request) -> bool:
    """Whether a page asks for something to be done, and not only what there is to show."""
    return r"\"acts\":[{" in (request.post_data or "")


class Held:
    """Holds back what the page asks, or the server's answers to it, until ``release``: all, or ``only`` some.

    It is never taken off the page, for the browser then forgets for ever what is on its way (of requests each 7 ms,
    three in a hundred).
    """

    def __init__(
        self, page: Page, *, answers: bool = False, only: Callable[[Request], bool] = lambda request: True
    ) -> None:
        self._page, self._answers, self._only, self._holding = page, answers, only, True
        self._waiting: list[tuple[Route, APIResponse | None]] = []
        page.route("**/gradio_api/run/**", self._hold)

    def _hold(self, route: Route) -> None:
        if not self._holding or not self._only(route.request):
            route.continue_()
            return
        self._waiting.append((route, route.fetch() if self._answers else None))
        if not self._holding:  # released while the answer was fetched
            self.release()

    def wait(self, count: int = 1) -> None:
        """Waits until so many questions are held back."""
        meanwhile(self._page, lambda: len(self._waiting) >= count, "a question to hold back")

    def release(self) -> None:
        """Lets everything go, and holds nothing more."""
        self._holding = False
        while self._waiting:
            route, answer = self._waiting.pop(0)
            route.fulfill(response=answer) if answer else route.continue_()


def _config(page: Page, part: str) -> list[dict[str, Any]]:
    """The components or events of the page that is open."""
    here = urlsplit(page.url).path.strip("/")
    return page.evaluate(
        """([part, here]) => {
          const {page, [part]: all} = window.gradio_config;
          return all.filter((one) => page[here][part].includes(one.id));
        }""",
        [part, here],
    )


def _function(request: Request) -> int:
    """Which of the page's events asks."""
    if request.method != "POST" or "/gradio_api/run/" not in request.url:
        return -1
    return int(json.loads(request.post_data or "{}").get("fn_index", -1))
