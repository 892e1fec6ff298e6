"""Tasks of one's own: the content of every version.

Revision 0008; made 2026-11-23 14:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tasks",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("version", sa.String(length=16), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("scorer", sa.String(length=16), nullable=False),
        sa.Column("prompts", sa.Integer(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("added_by", sa.String(length=255), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_tasks")),
    )


def downgrade() -> None:
    op.drop_table("tasks")
