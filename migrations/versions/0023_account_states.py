"""When people signed in last, who is disabled, and one-time passwords.

Revision 0023; made 2026-11-26 13:30:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0021"
branch_labels = None
depends_on = None

_COLUMNS = ("signed_in_at", "disabled_at", "one_time_until")


def upgrade() -> None:
    for column in _COLUMNS:
        op.add_column("users", sa.Column(column, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    for column in reversed(_COLUMNS):
        op.drop_column("users", column)
