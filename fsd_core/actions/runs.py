"""What is done with runs, and with experiments as they are kept: listed, annotated, deleted."""

from __future__ import annotations

from typing import Annotated

from fsd_core.actions.action import Ask, action
from fsd_core.actions.answers import ExperimentAnswer, RunAnswer, checked_limit, experiment_record, run_record
from fsd_core.errors import NotGiven
from fsd_core.review.review_service import resting_on
from fsd_core.storage.records import Edit, Subject, read_tags
from fsd_core.texts import Id
from fsd_core.worker import run_actions


@action()
def list_runs(
    ask: Ask,
    search: Annotated[str, "words of a run's setting, experiment, task or tags. Default: all runs"] = "",
    experiment: Annotated[Id, "id of an experiment. Default: all experiments"] = "",
    limit: Annotated[int, "how many, 1 to 100"] = 20,
    archived: Annotated[bool, "whether to include archived runs"] = False,
) -> list[RunAnswer]:
    """Return the latest runs with their options and metrics, newest first."""
    filters = {"search": search, "experiment_id": experiment or None, "archived": None if archived else False}
    views = ask.repository.runs(limit=checked_limit(limit), **filters)  # pyright: ignore[reportArgumentType]
    return [run_record(run) for run in views]


@action(role="author", doing="Writing notes", writes=True, repeatable=True)
def annotate(
    ask: Ask,
    kind: Annotated[Subject, "run or experiment"],
    id: Annotated[Id, "its id"],
    name: Annotated[str | None, "new name, of an experiment"] = None,
    note: Annotated[str | None, "new note. An empty one removes it"] = None,
    tags: Annotated[list[str] | None, "all of its tags, single words"] = None,
    archived: Annotated[bool | None, "whether lists hide it"] = None,
    version: Annotated[
        int | None, "as it was read. If given, a change that somebody else made since is not replaced"
    ] = None,
) -> RunAnswer | ExperimentAnswer:
    """Change the name, note, tags or archiving of a run or an experiment, and return it.

    What is left out stays unchanged. Every change is logged with who made it.
    """
    edit = Edit(name, note, None if tags is None else read_tags(" ".join(tags)), archived)
    ask.repository.annotate(kind, id, edit, ask.person, version)
    return run_record(ask.repository.run(id)) if kind == "run" else experiment_record(ask.repository.experiment(id))


@action(role="admin", doing="Deleting", people=True, destroys=True)
def delete(
    ask: Ask,
    kind: Annotated[Subject, "run or experiment"],
    id: Annotated[Id, "its id"],
    evidence: Annotated[bool, "delete it although it is evidence, on which an approval or a proposal rests"] = False,
) -> str:
    """Delete a run, or an experiment with its runs, with prompts and traces, here and in MLflow, for ever.

    If an approval or a proposal rests on it, it is refused with their names.
    """
    if not evidence and (found := resting(ask, kind, id)):
        raise NotGiven(f"{found} Nothing was deleted: to delete it all the same, say evidence=true.")
    return f"{run_actions.delete(ask.repository, ask.settings.home, kind, id, ask.person).name} was deleted."


def resting(ask: Ask, kind: Subject, id: str) -> str:
    """Return what rests on a run or an experiment, as a sentence; empty if nothing does."""
    runs = [id] if kind == "run" else [run.id for run in ask.repository.experiment(id).runs]
    return resting_on(ask.repository, runs)
