"""Several workers, each with a name: the heartbeat of each is a row.

Revision 0028; made 2026-11-26 16:40:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0026"
branch_labels = None
depends_on = None

_SHARED = "pid, host, device, activity, started_at, heartbeat_at, memory"


def _columns() -> list[sa.Column]:
    return [
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("device", sa.String(length=255), nullable=False),
        sa.Column("activity", sa.String(length=255), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=True),
    ]


def upgrade() -> None:
    name = sa.Column("name", sa.String(length=40), nullable=False)
    op.create_table("workers", name, *_columns(), sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")))
    op.execute(f"INSERT INTO workers (name, {_SHARED}) SELECT '', {_SHARED} FROM worker_state WHERE id = 1")
    op.drop_table("worker_state")


def downgrade() -> None:
    id = sa.Column("id", sa.Integer(), nullable=False)
    op.create_table("worker_state", id, *_columns(), sa.PrimaryKeyConstraint("id", name=op.f("pk_worker_state")))
    op.execute(f"INSERT INTO worker_state (id, {_SHARED}) SELECT 1, {_SHARED} FROM workers WHERE name = ''")
    op.drop_table("workers")
