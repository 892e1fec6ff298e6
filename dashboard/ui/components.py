"""HTML components that all pages share, and buttons that act."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from gradio.context import Context

from dashboard.ui.templates import Html, duration, escape, explained, joined, quantity, render, script
from fsd_core.actions import endpoints, pairs
from fsd_core.actions.action import Action
from fsd_core.errors import NotApplicable, Refused, Stale
from fsd_core.metrics import METRICS, MIXED_MARK, mixed_sentence
from fsd_core.roles import LOCAL, Person, require, require_person
from fsd_core.storage.messages import EmittedToken
from fsd_core.storage.records import Edit
from fsd_core.texts import DASH, NO_INTERVAL, ROUGH_MARK, count, percent
from fsd_core.worker import run_actions

if TYPE_CHECKING:
    from fsd_core.storage.records import Deletion, ExperimentView, RunView
    from fsd_core.storage.repository import Repository


KINDS = {
    "strict": "accepted by the strict test",
    "lenient": "accepted only because the rule is lenient",
    "correction": "recovered token in place of a rejected one",
    "bonus": "bonus token after a fully accepted draft",
    "plain": "written by one model alone",
}

PRIVATE_EVENT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""Options of every event: no flickering overlay, no entry in the public API, and no use of Gradio's queue, whose stream
loses an answer if a message is late. No handler computes for long, because the worker does that."""

KEEP_PLACE = script("ui/keep_place.js")
"""for HTML that is redrawn during use: tables keep their scroll position, and the focus stays"""

_PIECES = "ui/components.html"


def show(value: str = "", **options: Any) -> gr.HTML:
    """Return a component for HTML made by this module, without Gradio's frame and styles."""
    options = {"js_on_load": None, **options, "elem_classes": ["fsd-html", *options.get("elem_classes", [])]}
    return gr.HTML(value, apply_default_css=False, **options)


def term(word: str, about: str = "") -> Html:
    """Return a word with its meaning as a hint (``terms.js``), or the word alone if it has no explanation."""
    return render(_PIECES, "term", word, about or explained(word))


def link(address: str, text: str) -> Html:
    """Return a link to another part of the application."""
    return render(_PIECES, "link", address, text)


def heading(title: str, lead: str = "") -> Html:
    """Return the title of a page, and a sentence on its purpose."""
    return render(_PIECES, "heading", title, lead)


def section(title: str) -> Html:
    """Return the title of a part of a page."""
    return render(_PIECES, "section", title)


class Notice(Html):
    """One sentence in a box."""


def notice(text: str, tone: str = "") -> Notice:
    """Return one sentence in a box. ``tone`` is empty, ``warn`` or ``bad``."""
    return Notice(render(_PIECES, "notice", text, tone))


def page_note(text: str) -> Html:
    """Return a quiet sentence that stays on the page."""
    return render(_PIECES, "page_note", text)


def dead_end(sentence: str, address: str, text: str) -> Html:
    """Return the answer to an address that leads nowhere: one sentence, and a link."""
    return render(_PIECES, "dead_end", sentence, address, text)


def empty_state(title: str, text: str, next_step: tuple[str, str] | None = None) -> Html:
    """Return a placeholder: what is missing, and a next step. ``next_step`` is (address, text) of a link."""
    return render(_PIECES, "empty_state", title, text, next_step)


def mixed_mark(names: Sequence[str]) -> Html:
    """Return the mark of a speed or a time under mixed conditions, with those that differ, or nothing without any."""
    return render(_PIECES, "mixed_mark", MIXED_MARK, mixed_sentence(names)) if names else Html()


def rough(text: str, is_rough: bool) -> Html:
    """Return a figure with the mark of one without its interval, if it ``is_rough``."""
    return joined([render(_PIECES, "rough_mark", ROUGH_MARK.strip(), NO_INTERVAL) if is_rough else "", text])


def with_interval(value: str, ends: str, mark: str = "") -> Html:
    """Return a value with the ends of its interval, if any, and a mark behind them."""
    return render(_PIECES, "with_interval", value, ends, mark)


