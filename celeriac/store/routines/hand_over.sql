-- Lock keys pass from task to task here, and nowhere else. A key's head is the one task that may be claimed; the others
-- of the key wait in `behind`. Whoever ends a head, or has just committed a row `behind` one, calls `hand_over` for its
-- key in a transaction of its own, after that commit: decided by state, idempotent, so it may run twice.

-- Whether a task of this role and account could be claimed now, but for room.
CREATE OR REPLACE FUNCTION celeriac.is_open(of_role text, of_account text) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT NOT EXISTS (SELECT FROM celeriac.roles WHERE role = of_role AND paused)
    AND NOT EXISTS (SELECT FROM celeriac.account_policies WHERE account = of_account AND (paused OR cap = 0))
$$;

-- INVARIANT of `best`: FOR UPDATE stands under the LIMIT, so that an entry which has gone meanwhile, or which somebody's
-- open transaction holds, is passed over for the next best. The insert's conflict is the truth: a key that got a head
-- meanwhile keeps that one. Keys in one order. `looked`: a key all of whose entries are held is looked at again.
CREATE OR REPLACE FUNCTION celeriac.hand_over_at_once(keys text[])
RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE sql AS $$
WITH best AS MATERIALIZED (
    SELECT coalesce(able.id, any_one.id) AS id, wanted.key AS lock_key
    FROM (SELECT DISTINCT key FROM unnest(keys) AS key ORDER BY key) AS wanted
    LEFT JOIN LATERAL (
        SELECT b.id FROM celeriac.behind b
        WHERE b.lock_key = wanted.key AND NOT EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = wanted.key)
            AND celeriac.is_open(b.role, b.account)
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS able ON true
    LEFT JOIN LATERAL (
        SELECT b.id FROM celeriac.behind b
        WHERE able.id IS NULL AND b.lock_key = wanted.key
            AND NOT EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = wanted.key)
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS any_one ON true
), looked AS (
    DELETE FROM celeriac.looks
    WHERE ctid = ANY (ARRAY(
        SELECT k.ctid FROM best b JOIN celeriac.looks k ON k.lock_key = b.lock_key
        WHERE b.id IS NOT NULL OR EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = b.lock_key)
            OR NOT EXISTS (SELECT FROM celeriac.behind w WHERE w.lock_key = b.lock_key)
        FOR UPDATE OF k SKIP LOCKED))
), led AS (
    INSERT INTO celeriac.locks (lock_key, head) SELECT b.lock_key, b.id FROM best b WHERE b.id IS NOT NULL
    ON CONFLICT DO NOTHING RETURNING head, locks.lock_key
), moved AS (
    DELETE FROM celeriac.behind b USING led WHERE b.lock_key = led.lock_key AND b.id = led.head RETURNING b.*
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
RETURNS TABLE (id bigint, role text, lock_key text) LANGUAGE plpgsql SET lock_timeout = '100ms'
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
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
