"""Freeing what somebody holds: the rules of `celeriac.settle.release`, in one statement each, whoever asks.

SELECT recover_stale_tasks(10);         free what silent workers hold, by the rescue sweep's rules
"""

from __future__ import annotations

# Seconds before retry number `retry` (the first is 0), null without a backoff: `celeriac.roles.backoff`, for rows
# whose own process can no longer say when they go on.
BACKOFF = """
CREATE OR REPLACE FUNCTION celeriac_backoff(backoff jsonb, retry integer) RETURNS double precision LANGUAGE sql AS $$
SELECT delay * CASE jsonb_typeof(backoff -> 'jitter')
        WHEN 'number' THEN 1 + CAST(backoff ->> 'jitter' AS double precision) * (2 * random() - 1)
        ELSE CASE WHEN CAST(backoff ->> 'jitter' AS boolean) THEN random() ELSE 1 END END
FROM (SELECT least(
    CAST(backoff ->> 'maximum' AS double precision),
    CAST(backoff ->> 'base' AS double precision) * power(CAST(2 AS double precision), least(retry, 64))
)) AS capped (delay)
$$
"""

# INVARIANT: a released row keeps leading its lock key unless it ended or, lost, waits out its role's backoff.
RELEASE = """
CREATE OR REPLACE FUNCTION celeriac_release(
    held_ids bigint[], held_tokens uuid[], held_as text, event_kind text, reason text, by_whom text, is_loss boolean
) RETURNS TABLE (id bigint, role text, lock_key text, becomes text, leads boolean) LANGUAGE sql AS $$
WITH held AS (
    SELECT t.id, t.role, t.lock_key, t.status,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN is_loss AND t.losses + 1 >= coalesce(CAST(r.definition ->> 'max_losses' AS integer), 3) THEN 'failed'
            ELSE 'pending' END AS becomes,
        CASE WHEN is_loss THEN celeriac_backoff(r.definition -> 'backoff', t.losses) END AS delay
    FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role
    WHERE t.id = ANY(held_ids) AND t.token = ANY(held_tokens) AND t.status = held_as
    ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
), freed AS (
    SELECT *, becomes = 'pending' AND delay IS NOT NULL AS waits, becomes = 'pending' AND delay IS NULL AS leads
    FROM held
), updated AS (
    UPDATE worker_tasks t
    SET status = f.becomes, losses = t.losses + CASE WHEN is_loss THEN 1 ELSE 0 END,
        waits_for = CASE WHEN f.waits THEN 'time' END,
        scheduled_for = CASE WHEN f.waits
            THEN clock_timestamp() + f.delay * interval '1 second' ELSE t.scheduled_for END,
        token = NULL, claimed_at = NULL, started_at = NULL, deadline_at = NULL, worker_pid = NULL,
        completed_at = CASE WHEN f.becomes <> 'pending' THEN clock_timestamp() END,
        error_message = CASE WHEN f.becomes <> 'pending' THEN reason ELSE t.error_message END,
        updated_at = clock_timestamp()
    FROM freed f WHERE t.id = f.id
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT f.id, f.role, event_kind, f.status, f.becomes, by_whom, reason FROM freed f
)
SELECT f.id, f.role, f.lock_key, f.becomes, f.leads FROM freed f
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
        WHERE NOT f.leads AND f.lock_key IS NOT NULL;
        recovered := recovered + coalesce(cardinality(ids), 0);
        EXIT WHEN coalesce(cardinality(ids), 0) < batch;
    END LOOP;
    RETURN recovered;
END $$
"""

ROUTINES = (BACKOFF, RELEASE, STALE, RECOVER)
