-- Freeing what somebody holds: the rules stand here, for the engine (`celeriac/settle/release.py`) and for psql.
--
-- SELECT recover_stale_tasks(10);         free what silent workers hold, by the rescue sweep's rules

-- Seconds before retry number `retry` (the first is 0), null without a backoff: `celeriac.roles.backoff.Backoff`, for
-- tasks whose own process can no longer say when they go on.
CREATE OR REPLACE FUNCTION celeriac.backoff(backoff jsonb, retry integer) RETURNS double precision LANGUAGE sql AS $$
SELECT delay * CASE jsonb_typeof(backoff -> 'jitter')
        WHEN 'number' THEN 1 + CAST(backoff ->> 'jitter' AS double precision) * (2 * random() - 1)
        ELSE CASE WHEN CAST(backoff ->> 'jitter' AS boolean) THEN random() ELSE 1 END END
FROM (SELECT least(
    CAST(backoff ->> 'maximum' AS double precision),
    CAST(backoff ->> 'base' AS double precision) * power(CAST(2 AS double precision), least(retry, 64))
)) AS capped (delay)
$$;

-- Takes tasks from tickets: all that these hold, or those of `only`. `started` false touches tickets nobody has started,
-- true those that are running, null either. What somebody is settling just now is passed over.
-- A task that is freed waits again: at once, keeping its lock key, or (lost, and its role has a backoff) later and
-- without the key. What began before this server did is no loss of the task's, however it is found: the outage may have
-- ended its worker. It ends if it was asked to stop (cancelled) or was lost too often (failed).
-- INVARIANT: ticket first, tasks after it, as in a settle.
CREATE OR REPLACE FUNCTION celeriac.release_at_once(
    of_tickets uuid[], only_ids bigint[], started boolean, event_kind text, reason text, by_whom text, is_loss boolean
) RETURNS TABLE (id bigint, role text, lock_key text, becomes text, hands_over boolean, barrier uuid) LANGUAGE sql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
WITH held AS MATERIALIZED (
    SELECT k.* FROM celeriac.tickets k
    WHERE k.token = ANY (of_tickets) AND (started IS NULL OR (k.worker_id IS NOT NULL) = started)
    ORDER BY k.token FOR UPDATE SKIP LOCKED
), freed AS MATERIALIZED (
    SELECT k.token, k.worker_id, k.worker_pid, k.claimed_at, k.started_at, i.id,
        is_loss AND coalesce(k.started_at >= celeriac.up_since(), true) AS is_lost
    FROM held k, unnest(k.ids) AS i (id) WHERE only_ids IS NULL OR i.id = ANY (only_ids)
), judged AS MATERIALIZED (
    SELECT t.*, f.is_lost, f.worker_id, f.worker_pid, f.claimed_at, f.started_at AS began_at,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN f.is_lost AND t.losses + 1 >= coalesce(CAST(r.definition ->> 'max_losses' AS integer), 3) THEN 'failed'
            ELSE 'pending' END AS becomes,
        CASE WHEN f.is_lost THEN celeriac.backoff(r.definition -> 'backoff', t.losses) END AS delay
    FROM celeriac.tasks t JOIN freed f ON f.id = t.id LEFT JOIN celeriac.roles r ON r.role = t.role
    WHERE t.id = ANY (ARRAY(SELECT freed.id FROM freed)) FOR UPDATE OF t
), ended AS (
    DELETE FROM celeriac.tasks t WHERE t.id = ANY (ARRAY(SELECT j.id FROM judged j WHERE j.becomes <> 'pending'))
    RETURNING t.id
), kept AS (
    INSERT INTO celeriac.history (
        id, task_id, role, account, lock_key, unique_key, status, priority, aged, scheduled_for, expires_at, args,
        kwargs, headers, worker_id, worker_pid, claimed_at, started_at, completed_at, progress, error_message,
        retry_count, max_retries, tries, max_rounds, losses, timeout, parent_id, enqueued_by, created_at, workflow,
        barrier, place, queue)
    SELECT id, task_id, role, account, lock_key, unique_key, becomes, priority, aged, scheduled_for, expires_at, args,
        kwargs, headers, worker_id, worker_pid, claimed_at, began_at, clock_timestamp(), progress, reason, retry_count,
        max_retries, tries, max_rounds, losses + CASE WHEN is_lost THEN 1 ELSE 0 END, timeout, parent_id, enqueued_by,
        created_at, workflow, barrier, place, queue
    FROM judged WHERE becomes <> 'pending' AND celeriac.leaves_row(role, barrier)
), fallen AS (
    SELECT count(celeriac.fall_out_of(queue, id, task_id, role, account, headers, becomes, reason, workflow, barrier))
    FROM judged WHERE becomes <> 'pending' AND headers -> 'canvas' IS NOT NULL
), to_join AS (
    INSERT INTO celeriac.joins (barrier) SELECT DISTINCT barrier FROM judged
    WHERE becomes <> 'pending' AND barrier IS NOT NULL
), again AS (
    UPDATE celeriac.tasks t
    SET losses = t.losses + CASE WHEN j.is_lost THEN 1 ELSE 0 END, started_at = NULL, updated_at = clock_timestamp(),
        scheduled_for = CASE WHEN j.delay IS NULL THEN t.scheduled_for
            ELSE clock_timestamp() + j.delay * interval '1 second' END
    FROM judged j
    WHERE t.id = j.id AND j.becomes = 'pending' AND (j.is_lost OR t.started_at IS NOT NULL)
        AND t.id = ANY (ARRAY(SELECT o.id FROM judged o))
    RETURNING t.id, t.scheduled_for, t.losses
), to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), celeriac.lane(j.role, j.queue), j.account, j.priority, j.scheduled_for, j.id,
        least(j.losses + CASE WHEN j.is_lost THEN 1 ELSE 0 END, 9)
    FROM judged j WHERE j.becomes = 'pending' AND j.delay IS NULL
), to_later AS (
    INSERT INTO celeriac.later (role, account, due_at, id)
    SELECT celeriac.lane(j.role, j.queue), j.account, a.scheduled_for, j.id
    FROM judged j JOIN again a ON a.id = j.id WHERE j.becomes = 'pending' AND j.delay IS NOT NULL
), unlocked AS (
    DELETE FROM celeriac.locks l USING judged j
    WHERE l.lock_key = j.lock_key AND l.head = j.id AND (j.becomes <> 'pending' OR j.delay IS NOT NULL)
        AND l.lock_key = ANY (ARRAY(SELECT o.lock_key FROM judged o))
), to_look_at AS (
    INSERT INTO celeriac.looks (lock_key)
    SELECT DISTINCT j.lock_key FROM judged j
    WHERE (j.becomes <> 'pending' OR j.delay IS NOT NULL)
        AND EXISTS (SELECT FROM celeriac.behind b WHERE b.lock_key = j.lock_key)
), emptied AS (
    DELETE FROM celeriac.tickets k USING held
    WHERE k.token = ANY (of_tickets) AND k.token = held.token AND (only_ids IS NULL OR held.ids <@ only_ids)
), shrunk AS (
    UPDATE celeriac.tickets k
    SET ids = ARRAY(SELECT i.id FROM unnest(held.ids) WITH ORDINALITY AS i (id, n)
            WHERE i.id <> ALL (only_ids) ORDER BY n),
        accounts = ARRAY(SELECT i.account FROM unnest(held.ids, held.accounts) WITH ORDINALITY AS i (id, account, n)
            WHERE i.id <> ALL (only_ids) ORDER BY n)
    FROM held WHERE k.token = ANY (of_tickets) AND k.token = held.token
        AND only_ids IS NOT NULL AND NOT held.ids <@ only_ids AND held.ids && only_ids
), told AS (
    INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    SELECT j.id, j.role, event_kind, CASE WHEN j.worker_id IS NULL THEN 'claimed' ELSE 'running' END, j.becomes,
        by_whom, reason
    FROM judged j
)
SELECT j.id, j.role, j.lock_key, j.becomes, j.lock_key IS NOT NULL AND (j.becomes <> 'pending' OR j.delay IS NOT NULL),
    CASE WHEN j.becomes <> 'pending' THEN j.barrier END
