"""What replay predicted of a run before it was measured.

Revision 0009; made 2026-11-23 20:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("predicted", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "predicted")
