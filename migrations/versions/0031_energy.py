"""What a GPU reports of each prompt: its energy, and the memory in use.

Revision 0031; made 2026-11-26 16:50:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("energy", sa.Double(), nullable=True))
    op.add_column("generations", sa.Column("device_memory", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("generations", "device_memory")
    op.drop_column("generations", "energy")
