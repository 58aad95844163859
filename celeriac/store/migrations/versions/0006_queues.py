"""A task's own queue, if its role has several; NULL is the role's first.

Revision ID: celeriac_0006
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0006"
down_revision = "celeriac_0005"
branch_labels = None
depends_on = None

#: The order in which a settle locks them; the other order could end in a deadlock with a settle.
TABLES = ("tasks", "history")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE celeriac.{table} ADD COLUMN queue text")


def downgrade() -> None:
    """Move tasks that wait in a queue of their own to the role's first, which the release before serves; likewise rows
    of the outbox and of schedules.

    Views and routines that have the column are dropped with it: the release before makes its own.
    """
    for table in ("ready", "later", "parked", "behind", "tickets"):
        op.execute(f"UPDATE celeriac.{table} SET role = split_part(role, ',', 1) WHERE strpos(role, ',') > 0")
    op.execute("UPDATE celeriac.intake SET task = task - 'queue' WHERE task ? 'queue'")
    op.execute("""
        UPDATE celeriac.scheduled_jobs SET options = options - 'queue', declared = declared #- '{options,queue}'
        WHERE options ? 'queue' OR declared -> 'options' ? 'queue'""")
    op.execute("DELETE FROM celeriac.roles WHERE definition ? 'lane_of'")
    op.execute("DELETE FROM celeriac.batchers WHERE strpos(role, ',') > 0")
    op.execute("DROP FUNCTION IF EXISTS celeriac.enqueue CASCADE")
    for table in TABLES:
        op.execute(f"ALTER TABLE celeriac.{table} DROP COLUMN queue CASCADE")
    op.execute("DELETE FROM celeriac.routines")
