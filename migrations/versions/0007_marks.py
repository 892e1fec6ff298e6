"""Marks: what somebody thinks of one output.

Revision 0007; made 2026-11-23 04:00:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "marks",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_marks_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", "who", name=op.f("pk_marks")),
    )


def downgrade() -> None:
    op.drop_table("marks")
