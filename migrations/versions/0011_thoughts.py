"""How many of a text's tokens belong to thoughts.

Revision 0011; made 2026-11-26 04:40:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("thought_tokens", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("generations", "thought_tokens")
