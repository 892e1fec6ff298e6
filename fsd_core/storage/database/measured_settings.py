"""Settings, by their hash or listed with how often each was measured."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Select, func, or_, select, update

from fsd_core.config import SettingConfig
from fsd_core.storage.database.run_queries import LONGEST_SEARCH, named_like, ordinary
from fsd_core.storage.database.runs import known_pair, of_models
from fsd_core.storage.database.store import Store, get_row
from fsd_core.storage.database.tables import ExperimentRow, RunRow, SettingRow
from fsd_core.storage.records import SettingSummary, SettingView


class SettingStore(Store):
    def setting(self, id: str) -> SettingView:
        """Return a setting. Raises ``UnknownName``."""
        with self._database.session(readonly=True) as session:
            row = get_row(session, SettingRow, id, "setting")
            config = SettingConfig.model_validate(row.config).at(row.pair)
            return SettingView(row.id, row.pair, row.label, config, row.created_at)

    def pair_of(self, identity: str) -> str:
        """Return the name by which the models with an identity are known; empty if they are not."""
        with self._database.session(readonly=True) as session:
            return known_pair(session, identity)

    def place_models(self, identity: str, pair: str) -> None:
        """Record the name by which the models with an identity are known from now on."""
        with self._database.session() as session:
            session.execute(update(SettingRow).where(of_models(identity), SettingRow.pair != pair).values(pair=pair))

    def setting_names(self, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the labels and the pairs of settings, by their ids."""
        statement = select(SettingRow.id, SettingRow.label, SettingRow.pair).where(SettingRow.id.in_(list(ids)))
        with self._database.session(readonly=True) as session:
            return {row.id: (row.label, row.pair) for row in session.execute(statement)}

    def settings(
        self, search: str = "", limit: int = 50, offset: int = 0, *, dropped: bool = True
    ) -> list[SettingSummary]:
        """Return settings of at least one run, the one measured last first.

        ``dropped``: with those that were only measured while a calibration chose its finalists.
        """
        last = func.max(RunRow.created_at)
        columns = SettingRow.id, SettingRow.pair, SettingRow.label, func.count(RunRow.id), last
        statement = _matching(select(*columns), search, dropped).group_by(
            SettingRow.id, SettingRow.pair, SettingRow.label
        )
        statement = statement.order_by(last.desc(), SettingRow.id).limit(limit).offset(offset)
        with self._database.session(readonly=True) as session:
            rows = session.execute(statement).all()
            measured = (
                select(RunRow.setting_id, RunRow.task).where(RunRow.setting_id.in_([row[0] for row in rows])).distinct()
            )
            tasks: dict[str, list[str]] = {}
            for setting, task in session.execute(measured.order_by(RunRow.task)):
                tasks.setdefault(setting, []).append(task)
            return [
                SettingSummary(id, pair, label, runs, last, tuple(tasks.get(id, ())))
                for id, pair, label, runs, last in rows
            ]

    def count_settings(self, search: str = "", *, dropped: bool = True) -> int:
        with self._database.session(readonly=True) as session:
            return session.scalar(_matching(select(func.count(func.distinct(SettingRow.id))), search, dropped)) or 0


def _matching(statement: Select, search: str, dropped: bool) -> Select:
    statement = statement.select_from(SettingRow).join(RunRow, RunRow.setting_id == SettingRow.id)
    if not dropped:
        fresh = RunRow.config["first"].as_integer() >= ExperimentRow.config["choosing"].as_integer()
        selected = select(RunRow.setting_id).outerjoin(RunRow.experiment).where(or_(ordinary(), fresh))
        statement = statement.where(SettingRow.id.in_(selected))
    for word in search[:LONGEST_SEARCH].split():
        columns = (SettingRow.label, SettingRow.pair, RunRow.task)
        inside = [column.icontains(word, autoescape=True) for column in columns]
        statement = statement.where(or_(SettingRow.id.istartswith(word, autoescape=True), named_like(word), *inside))
    return statement
