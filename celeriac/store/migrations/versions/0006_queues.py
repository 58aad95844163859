"""A task's own queue, where its role has several: none is the role's first.

Revision ID: celeriac_0006
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0006"
down_revision = "celeriac_0005"
branch_labels = None
depends_on = None

TABLES = ("tasks", "history")


def upgrade() -> None:
    op.execute("ALTER TABLE celeriac.tasks ADD COLUMN queue text")
    op.execute("ALTER TABLE celeriac.history ADD COLUMN queue text")


def downgrade() -> None:
    """What waits in a queue of its own waits in the role's first, where the release before looks.

    Views and routines that have the column go with it: the release before makes its own.
    """
    for table in ("ready", "later", "parked", "behind", "tickets"):
        op.execute(f"UPDATE celeriac.{table} SET role = split_part(role, ',', 1) WHERE strpos(role, ',') > 0")
    op.execute("DELETE FROM celeriac.roles WHERE definition ? 'lane_of'")
    op.execute("DELETE FROM celeriac.batchers WHERE strpos(role, ',') > 0")
    op.execute("DROP FUNCTION IF EXISTS celeriac.enqueue CASCADE")
    for table in TABLES:
        op.execute(f"ALTER TABLE celeriac.{table} DROP COLUMN queue CASCADE")
    op.execute("DELETE FROM celeriac.routines")
