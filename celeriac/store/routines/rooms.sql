-- Every unfinished task as one row, whichever room it is in.
CREATE OR REPLACE VIEW celeriac.unfinished AS
SELECT t.id, t.task_id, t.role, t.account, t.lock_key, t.unique_key,
    CASE WHEN k.token IS NULL THEN 'pending' WHEN k.worker_id IS NULL THEN 'claimed' ELSE 'running' END AS status,
    CASE WHEN k.token IS NULL THEN coalesce(
        (SELECT 'time' FROM celeriac.later l
            WHERE l.role = celeriac.lane(t.role, t.queue) AND l.account = t.account AND l.due_at = t.scheduled_for AND l.id = t.id),
        (SELECT 'lock' FROM celeriac.behind b
            WHERE b.lock_key = t.lock_key AND b.priority = t.priority AND b.due_at = t.scheduled_for AND b.id = t.id),
        (SELECT 'account' FROM celeriac.parked p
            WHERE p.account = t.account AND p.role = celeriac.lane(t.role, t.queue) AND p.priority = t.priority
                AND p.due_at = t.scheduled_for AND p.id = t.id),
        (SELECT 'members' FROM celeriac.barriers b WHERE b.id = t.id)
    ) END AS waits_for,
    t.priority, t.aged, t.scheduled_for, t.expires_at, t.args, t.kwargs, t.headers, k.token, k.worker_id, k.worker_pid,
    k.claimed_at, coalesce(k.started_at, t.started_at) AS started_at, celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at) AS last_heartbeat_at,
    t.cancel_requested_at, CAST(NULL AS timestamptz) AS completed_at, t.progress, CAST(NULL AS jsonb) AS result,
    t.error_message, t.retry_count, t.max_retries, t.tries, t.max_rounds, t.losses, t.timeout, t.parent_id,
    t.enqueued_by, t.created_at, greatest(t.updated_at, k.claimed_at, k.started_at) AS updated_at, t.workflow, t.barrier,
    t.place, t.queue
FROM celeriac.tasks t
LEFT JOIN (SELECT unnest(ids) AS id, token, worker_id, worker_pid, claimed_at, started_at, heartbeat_at
    FROM celeriac.tickets) AS k ON k.id = t.id;

-- Every finished task that is kept, with the same columns.
CREATE OR REPLACE VIEW celeriac.finished AS
SELECT id, task_id, role, account, lock_key, unique_key, status, CAST(NULL AS text) AS waits_for, priority, aged,
    scheduled_for, expires_at, args, kwargs, headers, CAST(NULL AS uuid) AS token, worker_id, worker_pid, claimed_at,
    started_at, CASE WHEN worker_id IS NOT NULL THEN completed_at END AS last_heartbeat_at,
    CAST(NULL AS timestamptz) AS cancel_requested_at,
    completed_at, progress, result, error_message, retry_count, max_retries, tries, max_rounds, losses, timeout,
    parent_id, enqueued_by, created_at, completed_at AS updated_at, workflow, barrier, place, queue
FROM celeriac.history;

-- Every task as one row: what the documents call `worker_tasks`.
CREATE OR REPLACE VIEW celeriac.worker_tasks AS
SELECT * FROM celeriac.unfinished UNION ALL SELECT * FROM celeriac.finished;

-- Rows of the view by their ids: of history, their days alone are planned for.
CREATE OR REPLACE FUNCTION celeriac.tasks_with(wanted bigint[]) RETURNS SETOF celeriac.worker_tasks
LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    each date;
    others CONSTANT bigint[] := ARRAY(SELECT i FROM unnest(wanted) AS i EXCEPT
        SELECT e.id FROM celeriac.ended e WHERE e.id = ANY (wanted));
    unfinished bigint := 0;
BEGIN
    IF others <> '{}' THEN
        RETURN QUERY SELECT * FROM celeriac.unfinished WHERE id = ANY (others);
        GET DIAGNOSTICS unfinished = ROW_COUNT;
    END IF;
    IF unfinished = cardinality(wanted) THEN
        RETURN;
    END IF;
    FOR each IN SELECT celeriac.days_of(wanted) LOOP
        RETURN QUERY EXECUTE 'SELECT f.* FROM celeriac.in_order($1) AS i (id), LATERAL ('
            'SELECT * FROM celeriac.finished WHERE id = i.id AND ' || celeriac.within(each) || ' OFFSET 0) AS f'
            USING wanted;
    END LOOP;
