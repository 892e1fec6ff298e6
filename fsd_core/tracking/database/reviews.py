"""The review log: acts are added at its end, and never changed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from fsd_core.errors import Overtaken
from fsd_core.tracking.acts import Act, read_act
from fsd_core.tracking.database.models import ReviewAct
from fsd_core.tracking.database.store import Store
from fsd_core.tracking.database.views import storable
from fsd_core.tracking.records import LoggedAct


class ReviewStore(Store):
    def review_log(self, use_id: str | None = None) -> list[LoggedAct]:
        """The acts of one use, or of all, oldest first."""
        statement = select(ReviewAct).order_by(ReviewAct.id)
        if use_id is not None:
            statement = statement.where(ReviewAct.use_id == use_id)
        with self._database.session(readonly=True) as session:
            return [_view(row) for row in session.scalars(statement)]

    def append_acts(self, use_id: str, who: str, role: str, acts: Sequence[Act], seen: int) -> list[LoggedAct]:
        """Adds acts of one person to a use, all or none, behind the ``seen`` acts that it had when they were decided.

        Raises ``Overtaken`` where it has others by now.
        """
        try:
            with self._database.session() as session:
                last = session.scalar(select(func.max(ReviewAct.sequence)).where(ReviewAct.use_id == use_id)) or 0
                if last != seen:
                    raise _overtaken()
                rows = [
                    ReviewAct(
                        use_id=use_id, sequence=seen + i, who=storable(who), role=role, kind=act.kind,
                        act=storable(act.as_json()),
                    )
                    for i, act in enumerate(acts, start=1)
                ]  # fmt: skip
                session.add_all(rows)
                session.flush()
                return [_view(row) for row in rows]
        except IntegrityError as error:
            raise _overtaken() from error


def _overtaken() -> Overtaken:
    return Overtaken("Somebody else acted here in the meantime: look at what is new, then do it again.")


def _view(row: ReviewAct) -> LoggedAct:
    return LoggedAct(row.id, row.use_id, row.sequence, row.at, row.who, row.role, read_act(row.act))