FROM judged j WHERE (SELECT count FROM fallen) IS NOT NULL
$$;

-- Those of these tickets none of whose tasks' rows somebody has locked. It locks the rows until the transaction ends.
CREATE OR REPLACE FUNCTION celeriac.unlocked(of_tickets uuid[]) RETURNS SETOF uuid LANGUAGE sql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
WITH covered AS MATERIALIZED (
    SELECT k.token, i.id FROM celeriac.tickets k, unnest(k.ids) AS i (id) WHERE k.token = ANY (of_tickets)
), free AS MATERIALIZED (
    SELECT t.id FROM celeriac.tasks t WHERE t.id = ANY (ARRAY(SELECT c.id FROM covered c)) FOR UPDATE SKIP LOCKED
)
SELECT t.token FROM unnest(of_tickets) AS t (token)
WHERE NOT EXISTS (
    SELECT FROM covered c JOIN celeriac.tasks locked ON locked.id = c.id
    WHERE c.token = t.token AND c.id NOT IN (SELECT free.id FROM free))
$$;

-- The same, and nobody's lock stops it: where a task's row is locked, or whatever else it writes, each ticket is tried by
-- itself, and those that somebody has locked stay as they are. The timeout is the function's own; after a second it
-- leaves the rest, as where a whole table is locked.
CREATE OR REPLACE FUNCTION celeriac.release(
    of_tickets uuid[], only_ids bigint[], started boolean, event_kind text, reason text, by_whom text, is_loss boolean
) RETURNS TABLE (id bigint, role text, lock_key text, becomes text, hands_over boolean, barrier uuid) LANGUAGE plpgsql
SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    one uuid;
    began CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY SELECT * FROM celeriac.release_at_once(
        of_tickets, only_ids, started, event_kind, reason, by_whom, is_loss);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    FOR one IN SELECT DISTINCT t.t FROM celeriac.unlocked(of_tickets) AS t (t) ORDER BY 1 LOOP
        EXIT WHEN clock_timestamp() > began + interval '1 second';
        BEGIN
            RETURN QUERY SELECT * FROM celeriac.release_at_once(
                ARRAY[one], only_ids, started, event_kind, reason, by_whom, is_loss);
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
END $$;

