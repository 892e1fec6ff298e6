"""Which token ids each prompt was rendered to.

Revision 0012; made 2026-11-26 06:50:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("prompt_hash", sa.String(16), nullable=True))


def downgrade() -> None:
    op.drop_column("generations", "prompt_hash")
