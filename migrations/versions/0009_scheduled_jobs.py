"""`scheduled_jobs` is found under its name, as the crawl jobs' document has it, with no search path set.

Whoever reads or writes it does so by the rights that he has to the engine's own table. Where there already is something
of that name, it stays as it is.

Revision ID: app_0009
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "app_0009"
down_revision = "app_0008"
branch_labels = None
depends_on = None

# Not beat's own notes (`declared`, `release`, `planned_as`): a view keeps its table's columns as they are.
SCHEDULED_JOBS = """
CREATE VIEW scheduled_jobs WITH (security_invoker = true) AS
SELECT id, name, description, subreddit_id, kind, target, kwargs, options, cron_expression, timezone, enabled, priority,
    misfire, misfire_grace, overlap, owner, next_run_at, last_run_at, last_task_id, last_report, skips, last_skip_at,
    quarantined, created_by, created_at, updated_at
FROM celeriac.scheduled_jobs
"""

# Not by the search path, which may have the engine's schema.
KIND = text("""
SELECT CAST(relkind AS text) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE relname = 'scheduled_jobs' AND nspname = current_schema()
""")


def upgrade() -> None:
    if op.get_bind().execute(KIND).scalar_one_or_none() is None:
        op.execute(SCHEDULED_JOBS)


def downgrade() -> None:
    if op.get_bind().execute(KIND).scalar_one_or_none() == "v":
        op.execute("DROP VIEW scheduled_jobs")
