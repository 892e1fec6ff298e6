"""Saved views, names for addresses of Runs and Compare, and the memory of the worker's device.

Revision 0021; made 2026-11-26 13:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("page", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("folded", sa.String(length=255), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_views")),
        sa.UniqueConstraint("page", "folded", name=op.f("uq_saved_views_page")),
    )
    op.add_column("worker_state", sa.Column("memory", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("worker_state", "memory")
    op.drop_table("saved_views")
