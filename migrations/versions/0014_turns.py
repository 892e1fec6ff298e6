"""How many turns of its conversation stand before a prompt.

Revision 0014; made 2026-11-26 10:10:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("turn", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("generations", "turn")
