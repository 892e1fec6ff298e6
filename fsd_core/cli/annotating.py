"""The command that names, annotates, tags and archives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.cli.find import find_work
from fsd_core.roles import LOCAL
from fsd_core.settings import get_settings
from fsd_core.storage.edits import Edit, read_tags
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


def annotate(
    id: options.Id,
    name: Annotated[str | None, typer.Option(help="New name of an experiment.")] = None,
    note: Annotated[str | None, typer.Option(help="Takes the place of the note; an empty one removes it.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to add; may be given several times.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Tag to remove; may be given several times.")] = None,
    archive: Annotated[bool | None, typer.Option("--archive/--unarchive", help="Hide it from lists, or not.")] = None,
    json: options.Json = False,
) -> None:
    """Name an experiment, or note, tag or archive an experiment or a run. Without options, print the current values."""
    repository = local_runs.open_repository(get_settings())
    work = find_work(repository, id)
    kind = "experiment" if work.is_experiment else "run"

    def now() -> RunView | ExperimentView:
        return repository.experiment(work.id) if work.is_experiment else repository.run(work.id)

    before = now()
    tags = None
    if tag or untag:
        removed = set(read_tags(" ".join(untag or [])))
        tags = tuple(t for t in read_tags(" ".join([*before.tags, *(tag or [])])) if t not in removed)
    repository.annotate(kind, work.id, Edit(name, note, tags, archive), LOCAL, before.edits)
    after = now()
    title = {"name": after.name} if work.is_experiment else {}  # type: ignore[union-attr]
    values = title | {"note": after.note, "tags": list(after.tags), "archived": after.archived}
    if json:
        output.print_json({f"{kind}_id": work.id} | values)
        return
    print(f"The {kind} {work.id}" + (f" ({title['name']})" if title else ""))
    print(f"Note: {after.note or 'none'}")
    print(f"Tags: {' '.join(after.tags) or 'none'}")
    print(f"Archived: {'yes' if after.archived else 'no'}")
