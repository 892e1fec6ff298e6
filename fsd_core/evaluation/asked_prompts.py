"""Prompts of a run as they are asked: a later turn follows the run's answers to earlier turns."""

from __future__ import annotations

from fsd_core.errors import FsdError
from fsd_core.storage.database.repository import Repository
from fsd_core.tasks.base import Example, Said, Task


class TurnFailed(FsdError):
    """A turn of a conversation cannot be asked, because an earlier one failed."""

    code = "turn-failed"


def asked_prompt(repository: Repository, run_id: str, task: Task, position: int) -> Example:
    """Return a prompt of a run as it is asked, with what the run wrote in earlier turns. Raises ``TurnFailed``."""
    turn = task.all_examples()[position].turn
    earlier = [repository.generations(run_id, position=position - back) for back in range(turn, 0, -1)]
    if any(not found or found[0].outcome == "failed" for found in earlier):
        raise TurnFailed(
            "An earlier turn of this conversation failed, so this one could not be asked. Resume the run to try again."
        )
    return task.asked(position, [Said(found[0].text, found[0].only_thought) for found in earlier])