class Tile(NamedTuple):
    """A named number with a note below it."""

    name: str
    value: str
    note: str = ""
    mixed: Sequence[str] = ()
    """for a speed or a time: the conditions that differ within it"""

    @property
    def term(self) -> Html:
        return term(self.name)

    @property
    def mark(self) -> Html:
        return mixed_mark(self.mixed)


def tiles(values: Iterable[Tile]) -> Html:
    """Return named numbers side by side."""
    return render(_PIECES, "tiles", values)


def pill(status: str) -> Html:
    """Return a status or an outcome as a word and a mark."""
    return render(_PIECES, "pill", status)


def facts(values: Mapping[str, object]) -> Html:
    """Return names and values, one pair per line."""
    return render(_PIECES, "facts", [(term(name), value) for name, value in values.items()])


class Column(NamedTuple):
    """A table's column. ``style`` is empty, ``num`` (right-aligned) or ``wide`` (may wrap)."""

    title: str
    style: str = ""
    sorted_by: str = ""
    """what of the repository a list is sorted by, if it is"""
    way: str = "A to Z"
    """how it is sorted at first: so, ``lowest first``, ``highest first`` or ``newest first``"""
    button: Html = Html()  # immutable
    """that sorts by it"""
    sorted: str = ""
    """``ascending`` or ``descending`` if the table is sorted by it"""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], label: str) -> Html:
    """Return a table of cells that are texts or HTML. ``label`` names it to a screen reader."""
    titles = [(term(c.title), c.style, c.button, {"aria-sort": c.sorted or None}) for c in columns]
    styles = [c.style for c in columns]
    return render(_PIECES, "table", titles, [zip(styles, row, strict=True) for row in rows], label)


def tokens_html(
    tokens: Sequence[EmittedToken],
    label: str = "Generated text",
    *,
    rule: str = "",
    greedy: bool = False,
    pieces: Sequence[tuple[str, bool]] = (),
) -> Html:
    """Return tokens as spans, coloured by what happened to each. ``tokens.js`` displays the numbers of a selected one.

    Tab reaches the first token, and the arrow keys the others. ``rule`` is what a lenient rule forgives, such as
    ``js ≤ 0.1``. ``pieces`` are parts of the text, each with whether it is marked as a difference.
    """
    about = {"data-rule": rule or None, "data-greedy": "" if greedy else None}
    return render(_PIECES, "tokens", label, about, map(_token, tokens, _pieces_of(tokens, pieces)))


def _pieces_of(tokens: Sequence[EmittedToken], pieces: Sequence[tuple[str, bool]]) -> Iterable[list[tuple[str, bool]]]:
    """Yield the parts of each token's text. Both sequences concatenate to the same text, or ``pieces`` is empty."""
    waiting = iter(pieces or [("".join(token.text for token in tokens), False)])
    text, marked = "", False
    for token in tokens:
        parts, missing = [], token.text
        while missing:
            if not text:
                text, marked = next(waiting)
            part = text[: len(missing)]
            parts.append((part, marked))
            text, missing = text[len(part) :], missing[len(part) :]
        yield parts


def _token(
    token: EmittedToken, parts: Sequence[tuple[str, bool]]
) -> tuple[str, Mapping[str, object], Sequence[tuple[str, bool]]]:
    """Return the kind, the numbers as attributes, and the text in its parts."""
    kind = token.kind if token.kind in KINDS else "plain"
    data = {"kind": kind, "p": token.p, "q": token.q, "d": token.divergence}
    if data["p"] is None or kind == "correction":
        data["pr"] = token.probability
    if data["p"] is not None and data["d"] is None:
        data["d"] = math.inf  # every judged token has a divergence, and JSON has no infinity
    data |= {"rejected": token.rejected, "likeliest": token.likeliest}
    return kind, {f"data-{key}": f"{v:.5g}" if isinstance(v, float) else v for key, v in data.items()}, parts


def legend() -> Html:
    """Return the meanings of the colours and lines of tokens, and how a token tells why it was written."""
    return render(_PIECES, "legend", KINDS)


