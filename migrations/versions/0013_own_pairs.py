"""Pairs that people have named.

Revision 0013; made 2026-11-26 08:00:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "own_pairs",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("version", sa.String(length=16), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.Column("added_by", sa.String(length=255), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_own_pairs")),
    )


def downgrade() -> None:
    op.drop_table("own_pairs")
