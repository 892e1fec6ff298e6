"""HTML buttons that do something on the server, and ask first if it cannot be undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.ui.needs import LOOKS, check_role, refusal
from dashboard.ui.templates import Html, render, script
from fsd_core.errors import NotApplicable, Stale
from fsd_core.formatting import count
from fsd_core.roles import Person
from fsd_core.storage.edits import Edit
from fsd_core.storage.records import UNENDED
from fsd_core.worker import more_time, run_actions

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Deletion, ExperimentView

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
        "cancel": lambda: _cancel(repository, kind, id),
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
    return f"{more_time.go_on(repository, home, id):g}"


def _time_again(repository: Repository, home: Path, kind: str, id: str) -> str:
    if kind != "experiment":
        raise NotApplicable("Only the finalists of a calibration are timed again.")
    prompts = more_time.time_finalists(repository, home, id)
    return f"The finalists of {_name(repository, kind, id)} are timed again on {count(prompts, 'prompt')}."


def _set_archived(repository: Repository, person: Person, kind: str, id: str, archived: bool) -> str:
    """Archive or unarchive a run or an experiment and return its name."""
    repository.annotate("run" if kind == "run" else "experiment", id, Edit(archived=archived), person)
    return _name(repository, kind, id)


def _name(repository: Repository, kind: str, id: str) -> str:
    return repository.experiment(id).name if kind == "experiment" else repository.run(id).label


def _cancel(repository: Repository, kind: str, id: str) -> str:
    name = _name(repository, kind, id)
    if (status := repository.job(id).status) not in UNENDED:
        return f"{name} has ended already ({status}), so there is nothing to cancel."
    repository.request_cancel(id)
    return f"{name} stops after its current prompt."
