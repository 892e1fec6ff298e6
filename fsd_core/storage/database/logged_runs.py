"""Runs whose figures were measured elsewhere: stored as ended, once for each key."""

from __future__ import annotations

from typing import Any

from fsd_core.config import RunConfig
from fsd_core.errors import Taken
from fsd_core.frozen import text_digest
from fsd_core.storage.database.runs import add_setting
from fsd_core.storage.database.store import Store, insert, new_id
from fsd_core.storage.database.tables import RunRow, now
from fsd_core.storage.records import ORIGIN


class LoggedRunStore(Store):
    def log_run(
        self, config: RunConfig, metrics: dict[str, Any], origin: dict[str, Any], key: str = ""
    ) -> tuple[str, bool]:
        """Store a run that was measured elsewhere. Returns its id, and whether it is new.

        With a ``key`` the same figures are stored once, however often they are sent. Raises ``InvalidSetting`` for a
        key that was used for others.
        """
        id = text_digest(f"measured elsewhere {key}")[:32] if key else new_id()
        moment, figures = now(), metrics
        with self._database.session() as session:
            add_setting(session, config.setting)
            values = {
                "id": id, "position": 0, "setting_id": config.setting.id, "task": config.task, "seed": config.seed,
                "config": config.as_json(), "status": "finished", "metrics": figures,
                "prompts_done": config.limit, "prompts_total": config.limit,
                "decoding_seconds": figures.get("seconds") or 0.0, "provenance": {ORIGIN: origin},
                "created_at": moment, "finished_at": moment,
            }  # fmt: skip
            row = insert(session, RunRow).values(values).on_conflict_do_nothing(index_elements=[RunRow.id])
            if session.execute(row.returning(RunRow.id)).first() is not None:
                return id, True
            stored = session.get_one(RunRow, id)
            known = stored.metrics or {}
            same = (stored.setting_id, stored.task, stored.prompts_total) == (
                config.setting.id,
                config.task,
                config.limit,
            )
            if not same or any(known[name] != figures[name] for name in known.keys() & figures.keys()):
                raise Taken(
                    f"The key {key[:60]!r} was used for other figures, of '{stored.setting.label}': choose another key."
                )
            return id, False
