-- Lock keys pass from task to task here, and nowhere else. A key's head is the one task that may be claimed; the others
-- of the key wait in `behind`. A settle hands the keys of its tasks to those whom it sees wait. Whoever has freed a key,
-- or has just committed a row `behind` one, calls `hand_over` for it in a transaction of its own, after that commit:
-- decided by state, idempotent, so it may run twice.

-- A row or two if a task of this role and account cannot be claimed now, for want of anything but room. Planned as part of
-- the statement that asks.
CREATE OR REPLACE FUNCTION celeriac.held_back(of_role text, of_account text) RETURNS SETOF boolean LANGUAGE sql STABLE
AS $$
SELECT true FROM celeriac.roles WHERE role IN (of_role, celeriac.role_of(of_role)) AND paused
UNION ALL
SELECT true FROM celeriac.account_policies WHERE account = of_account AND (paused OR cap = 0)
$$;

-- For the statement that ends or delays the keys' heads: each key that somebody is seen to wait for has the best of them
-- as its next head. `heads`, in the order of the keys: one that has not got its key hands nothing on. Which of the keys
-- are not in what comes back, nobody has.
-- INVARIANT: FOR UPDATE stands under the LIMIT, so that an entry which has gone meanwhile, or which somebody's open
-- transaction holds, is passed over for the next best. One that was changed meanwhile is locked as it is now, and the
-- DELETE does not see it: its key is not handed on here. The caller has the heads' ticket, so nobody else changes `locks`.
CREATE OR REPLACE FUNCTION celeriac.hand_on(keys text[], heads bigint[])
RETURNS TABLE (role text, lock_key text) LANGUAGE sql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
WITH next AS MATERIALIZED (
    SELECT own.place AS lock_place, best.place
    FROM unnest(keys, heads) AS ended (key, head), LATERAL (
        SELECT l.ctid AS place FROM celeriac.locks l WHERE l.lock_key = ended.key AND l.head = ended.head LIMIT 1
    ) AS own, LATERAL (
        SELECT b.ctid AS place FROM celeriac.behind b
        WHERE b.lock_key = ended.key AND NOT EXISTS (SELECT FROM celeriac.held_back(b.role, b.account))
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS best
), moved AS (
    DELETE FROM celeriac.behind b USING next n WHERE b.ctid = n.place RETURNING b.*, n.lock_place
), followed AS (
    UPDATE celeriac.locks l SET head = m.id FROM moved m WHERE l.ctid = m.lock_place
), entered AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), m.role, m.account, m.priority, m.due_at, m.id,
        (SELECT least(t.losses, 9) FROM celeriac.tasks t WHERE t.id = m.id)
    FROM moved m
)
SELECT m.role, m.lock_key FROM moved m
$$;

-- For what comes after a commit: each key without a head has the best of those who wait.
-- INVARIANT of `best`: as above. Not `seen`, an entry counts as held. The insert's conflict is the truth: a key that got a
-- head meanwhile keeps that one. Keys in one order. `looked`: a key all of whose entries are held is looked at again, and
-- one whose lock somebody deletes just now: that settle may not see who waits, and its process may die before its own look.
-- However little is known of the tables, each is looked up for each key, and no part is compared with another row by row.
CREATE OR REPLACE FUNCTION celeriac.hand_over_at_once(keys text[])
RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE sql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
WITH best AS MATERIALIZED (
    SELECT seen.id, seen.ctid AS place, wanted.key AS lock_key
    FROM (SELECT DISTINCT key FROM unnest(keys) AS key ORDER BY key) AS wanted
    LEFT JOIN LATERAL (
        SELECT b.ctid AS place FROM celeriac.behind b
        WHERE b.lock_key = wanted.key
            AND (SELECT true FROM celeriac.locks l WHERE l.lock_key = wanted.key LIMIT 1) IS NULL
            AND NOT EXISTS (SELECT FROM celeriac.held_back(b.role, b.account))
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS able ON true
    LEFT JOIN LATERAL (
        SELECT b.ctid AS place FROM celeriac.behind b
        WHERE able.place IS NULL AND b.lock_key = wanted.key
            AND (SELECT true FROM celeriac.locks l WHERE l.lock_key = wanted.key LIMIT 1) IS NULL
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS any_one ON true
    LEFT JOIN celeriac.behind seen ON seen.ctid = coalesce(able.place, any_one.place)
), looked AS (
    DELETE FROM celeriac.looks
    WHERE ctid = ANY (ARRAY(
        SELECT k.place FROM best b, LATERAL (
            SELECT ctid AS place FROM celeriac.looks WHERE lock_key = b.lock_key OFFSET 0 FOR UPDATE SKIP LOCKED) AS k
        WHERE b.id IS NOT NULL OR (SELECT true FROM celeriac.locks l WHERE l.lock_key = b.lock_key AND l.xmax = 0 LIMIT 1)
            OR (SELECT true FROM celeriac.behind w WHERE w.lock_key = b.lock_key
                ORDER BY w.priority DESC, w.due_at, w.id LIMIT 1) IS NULL))
), headed AS (
    INSERT INTO celeriac.locks (lock_key, head) SELECT b.lock_key, b.id FROM best b WHERE b.id IS NOT NULL
    ON CONFLICT DO NOTHING RETURNING head
), moved AS (
    DELETE FROM celeriac.behind
    WHERE ctid = ANY (ARRAY(SELECT place FROM best WHERE (id IN (SELECT head FROM headed)) IS TRUE))
    RETURNING *
), entered AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), m.role, m.account, m.priority, m.due_at, m.id,
        (SELECT least(t.losses, 9) FROM celeriac.tasks t WHERE t.id = m.id)
    FROM moved m
)
SELECT m.id, m.role, m.lock_key FROM moved m
$$;

-- Who became a head. A key that somebody's open transaction gives a head just now is left to the sweep rather than waited
-- for: then each key is tried alone. The timeout is the function's own.
CREATE OR REPLACE FUNCTION celeriac.hand_over(keys text[])
RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    wanted text;
BEGIN
    RETURN QUERY SELECT * FROM celeriac.hand_over_at_once(keys);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    FOR wanted IN SELECT DISTINCT key FROM unnest(keys) AS key ORDER BY key LOOP
        BEGIN
            RETURN QUERY SELECT * FROM celeriac.hand_over_at_once(ARRAY[wanted]);
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
END $$;
