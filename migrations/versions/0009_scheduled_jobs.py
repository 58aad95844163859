"""`scheduled_jobs` is found under its name, as the crawl jobs' document has it, with no search path set.

Whoever reads or writes it does so by the rights that he has to the engine's own table.

Revision ID: app_0009
"""

from __future__ import annotations

from alembic import op

revision = "app_0009"
down_revision = "app_0008"
branch_labels = None
depends_on = None

SCHEDULED_JOBS = """
CREATE VIEW scheduled_jobs WITH (security_invoker = true) AS SELECT * FROM celeriac.scheduled_jobs
"""


def upgrade() -> None:
    op.execute(SCHEDULED_JOBS)


def downgrade() -> None:
    op.execute("DROP VIEW scheduled_jobs")
