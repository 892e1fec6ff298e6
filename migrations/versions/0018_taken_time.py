"""The processor time of each prompt, and the time per answer of runs that were measured before it was a metric.

Revision 0018; made 2026-11-26 10:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None

_KEY = "seconds_per_answer"


def upgrade() -> None:
    op.add_column("generations", sa.Column("cpu_seconds", sa.Double(), nullable=True))
    runs = sa.table("runs", sa.column("id", sa.String), sa.column("metrics", sa.JSON(none_as_null=True)))
    done = sa.table(
        "generations", sa.column("run_id", sa.String), sa.column("seconds", sa.Float), sa.column("outcome", sa.String)
    )
    means = sa.select(done.c.run_id, sa.func.avg(done.c.seconds)).where(done.c.outcome != "failed")
    connection = op.get_bind()
    for run_id, seconds in connection.execute(means.group_by(done.c.run_id)).all():
        metrics = connection.scalar(sa.select(runs.c.metrics).where(runs.c.id == run_id))
        if isinstance(metrics, dict) and metrics and _KEY not in metrics:
            values = {"metrics": metrics | {_KEY: seconds}}
            connection.execute(runs.update().where(runs.c.id == run_id).values(values))


def downgrade() -> None:
    op.drop_column("generations", "cpu_seconds")
