"""What a running engine computes on, and whether only checked hosts are asked for it.

Revision 0026; made 2026-11-26 16:40:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("served_engines", sa.Column("hardware", sa.String(length=255), server_default="", nullable=False))
    op.add_column("served_engines", sa.Column("guarded", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("served_engines") as table:
        table.drop_column("guarded")
        table.drop_column("hardware")