-- Tickets whose worker fell silent for so many minutes, or for their role's `stale_after`, the longest silent first, from
-- a place on. The lease counts only time in which it could be renewed: after a restart or a failover every worker has a
-- whole lease to report. `is_free`: nobody has locked a task of it. Whoever goes on from the last one passes by what
-- cannot be freed now.
CREATE OR REPLACE FUNCTION celeriac.stale_after(
    batch integer, minutes double precision, after_at timestamptz, after_token uuid
) RETURNS TABLE (token uuid, heartbeat_at timestamptz, is_free boolean) LANGUAGE sql AS $$
WITH silent AS MATERIALIZED (
    SELECT k.token, k.heartbeat_at FROM celeriac.tickets k LEFT JOIN celeriac.roles r ON r.role = celeriac.role_of(k.role)
    WHERE celeriac.is_stale(k, coalesce(minutes * 60, CAST(r.definition ->> 'stale_after' AS double precision), 600))
        AND (after_at IS NULL OR (k.heartbeat_at, k.token) > (after_at, after_token))
    ORDER BY k.heartbeat_at, k.token LIMIT batch FOR UPDATE OF k SKIP LOCKED
), free AS MATERIALIZED (
    SELECT u.token FROM celeriac.unlocked(ARRAY(SELECT s.token FROM silent s)) AS u (token)
)
SELECT s.token, s.heartbeat_at, s.token IN (SELECT free.token FROM free) FROM silent s
ORDER BY s.heartbeat_at, s.token
$$;

-- The first of them, as earlier releases ask for them.
CREATE OR REPLACE FUNCTION celeriac.stale(batch integer, minutes double precision)
RETURNS TABLE (token uuid) LANGUAGE sql AS $$
SELECT s.token FROM celeriac.stale_after(batch, minutes, NULL, NULL) s
$$;

-- One transaction, as a function can have no more; the windows bound how many rows it may hold. What somebody has locked
-- it leaves, and where it can free nothing of a batch, as where a whole table is locked, the rest.
CREATE OR REPLACE FUNCTION celeriac.recover_stale_tasks(minutes double precision DEFAULT 10)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    batch CONSTANT integer := 500;
    met integer;
    free uuid[];
    last_at timestamptz;
    last_token uuid;
    freed_now integer;
    recovered integer := 0;
BEGIN
    IF minutes <= 0 THEN
        RAISE EXCEPTION 'recover_stale_tasks: give minutes above 0, and more than lie between two heartbeats';
    END IF;
    LOOP
        SELECT count(*), array_agg(s.token) FILTER (WHERE s.is_free), max(s.heartbeat_at),
            (array_agg(s.token ORDER BY s.heartbeat_at DESC, s.token DESC))[1]
        INTO met, free, last_at, last_token FROM celeriac.stale_after(batch, minutes, last_at, last_token) s;
        SELECT count(*) INTO freed_now FROM celeriac.release(
            free, NULL, true, 'rescue', 'its worker fell silent', 'recover_stale_tasks', true);
        recovered := recovered + freed_now;
        EXIT WHEN met < batch OR (freed_now = 0 AND free IS NOT NULL);
    END LOOP;
    RETURN recovered;
END $$;