def page_load() -> Any:
    """Return the event that happens when the page that is being built is opened."""
    page = Context.root_block
    assert page is not None, "events belong inside a page"
    return page.load


Ends = tuple[float | None, float | None, float | None]


def estimate(metrics: Mapping[str, Any], key: str) -> Ends:
    """Return a metric and the ends of its interval, each ``None`` if unknown."""
    return metrics.get(key), metrics.get(f"{key}_low"), metrics.get(f"{key}_high")


def unread_mark(metrics: Mapping[str, Any]) -> Html:
    """Return the mark of an accuracy that counts answers as wrong of which nothing could be read; nothing for any
    other."""
    unread = metrics.get("unread")
    return render(_PIECES, "unread_mark", unread, metrics["n"]) if unread else Html()


def figure(metrics: Mapping[str, Any], key: str, unit: str = "") -> Html:
    """Return a metric with the digits that its interval supports, seconds (``unit="s"``) as a duration."""
    value, low, high = estimate(metrics, key)
    if value is None or not math.isfinite(value):
        return escape(DASH)
    metric = METRICS[key]
    if metric.is_share:
        text = percent(value, low, high)
    else:
        text = duration(value) if unit == "s" else quantity(value, low, high, unit)
    return joined([rough(text, metric.is_rough(value, low)), unread_mark(metrics) if key == "accuracy" else ""])


LOOKS: ContextVar[Person] = ContextVar("looks", default=LOCAL)
"""who gets the answer that is drawn"""

_NEEDS = {
    "author": {
        "start": "Starting an experiment", "find": "Starting a calibration", "cancel": "Cancelling work",
        "resume": "Resuming work", "go-on": "Giving a calibration time", "time-again": "Timing finalists again",
        "archive": "Archiving", "unarchive": "Archiving", "annotate": "Writing notes", "mark": "Marking an output",
        "custom task": "Adding a task", "dropped file": "Adding a task", "fetch": "Fetching a task",
        "keep prompt": "Adding a prompt", "measure bounds": "Measuring bounds",
        "check models": "Checking models", "score again": "Scoring again", "save view": "Saving a view",
        "rename-view": "Renaming a view", "make a use": "Making a use",
        "propose": "Proposing a setting", "choose evidence": "Choosing other evidence", "comment": "Commenting",
        "ask for verdicts": "Asking for a review", "waive": "Answering for a requirement",
        "vote": "Voting", "stop voting": "Voting",
    },
    "reviewer": dict.fromkeys(("approve", "request changes", "decline"), "A verdict"),
    "admin": {
        "delete": "Deleting", "change the use": "Changing a use", "roll back": "Rolling back",
    },
}  # fmt: skip
_DEEDS: dict[str, Action[..., Any]] = {
    "add models": pairs.add_pair, "forget models": pairs.remove_pair, "search models": pairs.search_models,
    "suggest drafts": pairs.suggest_drafts, "fetch models": pairs.fetch_pair, "cancel fetch": pairs.cancel_fetch,
    "add endpoint": endpoints.add_endpoint, "check endpoint": endpoints.check_endpoint,
    "forget endpoint": endpoints.remove_endpoint,
}  # fmt: skip
"""the actions that acts of pages are"""
_FOR_PEOPLE = ("A verdict", "Answering for a requirement", "Voting", "Deleting", "Changing a use", "Rolling back")


def check_role(person: Person, act: str) -> None:
    """Raise ``Refused`` unless the person has the role that an act needs, such as ``vote`` or ``vote Left``."""
    if act in _DEEDS:
        _DEEDS[act].check_role(person)
    for role, deeds in _NEEDS.items():
        if what := deeds.get(act) or deeds.get(act.partition(" ")[0]):
            (require_person if what in _FOR_PEOPLE else require)(person, role, what)


def refusal(person: Person, act: str, check: Callable[[Person, str], None] = check_role) -> str:
    """Return why a person may not do this, as ``check`` raises it, or an empty string."""
    try:
        check(person, act)
    except Refused as error:
        return str(error)
    return ""


CLICKS = script("ui/clicks.js")


