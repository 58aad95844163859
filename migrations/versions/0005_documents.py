"""What the documents name: views and functions under their names, over the engine's.

Revision ID: app_0005
"""

from __future__ import annotations

from alembic import op

revision = "app_0005"
down_revision = "app_0004"
branch_labels = None
depends_on = None

WORKER_TASKS = """
CREATE VIEW worker_tasks AS
SELECT w.*,
    CASE jsonb_typeof(w.kwargs -> 'dispensary_id')
        WHEN 'number' THEN CAST(w.kwargs ->> 'dispensary_id' AS numeric)::bigint END AS dispensary_id,
    (SELECT d.platform FROM dispensaries d
        WHERE d.id = CASE jsonb_typeof(w.kwargs -> 'dispensary_id')
            WHEN 'number' THEN CAST(w.kwargs ->> 'dispensary_id' AS numeric)::bigint END) AS platform
FROM celeriac.worker_tasks w
"""

CRAWL_JOBS = """
CREATE VIEW crawl_jobs AS
SELECT w.id, CAST(w.unique_key AS bigint) AS subreddit_id,
    CASE WHEN w.status IN ('pending', 'claimed') THEN 'queued' WHEN w.status = 'running' THEN 'crawling'
        WHEN w.status = 'completed' THEN 'success' ELSE 'failed' END AS status,
    w.priority, w.retry_count AS retries, w.started_at AS last_attempt,
    CAST(extract(epoch FROM w.completed_at - w.started_at) * 1000 AS integer) AS duration_ms, w.enqueued_by,
    w.created_at, w.updated_at, w.scheduled_for AS visible_at, w.retry_count, w.max_retries,
    CASE WHEN w.waits_for = 'time' AND w.retry_count > 0 THEN w.scheduled_for END AS next_retry_at,
    w.started_at, w.completed_at, w.error_message
FROM celeriac.worker_tasks w WHERE w.role = 'crawl_subreddit'
"""

CAPACITY = "CREATE VIEW v_worker_capacity AS SELECT * FROM celeriac.v_worker_capacity"

RECOVER = """
CREATE FUNCTION recover_stale_tasks(minutes double precision DEFAULT 10) RETURNS integer LANGUAGE sql
AS $$ SELECT celeriac.recover_stale_tasks(minutes) $$
"""


def upgrade() -> None:
    for statement in (WORKER_TASKS, CRAWL_JOBS, CAPACITY, RECOVER):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION recover_stale_tasks")
    op.execute("DROP VIEW v_worker_capacity, crawl_jobs, worker_tasks")
