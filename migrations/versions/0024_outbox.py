"""Messages on reviews that are sent to a webhook or by mail.

Revision 0024; made 2026-11-26 13:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("recipient", sa.String(length=255), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim", sa.String(length=32), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("given_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_due_at"), "outbox", ["due_at"])
    op.create_table(
        "outbox_cursors",
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("channel", name=op.f("pk_outbox_cursors")),
    )


def downgrade() -> None:
    op.drop_table("outbox_cursors")
    op.drop_index(op.f("ix_outbox_due_at"), table_name="outbox")
    op.drop_table("outbox")
