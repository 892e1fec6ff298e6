"""API endpoints that annotate and delete runs and experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import gradio as gr

from dashboard.tables.run_record import ExperimentAnswer, RunAnswer, experiment_record, run_record
from dashboard.ui import actions
from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.errors import NotGiven
from fsd_core.review.resting import resting_on
from fsd_core.roles import require, require_person
from fsd_core.storage.edits import Edit, read_tags
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def annotation_endpoints(repository: Repository, home: Path) -> list[Endpoint]:
    @does(repeatable=True)
    def annotate(
        kind: Literal["run", "experiment"],
        id: Id,
        request: gr.Request,
        name: str | None = None,
        note: str | None = None,
        tags: list[str] | None = None,
        archived: bool | None = None,
        version: int | None = None,
    ) -> RunAnswer | ExperimentAnswer:
        """Change the name, note, tags or archiving of a run or an experiment, and return it. Needs the role author.

        What is left out stays unchanged. Every change is logged with who made it.

        Args:
            kind: run or experiment
            id: its id
            name: new name, of an experiment
            note: new note. An empty one removes it
            tags: all of its tags, single words
            archived: whether lists hide it
            version: as it was read. If given, a change that somebody else made since is not replaced
        """
        person = person_of(request)
        require(person, "author", "Writing notes")
        edit = Edit(name, note, None if tags is None else read_tags(" ".join(tags)), archived)
        repository.annotate(kind, id, edit, person, version)
        return run_record(repository.run(id)) if kind == "run" else experiment_record(repository.experiment(id))

    @does(destroys=True)
    def delete(kind: Literal["run", "experiment"], id: Id, request: gr.Request, evidence: bool = False) -> str:
        """Delete a run, or an experiment with its runs, with prompts and traces, here and in MLflow, for ever.

        For people with the role admin. If an approval or a proposal rests on it, it is refused with their names.

        Args:
            kind: run or experiment
            id: its id
            evidence: delete it although it is evidence, on which an approval or a proposal rests
        """
        person = person_of(request)
        require_person(person, "admin", "Deleting")
        runs = [id] if kind == "run" else [run.id for run in repository.experiment(id).runs]
        if not evidence and (resting := resting_on(repository, runs)):
            raise NotGiven(f"{resting} Nothing was deleted: to delete it all the same, say evidence=true.")
        return actions.perform(repository, home, person, "delete", kind, id)

    return [annotate, delete]
