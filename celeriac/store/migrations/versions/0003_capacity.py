"""What workers report, and what capacity planning and alerts ask.

Revision ID: celeriac_0003
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0003"
down_revision = "celeriac_0002"
branch_labels = None
depends_on = None

TABLES = """
CREATE INDEX worker_tasks_behind_lock_by_role ON worker_tasks (role, lock_key) WHERE waits_for = 'lock';
CREATE TABLE alerts (
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    threshold DOUBLE PRECISION NOT NULL,
    firing_since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (name, subject)
);
"""

# INVARIANT: a released row keeps leading its lock key, so nobody else has to be promoted unless it ends.
RELEASE = """
CREATE OR REPLACE FUNCTION celeriac_release(
    held_ids bigint[], held_tokens uuid[], held_as text, event_kind text, reason text, by_whom text, is_loss boolean
) RETURNS TABLE (id bigint, role text, lock_key text, becomes text) LANGUAGE sql AS $$
WITH freed AS (
    SELECT t.id, t.role, t.lock_key, t.status,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN is_loss AND t.losses + 1 >= coalesce(CAST(r.definition ->> 'max_losses' AS integer), 3) THEN 'failed'
            ELSE 'pending' END AS becomes
    FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role
    WHERE t.id = ANY(held_ids) AND t.token = ANY(held_tokens) AND t.status = held_as
    ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
), updated AS (
    UPDATE worker_tasks t
    SET status = f.becomes, losses = t.losses + CASE WHEN is_loss THEN 1 ELSE 0 END,
        token = NULL, claimed_at = NULL, started_at = NULL, deadline_at = NULL, worker_pid = NULL,
        completed_at = CASE WHEN f.becomes <> 'pending' THEN clock_timestamp() END,
        error_message = CASE WHEN f.becomes <> 'pending' THEN reason ELSE t.error_message END,
        updated_at = clock_timestamp()
    FROM freed f WHERE t.id = f.id
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT f.id, f.role, event_kind, f.status, f.becomes, by_whom, reason FROM freed f
)
SELECT f.id, f.role, f.lock_key, f.becomes FROM freed f
$$
"""

# Reads the index of active tasks, which the windows bound; never the backlog. Without `minutes` each role's own
# `stale_after` counts.
STALE = """
CREATE OR REPLACE FUNCTION celeriac_stale(batch integer, minutes double precision)
RETURNS TABLE (id bigint, token uuid) LANGUAGE sql AS $$
SELECT t.id, t.token FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role
WHERE t.status IN ('claimed', 'running') AND t.status = 'running'
    AND t.last_heartbeat_at < statement_timestamp() - interval '1 second' * coalesce(
        minutes * 60, CAST(r.definition ->> 'stale_after' AS double precision), 600)
ORDER BY t.last_heartbeat_at LIMIT batch FOR UPDATE OF t SKIP LOCKED
$$
"""

# One transaction, as a function can have no more; the windows bound how many rows it may hold.
RECOVER = """
CREATE OR REPLACE FUNCTION recover_stale_tasks(minutes double precision DEFAULT 10)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    batch CONSTANT integer := 500;
    ids bigint[];
    tokens uuid[];
    recovered integer := 0;
BEGIN
    IF minutes <= 0 THEN
        RAISE EXCEPTION 'recover_stale_tasks: give minutes above 0, and more than lie between two heartbeats';
    END IF;
    LOOP
        SELECT array_agg(s.id), array_agg(s.token) INTO ids, tokens FROM celeriac_stale(batch, minutes) s;
        PERFORM celeriac_lead(array_agg(f.lock_key))
        FROM celeriac_release(
            ids, tokens, 'running', 'rescue', 'its worker fell silent', 'recover_stale_tasks', true) f
        WHERE f.becomes <> 'pending' AND f.lock_key IS NOT NULL;
        recovered := recovered + coalesce(cardinality(ids), 0);
        EXIT WHEN coalesce(cardinality(ids), 0) < batch;
    END LOOP;
    RETURN recovered;
END $$
"""

# Each count stops at a million, which then means "at least", and walks the index of its kind of row: the table is never
# read from end to end, however much of it the planner believes to be this role's.
BACKLOG = """
CREATE OR REPLACE FUNCTION celeriac_backlog(for_role text) RETURNS TABLE (
    ready bigint, later bigint, due bigint, behind_lock bigint, claimed bigint, running bigint,
    longest_running double precision
) LANGUAGE sql STABLE SET enable_seqscan = off AS $$
SELECT
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks
        WHERE role = for_role AND status = 'pending' AND waits_for IS NULL ORDER BY account LIMIT 1000000) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks
        WHERE role = for_role AND waits_for = 'time' ORDER BY scheduled_for LIMIT 1000000) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks
        WHERE role = for_role AND waits_for = 'time' AND scheduled_for <= statement_timestamp()
        ORDER BY scheduled_for LIMIT 1000000) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks
        WHERE role = for_role AND waits_for = 'lock' ORDER BY lock_key LIMIT 1000000) AS counted),
    active.*
