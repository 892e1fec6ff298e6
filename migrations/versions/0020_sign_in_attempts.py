"""Wrong passwords are counted by name and address, for names that do not exist as well.

Revision 0020; made 2026-11-26 10:00:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_in_attempts",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("wait_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_sign_in_attempts")),
    )
    with op.batch_alter_table("users") as users:
        users.drop_column("failures")
        users.drop_column("locked_until")


def downgrade() -> None:
    with op.batch_alter_table("users") as users:
        users.add_column(sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
        users.add_column(sa.Column("locked_until", sa.DateTime(timezone=True), nullable=True))
    op.drop_table("sign_in_attempts")