END $$;

-- The role's row in `batchers`: each hundredth pass it moves to the next generation, so that under an old transaction
-- nobody walks over the versions of those before. Planned as part of the statement that asks.
CREATE OR REPLACE FUNCTION celeriac.batcher(of_role text) RETURNS SETOF celeriac.batchers LANGUAGE sql STABLE AS $$
    SELECT * FROM celeriac.batchers WHERE role = of_role ORDER BY generation DESC LIMIT 1
$$;

-- The tickets that hold some of these tasks: of their roles, claimed since the time before which none is left.
CREATE OR REPLACE FUNCTION celeriac.tickets_with(wanted bigint[]) RETURNS SETOF uuid LANGUAGE sql STABLE
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
SELECT k.token FROM (
    SELECT DISTINCT t.role FROM unnest(wanted) AS i (id), LATERAL (
        SELECT celeriac.lane(t.role, t.queue) AS role FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t) AS r, LATERAL (
    SELECT k.token FROM celeriac.tickets k WHERE k.role = r.role AND k.ids && wanted AND k.claimed_at >= coalesce(
        (SELECT held_since FROM celeriac.batcher(r.role)), '-infinity') OFFSET 0) AS k
$$;

-- These ids, each once.
CREATE OR REPLACE FUNCTION celeriac.in_order(ids bigint[]) RETURNS SETOF bigint LANGUAGE sql IMMUTABLE AS $$
SELECT DISTINCT i FROM unnest(ids) AS i ORDER BY i
$$;

-- Locks each of these tasks where it is, and in its row, until the transaction ends: nobody moves it. Which unfinished
-- ones it has locked: all, or without those that tickets hold, for whom a worker would have to wait.
-- INVARIANT: entry first, task after it, as everybody does; what moves meanwhile is looked for again.
-- INVARIANT of what looks up entries here: one at a time, a LATERAL with a LIMIT. In a join Postgres would rather read
-- the whole index for each task where statistics say that the room is empty, as they do when all in it had died.
CREATE OR REPLACE FUNCTION celeriac.hold(wanted bigint[], only_waiting boolean) RETURNS SETOF bigint LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    held bigint[] := '{}';
    readied bigint[];
    delayed bigint[];
    queued bigint[];
    stopped bigint[];
    locked bigint[];
    waiting bigint[];
BEGIN
    FOR look IN 1..100 LOOP
        IF NOT only_waiting THEN
            SELECT coalesce(array_agg(i), '{}') INTO held FROM (
                SELECT ids FROM celeriac.tickets WHERE token = ANY (ARRAY(SELECT celeriac.tickets_with(wanted)))
                ORDER BY token FOR UPDATE) AS k, unnest(k.ids) AS i
            WHERE i = ANY (wanted);
        END IF;
        SELECT coalesce(array_agg(e.id), '{}') INTO readied FROM celeriac.in_order(wanted) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.id FROM celeriac.ready e WHERE e.role = celeriac.lane(t.role, t.queue) AND e.account = t.account
                AND e.priority = t.priority AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1 FOR UPDATE) AS e;
        SELECT coalesce(array_agg(e.id), '{}') INTO delayed FROM celeriac.in_order(wanted) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.id FROM celeriac.later e WHERE e.role = celeriac.lane(t.role, t.queue) AND e.account = t.account
                AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1 FOR UPDATE) AS e;
        SELECT coalesce(array_agg(e.id), '{}') INTO queued FROM celeriac.in_order(wanted) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.id FROM celeriac.behind e WHERE e.lock_key = t.lock_key AND e.priority = t.priority
                AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1 FOR UPDATE) AS e;
        SELECT coalesce(array_agg(e.id), '{}') INTO stopped FROM celeriac.in_order(wanted) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.id FROM celeriac.parked e WHERE e.account = t.account AND e.role = celeriac.lane(t.role, t.queue)
                AND e.priority = t.priority AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1 FOR UPDATE) AS e;
        SELECT coalesce(array_agg(found.id), '{}') INTO waiting FROM (
            SELECT e.id FROM celeriac.barriers e WHERE e.id = ANY (wanted) ORDER BY e.id FOR UPDATE OF e) AS found;
        locked := held || readied || delayed || queued || stopped || waiting;
        PERFORM FROM celeriac.tasks t WHERE t.id = ANY (wanted) AND t.id <> ALL (locked)
            AND NOT (only_waiting AND EXISTS (
                SELECT FROM celeriac.tickets_with(ARRAY[t.id])));
        EXIT WHEN NOT FOUND;
        IF look = 100 THEN
            RAISE EXCEPTION 'some of % tasks could not be held', cardinality(wanted) USING ERRCODE = '40001',
                HINT = 'Try again.';
        END IF;
    END LOOP;
    PERFORM FROM celeriac.tasks t WHERE t.id = ANY (locked) ORDER BY t.id FOR UPDATE;
    PERFORM celeriac.hold_history(wanted);
    RETURN QUERY SELECT unnest(locked);
