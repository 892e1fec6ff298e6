"""What programs may say of runs and experiments."""

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
        """Changes what is said of a run or an experiment, and answers with it; what is left out stays. Every change is
        kept with who made it. Needs the role author.

        Args:
            kind: run or experiment
            id: its id
            name: new name, of an experiment
            note: new note; an empty one takes it away
            tags: all of its tags, single words
            archived: whether lists leave it out
        """
        person = person_of(request)
        require(person, "author", "Writing notes")
        edit = Edit(name, note, None if tags is None else read_tags(" ".join(tags)), archived)
        repository.annotate(kind, id, edit, person)
        return run_record(repository.run(id)) if kind == "run" else experiment_record(repository.experiment(id))

    return [annotate]
