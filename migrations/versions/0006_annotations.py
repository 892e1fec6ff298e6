"""Names, notes, tags and archiving of runs and experiments, and the log of who changed or deleted what.

Revision 0006; made 2026-11-23 03:35:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

REFUSAL = "the log of changes only grows"
COLUMNS = ("note", "tags", "archived", "edits")


def upgrade() -> None:
    for table in ("experiments", "runs"):
        # Not by batch_alter_table, which on SQLite copies the table.
        op.add_column(table, sa.Column("note", sa.Text(), nullable=False, server_default=""))
        op.add_column(table, sa.Column("tags", sa.String(length=400), nullable=False, server_default=""))
        op.add_column(table, sa.Column("archived", sa.Boolean(), nullable=False, server_default=sa.false()))
        op.add_column(table, sa.Column("edits", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "change_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.String(length=32), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("act", sa.String(length=16), nullable=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_change_log")),
        sa.UniqueConstraint("subject", "sequence", name=op.f("uq_change_log_subject")),
    )
    op.create_index(op.f("ix_change_log_experiment_id"), "change_log", ["experiment_id"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION change_log_kept() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER change_log_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON change_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION change_log_kept()"
        )
        return
    for act in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER change_log_kept_{act.lower()} BEFORE {act} ON change_log "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )
    # INSERT OR REPLACE deletes what is in its way without firing the trigger on DELETE.
    op.execute(
        "CREATE TRIGGER change_log_kept_insert BEFORE INSERT ON change_log "
        "WHEN EXISTS (SELECT 1 FROM change_log "
        "WHERE id = NEW.id OR (subject = NEW.subject AND sequence = NEW.sequence)) "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )


def downgrade() -> None:
    op.drop_table("change_log")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION change_log_kept()")
    for table in ("experiments", "runs"):
        for column in COLUMNS:
            op.drop_column(table, column)
