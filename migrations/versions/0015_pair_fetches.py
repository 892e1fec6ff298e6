"""How far a fetch of models is, and room for the names of several folders.

Revision 0015; made 2026-11-26 10:20:00.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

COLUMNS = ("bytes_done", "bytes_total")


def upgrade() -> None:
    for column in COLUMNS:  # not by batch_alter_table, which on SQLite copies the table
        op.add_column("jobs", sa.Column(column, sa.BigInteger(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":  # SQLite does not look at lengths
        op.alter_column("settings", "pair", type_=sa.String(length=2000))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("settings", "pair", type_=sa.String(length=255))
    for column in COLUMNS:
        op.drop_column("jobs", column)
