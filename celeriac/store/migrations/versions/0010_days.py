"""What each day of history has of each role, so that lists, counts and prunes need not read each day.

Revision ID: celeriac_0010
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "celeriac_0010"
down_revision = "celeriac_0009"
branch_labels = None
depends_on = None

HERE = Path(__file__).parent

#: Workers run meanwhile. Until it is through, failures of days that are not listed yet are read day by day.
afterwards = (
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.ended_badly",
    "CREATE INDEX CONCURRENTLY ended_badly ON celeriac.ended (status, role, (-id)) WHERE status IS NOT NULL",
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.ended_of_workflow_by_id",
    "CREATE INDEX CONCURRENTLY ended_of_workflow_by_id ON celeriac.ended (workflow, id) WHERE workflow IS NOT NULL",
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.ended_of_workflow",
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.ended_of_awaits",
    "CREATE INDEX CONCURRENTLY ended_of_awaits ON celeriac.ended (awaits) WHERE awaits IS NOT NULL",
    "CALL celeriac.list_failures()",
)


def upgrade() -> None:
    op.get_bind().exec_driver_sql((HERE / "0010_days.sql").read_text().replace("%", "%%"))


def downgrade() -> None:
    """Routines that need these tables stay until the release before replaces them."""
    op.execute("DROP TABLE celeriac.days, celeriac.day_roles, celeriac.role_totals, celeriac.day_changes CASCADE")
    op.execute("DROP PROCEDURE IF EXISTS celeriac.list_failures")
    op.execute("DROP INDEX IF EXISTS celeriac.ended_of_workflow_by_id")
    op.execute("CREATE INDEX IF NOT EXISTS ended_of_workflow ON celeriac.ended (workflow) WHERE workflow IS NOT NULL")
    op.execute("ALTER TABLE celeriac.ended DROP status, DROP role, DROP account, DROP completed_at, DROP awaits")
