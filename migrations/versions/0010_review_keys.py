"""Keys of acts in the review log: an act that is sent again is stored once.

Revision 0010; made 2026-11-26 00:30:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

REFUSAL = "the review log only grows"
IN_THE_WAY = "id = NEW.id OR (use_id = NEW.use_id AND sequence = NEW.sequence)"


def upgrade() -> None:
    op.add_column("review_log", sa.Column("key", sa.String(length=32), nullable=True))
    op.create_index(op.f("ix_review_log_key"), "review_log", ["key"], unique=True)
    _refuse_to_replace(f"{IN_THE_WAY} OR key = NEW.key")


def downgrade() -> None:
    _refuse_to_replace(IN_THE_WAY)
    op.drop_index(op.f("ix_review_log_key"), "review_log")
    op.drop_column("review_log", "key")


def _refuse_to_replace(in_the_way: str) -> None:
    """On SQLite, INSERT OR REPLACE deletes what is in its way without firing the trigger on DELETE."""
    if op.get_bind().dialect.name == "postgresql":
        return
    op.execute("DROP TRIGGER review_log_kept_insert")
    op.execute(
        "CREATE TRIGGER review_log_kept_insert BEFORE INSERT ON review_log "
        f"WHEN EXISTS (SELECT 1 FROM review_log WHERE {in_the_way}) "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )
