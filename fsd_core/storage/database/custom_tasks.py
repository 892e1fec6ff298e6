"""Custom tasks: versions, each stored once, by the hash of its content."""

from __future__ import annotations

from sqlalchemy import select

from fsd_core.errors import DataDamaged
from fsd_core.frozen import text_hash
from fsd_core.storage.database.store import Store, insert, unknown
from fsd_core.storage.database.tables import TaskRow, now
from fsd_core.storage.records import TaskView
from fsd_core.texts import whole

LONGEST_TITLE = 120
_COLUMNS = (
    TaskRow.name, TaskRow.version, TaskRow.title, TaskRow.scorer, TaskRow.prompts,
    TaskRow.added_by, TaskRow.added_at,
)  # fmt: skip


class TaskStore(Store):
    def add_task(self, name: str, content: str, *, title: str, scorer: str, prompts: int, who: str) -> TaskView:
        """Store a version of a task, and make it the one that the name refers to.

        Content that exists under this name is stored once.
        """
        version, moment = text_hash(content), now()
        updated = {"title": whole(title)[:LONGEST_TITLE], "added_by": whole(who), "added_at": moment}
        fixed = {"name": name, "version": version, "content": content, "scorer": scorer, "prompts": prompts}
        with self._database.session() as session:
            row = insert(session, TaskRow).values(fixed | updated)  # another process may add the same at this moment
            session.execute(row.on_conflict_do_update(index_elements=["name", "version"], set_=updated))
        return TaskView(name, version, updated["title"], scorer, prompts, updated["added_by"], moment)

    def task_versions(self, name: str | None = None) -> list[TaskView]:
        """Return the versions of a task, or of all, latest first."""
        statement = select(*_COLUMNS).order_by(TaskRow.added_at.desc(), TaskRow.name, TaskRow.version)
        if name is not None:
            statement = statement.where(TaskRow.name == name)
        with self._database.session(readonly=True) as session:
            return [TaskView(*row) for row in session.execute(statement)]

    def task_content(self, name: str, version: str) -> str:
        """Return the lines of a version.

        Raises ``UnknownName``, and ``DataDamaged`` if the lines are not what was added.
        """
        with self._database.session(readonly=True) as session:
            row = session.get(TaskRow, (name, version))
            content = None if row is None else row.content
        if content is None:
            raise unknown("task", f"{name}@{version}")
        if text_hash(content) != version:
            raise DataDamaged(
                f"The prompts of the task '{name}@{version}' are damaged: restore the database from a backup."
            )
        return content