END $$;

-- Takes unfinished tasks, held by this transaction, out of the rooms they are in, and their lock keys from them: the
-- keys that may be handed over now. What becomes of the tasks is the caller's.
CREATE OR REPLACE FUNCTION celeriac.leave(leaving bigint[]) RETURNS text[] LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    given_up text[];
    holding uuid[];
BEGIN
    WITH found AS MATERIALIZED (
        SELECT e.tableoid AS part, e.ctid AS entry FROM unnest(leaving) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.tableoid, e.ctid FROM celeriac.ready e WHERE e.role = celeriac.lane(t.role, t.queue) AND e.account = t.account
                AND e.priority = t.priority AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1) AS e
    )
    DELETE FROM celeriac.ready e USING found f
    WHERE e.ctid = f.entry AND e.tableoid = f.part AND e.ctid = ANY (ARRAY(SELECT f.entry FROM found f));
    DELETE FROM celeriac.later e WHERE e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM unnest(leaving) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.ctid FROM celeriac.later e WHERE e.role = celeriac.lane(t.role, t.queue) AND e.account = t.account
                AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1) AS e));
    DELETE FROM celeriac.behind e WHERE e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM unnest(leaving) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.ctid FROM celeriac.behind e WHERE e.lock_key = t.lock_key AND e.priority = t.priority
                AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1) AS e));
    DELETE FROM celeriac.parked e WHERE e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM unnest(leaving) AS i (id), LATERAL (
            SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
            SELECT e.ctid FROM celeriac.parked e WHERE e.account = t.account AND e.role = celeriac.lane(t.role, t.queue)
                AND e.priority = t.priority AND e.due_at = t.scheduled_for AND e.id = t.id LIMIT 1) AS e));
    DELETE FROM celeriac.barriers e WHERE e.id = ANY (leaving);
    holding := ARRAY(SELECT celeriac.tickets_with(leaving));
    DELETE FROM celeriac.tickets WHERE token = ANY (holding) AND ids <@ leaving;
    UPDATE celeriac.tickets k
    SET ids = ARRAY(SELECT i FROM unnest(k.ids) WITH ORDINALITY AS u (i, n) WHERE i <> ALL (leaving) ORDER BY n),
        accounts = ARRAY(SELECT a FROM unnest(k.ids, k.accounts) WITH ORDINALITY AS u (i, a, n)
            WHERE i <> ALL (leaving) ORDER BY n)
    WHERE k.token = ANY (holding);
    WITH gone AS (
        DELETE FROM celeriac.locks l WHERE l.ctid = ANY (ARRAY(
            SELECT l.ctid FROM unnest(leaving) AS i (id), LATERAL (
                SELECT t.* FROM celeriac.tasks t WHERE t.id = i.id LIMIT 1) AS t, LATERAL (
                SELECT l.ctid FROM celeriac.locks l WHERE l.lock_key = t.lock_key AND l.head = t.id LIMIT 1) AS l))
        RETURNING l.lock_key
    )
    SELECT array_agg(lock_key) INTO given_up FROM gone;
    RETURN given_up;
END $$;