def button(action: str, kind: str, id: str, text: str, question: str = "", *, disabled: bool = False) -> Html:
    """Return a button that does ``action`` with the run or experiment (``kind``) of an id, after ``question`` if it is
    given. Whoever has not the role for it sees it disabled, with the reason."""
    reason = refusal(LOOKS.get(), action)
    return render("ui/links.html", "button", action, kind, id, text, question, disabled or bool(reason), reason)


def work_button(e: ExperimentView) -> Html:
    """Return a button that stops an unfinished experiment or continues one with more to do, or nothing if neither is
    possible."""
    if e.under_way:
        label = "Cancelling" if e.cancel_requested else "Cancel"
        return button("cancel", "experiment", e.id, label, disabled=e.cancel_requested) if e.job_id else Html()
    return button("resume", "experiment", e.id, "Resume") if any(run.has_more_to_do for run in e.runs) else Html()


def delete_button(kind: str, id: str, gone: Deletion, resting: str = "") -> Html:
    """Return a button that deletes, after a question that names what is lost. ``resting`` names the uses that rest on
    it."""
    runs = f"its {count(gone.runs, 'run')}, " if kind == "experiment" else ""
    question = (
        f"Delete the {kind} “{gone.name}” with {runs}{count(gone.prompts, 'prompt')} and their traces, here and in "
        f"MLflow? {resting}{' ' if resting else ''}This cannot be undone."
    )
    return button("delete", kind, id, "Delete", question)


ACTIONS = ("cancel", "resume", "delete", "go-on", "time-again", "archive", "unarchive")


def perform(repository: Repository, home: Path, person: Person, action: str, kind: str, id: str) -> str:
    """Do what a button asks for and return a sentence on it. Raises ``FsdError``."""
    handlers: dict[str, Callable[[], str]] = {
        "cancel": lambda: run_actions.cancel(repository, kind, id),
        "resume": lambda: f"{run_actions.resume(repository, home, kind, id)} continues at its next prompt.",
        "go-on": lambda: f"{_name(repository, kind, id)} continues for {_more_time(repository, home, kind, id)} min.",
        "time-again": lambda: _time_again(repository, home, kind, id),
        "delete": lambda: f"{run_actions.delete(repository, home, kind, id, person).name} was deleted.",
        "archive": lambda: f"{_set_archived(repository, person, kind, id, True)} is archived: lists no longer show it.",
        "unarchive": lambda: f"{_set_archived(repository, person, kind, id, False)} is in the lists again.",
    }
    if action not in handlers or kind not in ("run", "experiment"):
        raise Stale("This page has no such button: reload it.")
    check_role(person, action)
    return handlers[action]()


def _more_time(repository: Repository, home: Path, kind: str, id: str) -> str:
    if kind != "experiment":
        raise NotApplicable("Only a calibration is given time.")
    return f"{run_actions.go_on(repository, home, id):g}"


def _time_again(repository: Repository, home: Path, kind: str, id: str) -> str:
    if kind != "experiment":
        raise NotApplicable("Only the finalists of a calibration are timed again.")
    prompts = run_actions.time_finalists(repository, home, id)
    return f"The finalists of {_name(repository, kind, id)} are timed again on {count(prompts, 'prompt')}."


def _set_archived(repository: Repository, person: Person, kind: str, id: str, archived: bool) -> str:
    """Archive or unarchive a run or an experiment and return its name."""
    repository.annotate("run" if kind == "run" else "experiment", id, Edit(archived=archived), person)
    return _name(repository, kind, id)


def _name(repository: Repository, kind: str, id: str) -> str:
    return repository.experiment(id).name if kind == "experiment" else repository.run(id).label


def tags_html(view: RunView | ExperimentView) -> Html:
    """Return the tags and a mark if it is archived, or nothing without either."""
    return render("ui/links.html", "tags", view.tags, view.archived) if view.archived or view.tags else Html()


def archive_button(kind: str, view: RunView | ExperimentView) -> Html:
    """Return a button that hides it from lists or lists it again."""
    return button(
        *(("unarchive", kind, view.id, "Unarchive") if view.archived else ("archive", kind, view.id, "Archive"))
    )
