"""The workers that have not stopped, by an index: each start of a worker leaves a row for a month.

Heartbeats change no column of it.

Revision ID: celeriac_0009
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0009"
down_revision = "celeriac_0008"
branch_labels = None
depends_on = None

afterwards = (
    "DROP INDEX CONCURRENTLY IF EXISTS celeriac.workers_living",
    "CREATE INDEX CONCURRENTLY workers_living ON celeriac.workers (worker_id) WHERE status <> 'stopped'",
)


def upgrade() -> None:
    pass


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS celeriac.workers_living")
