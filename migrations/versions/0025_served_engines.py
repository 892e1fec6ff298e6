"""Running engines as contenders: their names, their counters, and the wall time of each answer.

Revision 0025; made 2026-11-26 13:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("latency", sa.Double(), nullable=True))
    op.create_table(
        "served_engines",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("served", sa.JSON(), nullable=False),
        sa.Column("key_variable", sa.String(length=255), server_default="", nullable=False),
        sa.Column("added_by", sa.String(length=255), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_served_engines")),
    )
    op.create_table(
        "engine_readings",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("reading", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_engine_readings_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engine_readings")),
    )
    op.create_index(op.f("ix_engine_readings_run_id"), "engine_readings", ["run_id"])


def downgrade() -> None:
    op.drop_table("engine_readings")
    op.drop_table("served_engines")
    op.drop_column("generations", "latency")
