-- Cancels unfinished tasks: at once where nobody runs them, else their worker is asked to stop. What each was, and the lock
-- key it gave up, to be handed over after the commit. Tasks that are over, or were never there, are left out.
CREATE OR REPLACE FUNCTION celeriac.cancel(wanted bigint[], event_kind text, reason text, by_whom text)
RETURNS TABLE (id bigint, task_id text, role text, was text, gives_up text, barrier uuid) LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    holding uuid[];
    running bigint[];
    ended bigint[];
    keys text[];
BEGIN
    PERFORM celeriac.hold(wanted, false);
    holding := ARRAY(SELECT celeriac.tickets_with(wanted));
    SELECT coalesce(array_agg(i), '{}') INTO running FROM celeriac.tickets k, unnest(k.ids) AS i
    WHERE k.token = ANY (holding) AND k.worker_id IS NOT NULL AND i = ANY (wanted);
    SELECT coalesce(array_agg(t.id), '{}') INTO ended FROM celeriac.tasks t
    WHERE t.id = ANY (wanted) AND t.id <> ALL (running);
    UPDATE celeriac.tasks t SET cancel_requested_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE t.id = ANY (running);
    RETURN QUERY
        WITH found AS (
            SELECT t.*, k.token, k.claimed_at, CASE WHEN k.worker_id IS NOT NULL THEN 'running'
                WHEN k.token IS NOT NULL THEN 'claimed' ELSE 'pending' END AS was
            FROM celeriac.tasks t
            LEFT JOIN (SELECT unnest(ids) AS held, * FROM celeriac.tickets WHERE token = ANY (holding)) AS k
                ON k.held = t.id
            WHERE t.id = ANY (wanted)
        ), kept AS (
            INSERT INTO celeriac.history (
                id, task_id, role, account, lock_key, unique_key, status, priority, aged, scheduled_for, expires_at,
                args, kwargs, headers, claimed_at, completed_at, progress, error_message, retry_count, max_retries,
                tries, max_rounds, losses, timeout, parent_id, enqueued_by, created_at, workflow, barrier, place,
                queue)
            SELECT id, task_id, role, account, lock_key, unique_key, 'cancelled', priority, aged, scheduled_for,
                expires_at, args, kwargs, headers, claimed_at, clock_timestamp(), progress, reason, retry_count,
                max_retries, tries, max_rounds, losses, timeout, parent_id, enqueued_by, created_at, workflow,
                barrier, place, queue
            FROM found WHERE found.id = ANY (ended) AND celeriac.leaves_row(role, barrier)
        ), fallen AS (
            SELECT count(celeriac.fall_out_of(
                queue, id, task_id, role, account, headers, 'cancelled', reason, workflow, barrier))
            FROM found WHERE found.id = ANY (ended) AND headers -> 'canvas' IS NOT NULL
        ), to_join AS (
            INSERT INTO celeriac.joins (barrier) SELECT DISTINCT barrier FROM found
            WHERE found.id = ANY (ended) AND barrier IS NOT NULL
        ), told AS (
            INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
            SELECT f.id, f.role, event_kind, f.was, CASE f.was WHEN 'running' THEN 'running' ELSE 'cancelled' END,
                by_whom, reason
            FROM found f
        )
        SELECT f.id, f.task_id, f.role, f.was,
            (SELECT l.lock_key FROM celeriac.locks l WHERE l.lock_key = f.lock_key AND l.head = f.id AND f.was <> 'running'),
            CASE WHEN f.was <> 'running' THEN f.barrier END
        FROM found f WHERE (SELECT count FROM fallen) IS NOT NULL;
    PERFORM celeriac.leave(ended);
    DELETE FROM celeriac.tasks t WHERE t.id = ANY (ended);
END $$;
