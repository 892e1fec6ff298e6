"""The role that each act of a page needs. Who has it not sees its button disabled, with the reason."""

from __future__ import annotations

from contextvars import ContextVar

from fsd_core.errors import Refused
from fsd_core.roles import LOCAL, Person, require, require_person

LOOKS: ContextVar[Person] = ContextVar("looks", default=LOCAL)
"""who gets the answer that is drawn"""

_NEEDS = {
    "author": {
        "start": "Starting an experiment", "find": "Starting a calibration", "cancel": "Cancelling work",
        "resume": "Resuming work", "go-on": "Giving a calibration time", "time-again": "Timing finalists again",
        "archive": "Archiving", "unarchive": "Archiving", "annotate": "Writing notes", "mark": "Marking an output",
        "custom task": "Adding a task", "dropped file": "Adding a task", "fetch": "Fetching a task",
        "keep prompt": "Adding a prompt", "measure bounds": "Measuring bounds",
        "check models": "Checking models", "add models": "Adding models", "forget models": "Forgetting a pair",
        "search models": "Searching the hub", "suggest drafts": "Suggesting drafts", "fetch models": "Fetching models",
        "cancel fetch": "Cancelling a fetch", "check endpoint": "Checking an endpoint", "save view": "Saving a view",
        "rename-view": "Renaming a view", "save report": "Saving a report", "make a use": "Making a use",
        "propose": "Proposing a setting", "choose evidence": "Choosing other evidence", "comment": "Commenting",
        "ask for verdicts": "Asking for a review", "waive": "Answering for a requirement",
        "vote": "Voting", "stop voting": "Voting",
    },
    "reviewer": dict.fromkeys(("approve", "request changes", "decline"), "A verdict"),
    "admin": {
        "delete": "Deleting", "change the use": "Changing a use", "roll back": "Rolling back",
        "add endpoint": "Adding an endpoint", "forget endpoint": "Forgetting an endpoint",
    },
}  # fmt: skip
_FOR_PEOPLE = ("A verdict", "Answering for a requirement", "Voting", "Deleting", "Changing a use", "Rolling back")


def check_role(person: Person, act: str) -> None:
    """Raise ``Refused`` unless the person has the role that an act needs, such as ``vote`` or ``vote Left``."""
    for role, deeds in _NEEDS.items():
        if what := deeds.get(act) or deeds.get(act.partition(" ")[0]):
            (require_person if what in _FOR_PEOPLE else require)(person, role, what)


def refusal(person: Person, act: str) -> str:
    """Return why a person may not do this, or an empty string."""
    try:
        check_role(person, act)
    except Refused as error:
        return str(error)
    return ""
