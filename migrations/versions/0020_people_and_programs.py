"""Programs have owners, tokens expire, accounts have a log, and wrong passwords are counted by name and address.

Revision 0020; made 2026-11-26 10:00:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0018"
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
    op.create_table(
        "account_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("act", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_log")),
    )
    for log in ("review_log", "change_log"):
        op.add_column(log, sa.Column("owner", sa.String(length=255), nullable=True))
    for column in ("failures", "locked_until"):
        op.drop_column("users", column)
    op.add_column("api_tokens", sa.Column("owner", sa.String(length=255), nullable=False, server_default=""))
    for column in ("expires_at", "used_at"):
        op.add_column("api_tokens", sa.Column(column, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    for column in ("used_at", "expires_at", "owner"):
        op.drop_column("api_tokens", column)
    op.add_column("users", sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("users", sa.Column("locked_until", sa.DateTime(timezone=True), nullable=True))
    for log in ("change_log", "review_log"):
        op.drop_column(log, "owner")
    op.drop_table("account_log")
    op.drop_table("sign_in_attempts")
