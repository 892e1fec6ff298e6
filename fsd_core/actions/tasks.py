"""What is done with tasks of one's own."""

from __future__ import annotations

import json
from typing import Annotated, Any

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, action
from fsd_core.errors import UnfitTask
from fsd_core.tasks.custom.custom_task import CustomTask, checked_name, keep
from fsd_core.tasks.custom.reading import check


class TaskAnswer(TypedDict):
    """A version of a task; ``task`` is the name that ``start_experiment`` takes."""

    task: str
    title: str
    scorer: str
    prompts: int
    added_by: str
    notes: list[str]


@action(role="author", doing="Adding a task", writes=True, repeatable=True)
def add_task(
    ask: Ask,
    name: Annotated[str, "1 to 40 small letters, digits and hyphens, such as support-questions"],
    lines: Annotated[
        list[dict[str, Any]],
        "as in a file of JSON Lines: each has prompt or messages, and reference where it is scored, or fields of other "
        "names that tell what they hold, such as question, choices and answer",
    ],
    scorer: Annotated[
        str, "number, choice, exact, contains, regex or none. Default: what the first line says, or what fits"
    ] = "",
    title: Annotated[str, "name that people see"] = "",
    all_turns: Annotated[bool, "whether the user turns of conversations are asked one after another"] = False,
    group_similar: Annotated[bool, "whether near-duplicates are made groups, each of which counts once"] = False,
) -> TaskAnswer:
    """Add a task of one's own, or a new version of one.

    Runs name the version that they measured, so what was measured stays. The same lines make no other version.
    """
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    checked_name(name)
    remedy = "or set group_similar"
    checked = check(content, scorer or None, all_turns=all_turns, group_similar=group_similar, remedy=remedy)
    if checked.problems:
        raise UnfitTask(f"The task cannot be used. {checked.problems[0].sentence}")
    stored = keep(ask.repository, CustomTask.of(name, checked, title.strip()), ask.person.name)
    return {
        "task": stored.full_name, "title": stored.title, "scorer": stored.scorer, "prompts": stored.prompts,
        "added_by": stored.added_by, "notes": list(checked.notes),
    }  # fmt: skip