FROM (
    SELECT count(*) FILTER (WHERE status = 'claimed'), count(*) FILTER (WHERE status = 'running'),
        CAST(extract(epoch FROM statement_timestamp() - min(started_at) FILTER (WHERE status = 'running'))
            AS double precision)
    FROM (
        SELECT status, started_at FROM worker_tasks
        WHERE role = for_role AND status IN ('claimed', 'running') ORDER BY account LIMIT 1000000) AS handed_out
) AS active
$$
"""

# What rates and means are of: the newest 10,000. A task waits from when it was due.
LAST_HOUR = """
CREATE OR REPLACE FUNCTION celeriac_last_hour(for_role text) RETURNS TABLE (
    completed bigint, failed bigint, failed_rate double precision, retry_success_rate double precision,
    run_seconds double precision, wait_seconds double precision
) LANGUAGE sql STABLE SET enable_seqscan = off AS $$
WITH finished AS (
    SELECT status, row_number() OVER () <= 10000 AS is_new, retry_count > 0 OR tries > 0 AS again,
        extract(epoch FROM completed_at - started_at) AS ran,
        extract(epoch FROM started_at - greatest(created_at, scheduled_for)) AS waited
    FROM (
        SELECT * FROM worker_tasks
        WHERE role = for_role AND status IN ('completed', 'failed', 'cancelled')
            AND completed_at > statement_timestamp() - interval '1 hour'
        ORDER BY completed_at DESC LIMIT 1000000) AS newest_first
)
SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed'),
    avg(CASE status WHEN 'failed' THEN 1.0 WHEN 'completed' THEN 0.0 END) FILTER (WHERE is_new),
    avg(CASE status WHEN 'failed' THEN 0.0 WHEN 'completed' THEN 1.0 END) FILTER (WHERE is_new AND again),
    avg(ran) FILTER (WHERE is_new AND status = 'completed'),
    avg(waited) FILTER (WHERE is_new)
FROM finished
$$
"""

# By tens: 0 counts 0 to 9. Of each kind of waiting row the first 100,000.
PRIORITIES = """
CREATE OR REPLACE FUNCTION celeriac_priorities(for_role text) RETURNS jsonb
LANGUAGE sql STABLE SET enable_seqscan = off AS $$
SELECT coalesce(jsonb_object_agg(tens, n), '{}') FROM (
    SELECT CAST(floor(priority / 10.0) * 10 AS integer) AS tens, count(*) AS n FROM (
        (SELECT priority FROM worker_tasks
            WHERE role = for_role AND status = 'pending' AND waits_for IS NULL ORDER BY account LIMIT 100000)
        UNION ALL
        (SELECT priority FROM worker_tasks
            WHERE role = for_role AND waits_for = 'time' ORDER BY scheduled_for LIMIT 100000)
        UNION ALL
        (SELECT priority FROM worker_tasks
            WHERE role = for_role AND waits_for = 'lock' ORDER BY lock_key LIMIT 100000)
        UNION ALL
        (SELECT priority FROM worker_tasks
            WHERE role = for_role AND status IN ('claimed', 'running') AND status = 'claimed'
            ORDER BY account LIMIT 100000)
    ) AS queued GROUP BY tens) AS histogram
$$
"""

CAPACITY = """
CREATE OR REPLACE VIEW v_worker_capacity AS
SELECT r.role,
    backlog.ready + backlog.later + backlog.behind_lock AS pending_tasks,
    backlog.ready + backlog.due + backlog.behind_lock AS ready_tasks,
    backlog.claimed AS claimed_tasks,
    backlog.running AS running_tasks,
    hour.completed AS completed_last_hour,
    hour.failed AS failed_last_hour,
    live.workers AS active_workers,
    pace.seconds AS avg_duration_sec,
    pace.slots_per_worker * 3600 / pace.seconds AS tasks_per_worker_hour,
    CASE WHEN live.workers > 0
        THEN (backlog.ready + backlog.later + backlog.behind_lock) * pace.seconds
            / (3600 * live.workers * pace.slots_per_worker)
    END AS estimated_hours_to_drain
FROM roles r
LEFT JOIN batchers b ON b.role = r.role
CROSS JOIN LATERAL celeriac_backlog(r.role) AS backlog
CROSS JOIN LATERAL celeriac_last_hour(r.role) AS hour
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, CAST(sum(concurrency) AS double precision) AS slots FROM workers
    WHERE status = 'active' AND queues ? coalesce(r.definition ->> 'queue', r.role)
        AND last_heartbeat_at > statement_timestamp() - interval '2 minutes'
) AS live
CROSS JOIN LATERAL (
    -- Rows that share a ticket share its start: where the run time itself is measured, that counts.
    SELECT nullif(coalesce(b.seconds_per_task, hour.run_seconds), 0) AS seconds,
        coalesce(
            least(live.slots, CAST(r.definition ->> 'window' AS double precision)) / nullif(live.workers, 0), 1
        ) AS slots_per_worker
) AS pace
"""


def upgrade() -> None:
    for statement in (TABLES, RELEASE, STALE, RECOVER, BACKLOG, LAST_HOUR, PRIORITIES, CAPACITY):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP VIEW v_worker_capacity")
    op.execute(
        "DROP FUNCTION recover_stale_tasks, celeriac_stale, celeriac_release, celeriac_backlog, celeriac_last_hour, "
        "celeriac_priorities"
    )
    op.execute("DROP TABLE alerts")
    op.execute("DROP INDEX worker_tasks_behind_lock_by_role")
