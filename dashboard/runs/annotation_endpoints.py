"""API endpoint that annotates runs and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import gradio as gr

from dashboard.tables.run_record import experiment_record, run_record
from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.roles import require
from fsd_core.storage.edits import Edit, read_tags

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def annotation_endpoints(repository: Repository) -> list[Endpoint]:
    def annotate(
        kind: Literal["run", "experiment"],
        id: str,
        request: gr.Request,
        name: str | None = None,
        note: str | None = None,
        tags: list[str] | None = None,
        archived: bool | None = None,
    ) -> dict[str, Any]:
        """Change the name, note, tags or archiving of a run or an experiment, and return it. Needs the role author.

        What is left out stays unchanged. Every change is logged with who made it.

        Args:
            kind: run or experiment
            id: its id
            name: new name, of an experiment
            note: new note. An empty one removes it
            tags: all of its tags, single words
            archived: whether lists hide it
        """
        person = person_of(request)
        require(person, "author", "Writing notes")
        edit = Edit(name, note, None if tags is None else read_tags(" ".join(tags)), archived)
        repository.annotate(kind, id, edit, person)
        return run_record(repository.run(id)) if kind == "run" else experiment_record(repository.experiment(id))

    return [annotate]
