"""Sittings: under which conditions each prompt was measured.

Prompts that are there already get none. A run's provenance was overwritten when another process took the run up again,
and the number of threads could change from prompt to prompt, so it does not say how each of them was measured.

Revision 0003; made 2026-11-24 20:40:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sittings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("conditions", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_sittings_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sittings")),
    )
    op.create_index(op.f("ix_sittings_run_id"), "sittings", ["run_id"])
    # Not by batch_alter_table, which on SQLite copies the table with all of its texts.
    op.execute(
        "ALTER TABLE generations ADD COLUMN sitting_id INTEGER "
        "CONSTRAINT fk_generations_sitting_id_sittings REFERENCES sittings (id)"
    )
    op.create_index(op.f("ix_generations_sitting_id"), "generations", ["sitting_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_generations_sitting_id"), "generations")
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.drop_column("sitting_id")
    op.drop_table("sittings")
