"""The review log: uses, proposals, verdicts and aliases as rows that are never changed.

Revision 0004; made 2026-11-23 00:40:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

REFUSAL = "the review log only grows"


def upgrade() -> None:
    op.create_table(
        "review_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("use_id", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("act", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_log")),
        sa.UniqueConstraint("use_id", "sequence", name=op.f("uq_review_log_use_id")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION review_log_kept() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER review_log_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON review_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION review_log_kept()"
        )
        return
    for act in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER review_log_kept_{act.lower()} BEFORE {act} ON review_log "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )
    # INSERT OR REPLACE deletes what is in its way without firing the trigger on DELETE.
    op.execute(
        "CREATE TRIGGER review_log_kept_insert BEFORE INSERT ON review_log "
        "WHEN EXISTS (SELECT 1 FROM review_log "
        "WHERE id = NEW.id OR (use_id = NEW.use_id AND sequence = NEW.sequence)) "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )


def downgrade() -> None:
    op.drop_table("review_log")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION review_log_kept()")
