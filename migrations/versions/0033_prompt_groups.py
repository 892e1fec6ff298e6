"""Groups of prompts that depend on each other.

Revision 0033; made 2026-11-26 17:05:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("group", sa.String(length=100), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("generations", "group")
