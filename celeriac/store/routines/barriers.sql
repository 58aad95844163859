-- Barriers: what waits until all of its members have finished goes on here, and nowhere else. Whoever ends a member calls
-- `let_through` in a transaction of its own, after that commit: of two last members whoever looks after both commits sees
-- none open, and the delete lets one win. Decided by state, idempotent, so it may run twice.

-- INVARIANT of `open`: the newest members first, along the index, as those end last; by -id, as an order by id is also
-- the primary key's. `looked`: a barrier whose entries
-- somebody holds is looked at again.
CREATE OR REPLACE FUNCTION celeriac.let_through(of_barriers uuid[])
RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE sql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
WITH wanted AS MATERIALIZED (
    SELECT b.barrier, (SELECT true FROM celeriac.tasks t WHERE t.barrier = b.barrier
            ORDER BY -t.id LIMIT 1) IS NOT NULL AS open
    FROM (SELECT DISTINCT barrier FROM unnest(of_barriers) AS barrier ORDER BY barrier) AS b
), taken AS MATERIALIZED (
    SELECT e.ctid AS place, e.id FROM wanted w JOIN celeriac.barriers e ON e.barrier = w.barrier
    WHERE NOT w.open ORDER BY e.id FOR UPDATE OF e SKIP LOCKED
), gone AS (
    DELETE FROM celeriac.barriers WHERE ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING id
), looked AS (
    DELETE FROM celeriac.joins
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid FROM wanted w JOIN celeriac.joins j ON j.barrier = w.barrier
        WHERE w.open OR (SELECT true FROM celeriac.barriers e
            WHERE e.barrier = w.barrier AND e.id <> ALL (ARRAY(SELECT id FROM taken)) ORDER BY -e.id LIMIT 1) IS NULL
        FOR UPDATE OF j SKIP LOCKED))
), through AS (
    UPDATE celeriac.tasks t
    SET scheduled_for = greatest(t.scheduled_for, clock_timestamp()
            + coalesce(CAST(t.headers -> 'canvas' ->> 'delay' AS double precision), 0) * interval '1 second'),
        updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT id FROM gone))
    RETURNING t.id, celeriac.lane(t.role, t.queue) AS role, t.account, t.priority, t.scheduled_for AS due_at, t.lock_key, t.losses,
        t.scheduled_for > clock_timestamp() AS waits
), to_later AS (
    INSERT INTO celeriac.later (role, account, due_at, id) SELECT role, account, due_at, id FROM through WHERE waits
), to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, due_at, id, least(losses, 9) FROM through
    WHERE lock_key IS NULL AND NOT waits
), to_behind AS (
    INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
    SELECT lock_key, priority, due_at, id, role, account FROM through WHERE lock_key IS NOT NULL AND NOT waits
), to_look_at AS (
    INSERT INTO celeriac.looks (lock_key) SELECT DISTINCT lock_key FROM through WHERE lock_key IS NOT NULL AND NOT waits
)
SELECT id, role, CASE WHEN NOT waits THEN lock_key END FROM through
$$;

-- A task that ends without its worker's telling (cancelled, expired, lost too often, stopped at its limit) leaves links of
-- its chain that never come, and errbacks that nobody calls. A task of the same role, which runs no handler, sees to that
-- and holds back what the ended one did.
CREATE OR REPLACE FUNCTION celeriac.fall_out_of(
    queue text, of_task bigint, task_id text, role text, account text, headers jsonb, status text, reason text,
    workflow text, barrier uuid
) RETURNS bigint LANGUAGE sql AS $$
WITH fresh AS (
    INSERT INTO celeriac.tasks (task_id, role, queue, account, headers, max_retries, parent_id, workflow, barrier)
    SELECT celeriac.fresh_id(), role, queue, account,
        jsonb_build_object('canvas', (headers -> 'canvas') || jsonb_build_object('fall_out', jsonb_build_object(
            'task_id', task_id, 'status', status, 'error', reason)), 'workflow', workflow), 0, of_task, workflow,
        barrier
    WHERE headers -> 'canvas' ?| '{chain,errbacks}' AND NOT headers -> 'canvas' ? 'fall_out'
    RETURNING *
)
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT (SELECT seg FROM celeriac.ring), celeriac.lane(f.role, f.queue), f.account, f.priority, f.scheduled_for, f.id
FROM fresh f
RETURNING id
$$;

-- For workers of the release before, whose tasks have no queue of their own.
CREATE OR REPLACE FUNCTION celeriac.fall_out(
    of_task bigint, task_id text, role text, account text, headers jsonb, status text, reason text, workflow text,
    barrier uuid
) RETURNS bigint LANGUAGE sql AS $$
SELECT celeriac.fall_out_of(NULL, of_task, task_id, role, account, headers, status, reason, workflow, barrier)
$$;
