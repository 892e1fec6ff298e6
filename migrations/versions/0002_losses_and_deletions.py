"""Progress of jobs, lost prompts, seconds of runs, deletions that MLflow lacks.

Revision 0002; made 2026-11-22 07:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mlflow_deletions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mlflow_deletions")),
    )
    # With a default for the rows that are there; the program always names a value.
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("progress", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("stalled", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("decoding_seconds", sa.Double(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("losses", sa.JSON(), nullable=True))
    op.execute(
        "UPDATE runs SET decoding_seconds = COALESCE("
        "(SELECT SUM(generations.seconds) FROM generations WHERE generations.run_id = runs.id), 0)"
    )


def downgrade() -> None:
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_column("losses")
        batch_op.drop_column("decoding_seconds")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("stalled")
        batch_op.drop_column("progress")
    op.drop_table("mlflow_deletions")
