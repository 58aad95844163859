-- What days of history have, so that nobody has to read each of them. A day is closed once nothing is written to it that
-- `day_changes` does not tell; until then whoever counts or lists reads the day itself.

-- The beginning of a day (UTC).
CREATE OR REPLACE FUNCTION celeriac.begin_of(day date) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
SELECT CAST(day AS timestamp) AT TIME ZONE 'UTC'
$$;

-- The last day (UTC) before this one on which tasks of the role may have ended, or of any role, with null; null if there
-- is none. With its owner's rights, as is `days_of`.
CREATE OR REPLACE FUNCTION celeriac.day_before(upto date, of_role text) RETURNS date LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    today CONSTANT date := celeriac.today();
    found date;
BEGIN
    IF of_role IS NULL THEN
        found := (SELECT d.day FROM celeriac.day_roles d WHERE d.day < upto ORDER BY d.day DESC LIMIT 1);
    ELSE
        found := (SELECT d.day FROM celeriac.day_roles d WHERE d.role = of_role AND d.day < upto
            ORDER BY d.day DESC LIMIT 1);
    END IF;
    RETURN greatest(found, CASE WHEN today < upto THEN today END,
        (SELECT d.day FROM celeriac.days d WHERE NOT d.is_closed AND d.day < least(upto, today)
            ORDER BY d.day DESC LIMIT 1),
        (SELECT c.day FROM celeriac.day_changes c WHERE c.day < upto ORDER BY c.day DESC LIMIT 1));
END $$;

-- The first day behind this one on which tasks of the role may have ended, not behind today.
CREATE OR REPLACE FUNCTION celeriac.day_after(since date, of_role text) RETURNS date LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    today CONSTANT date := celeriac.today();
BEGIN
    RETURN least(CASE WHEN today > since THEN today END,
        (SELECT d.day FROM celeriac.day_roles d WHERE d.role = of_role AND d.day > since ORDER BY d.day LIMIT 1),
        (SELECT d.day FROM celeriac.days d WHERE NOT d.is_closed AND d.day > since AND d.day < today
            ORDER BY d.day LIMIT 1),
        (SELECT c.day FROM celeriac.day_changes c WHERE c.day > since ORDER BY c.day LIMIT 1));
END $$;

-- The days that are read themselves where tasks are counted: not closed, and begun.
CREATE OR REPLACE FUNCTION celeriac.open_days() RETURNS SETOF date LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
SELECT d.day FROM celeriac.days d WHERE NOT d.is_closed AND d.day < celeriac.today()
UNION SELECT celeriac.today()
ORDER BY 1
$$;

-- Those whose failures `ended` does not list yet.
CREATE OR REPLACE FUNCTION celeriac.days_not_listed() RETURNS SETOF date LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
SELECT d.day FROM celeriac.days d WHERE NOT d.is_listed ORDER BY d.day DESC
$$;

-- How many tasks of a role have ended, or of all with null, on days that are not read for that.
CREATE OR REPLACE FUNCTION celeriac.told_ended(of_role text)
RETURNS TABLE (completed bigint, failed bigint, cancelled bigint) LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
SELECT CAST(coalesce(sum(k.completed), 0) AS bigint), CAST(coalesce(sum(k.failed), 0) AS bigint),
    CAST(coalesce(sum(k.cancelled), 0) AS bigint)
FROM (
    SELECT t.completed, t.failed, t.cancelled FROM celeriac.role_totals t WHERE of_role IS NULL OR t.role = of_role
    UNION ALL
    SELECT c.completed, c.failed, c.cancelled FROM celeriac.day_changes c
    WHERE (of_role IS NULL OR c.role = of_role) AND c.day NOT IN (SELECT celeriac.open_days())) AS k
$$;

-- Closes days that are over, at most so many. Which transactions may still write there is known one call later, or in the
-- same one where none does.
-- INVARIANT: a day's rows are counted by the statement that removes its changes, whose snapshot has both or neither.
CREATE OR REPLACE FUNCTION celeriac.close_days(most integer) RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    each date;
    began timestamptz;
    ended timestamptz;
    n integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0)) THEN
        RETURN 0;
    END IF;
    FOR each IN SELECT d.day FROM celeriac.days d WHERE NOT d.is_closed AND d.day < celeriac.today()
        AND d.closing < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY d.day DESC LIMIT most
    LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        WITH told AS (
            DELETE FROM celeriac.day_changes c WHERE c.day = each
        ), counted AS (
            SELECT h.role, count(*) FILTER (WHERE h.status = 'completed') AS completed,
                count(*) FILTER (WHERE h.status = 'failed') AS failed,
                count(*) FILTER (WHERE h.status = 'cancelled') AS cancelled,
                count(*) FILTER (WHERE h.status = 'completed' AND h.barrier IS NOT NULL) AS members
            FROM celeriac.history h WHERE h.completed_at >= began AND h.completed_at < ended GROUP BY h.role
        ), days AS (
            INSERT INTO celeriac.day_roles (day, role, completed, failed, cancelled, members)
            SELECT each, role, completed, failed, cancelled, members FROM counted
        )
        INSERT INTO celeriac.role_totals AS t (role, completed, failed, cancelled)
        SELECT role, completed, failed, cancelled FROM counted
        ON CONFLICT (role) DO UPDATE SET completed = t.completed + excluded.completed,
            failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled;
        UPDATE celeriac.days d SET is_closed = true,
            is_empty = NOT EXISTS (SELECT FROM celeriac.day_roles r WHERE r.day = each)
        WHERE d.day = each;
        n := n + 1;
    END LOOP;
    RETURN n;
END $$;

-- Notes behind which transaction each day that is over may be closed.
CREATE OR REPLACE FUNCTION celeriac.begin_closing() RETURNS void LANGUAGE sql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
UPDATE celeriac.days d SET closing = pg_current_xact_id()
WHERE NOT d.is_closed AND d.closing IS NULL AND d.day < celeriac.today()
$$;

-- Adds changes, at most so many, to what is told of their days. Those of a day that is not closed go with its
-- closing; those of today stay, as it is read itself.
CREATE OR REPLACE FUNCTION celeriac.fold_days(most integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    n bigint;
    touched date[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0)) THEN
        RETURN 0;
    END IF;
    WITH told AS (
        DELETE FROM celeriac.day_changes c WHERE c.ctid = ANY (ARRAY(
            SELECT c.ctid FROM celeriac.day_changes c
            WHERE c.day < celeriac.today()
                AND (SELECT d.is_closed FROM celeriac.days d WHERE d.day = c.day) IS NOT FALSE
            ORDER BY c.day LIMIT most))
        RETURNING c.*
    ), sums AS MATERIALIZED (
        SELECT day, role, sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled,
            sum(members) AS members FROM told GROUP BY day, role ORDER BY day, role
    ), days AS (
        INSERT INTO celeriac.day_roles AS d (day, role, completed, failed, cancelled, members)
        SELECT day, role, completed, failed, cancelled, members FROM sums
        ON CONFLICT (day, role) DO UPDATE SET completed = d.completed + excluded.completed,
            failed = d.failed + excluded.failed, cancelled = d.cancelled + excluded.cancelled,
            members = d.members + excluded.members
    ), totals AS (
        INSERT INTO celeriac.role_totals AS t (role, completed, failed, cancelled)
        SELECT role, sum(completed), sum(failed), sum(cancelled) FROM sums GROUP BY role ORDER BY role
        ON CONFLICT (role) DO UPDATE SET completed = t.completed + excluded.completed,
            failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled
    )
    SELECT count(*), array_agg(DISTINCT day) INTO n, touched FROM told;
    DELETE FROM celeriac.day_roles d
    WHERE d.day = ANY (touched) AND d.completed = 0 AND d.failed = 0 AND d.cancelled = 0;
    UPDATE celeriac.days d SET is_empty = NOT EXISTS (SELECT FROM celeriac.day_roles r WHERE r.day = d.day)
    WHERE d.day = ANY (touched);
    RETURN n;
END $$;

-- Lists what failed or was cancelled before that was listed, and which bodies waited at which barrier, a day a transaction; killed, it goes on where it was.
CREATE OR REPLACE PROCEDURE celeriac.list_failures() LANGUAGE plpgsql AS $$
DECLARE
    each date;
BEGIN
    FOR each IN SELECT day FROM celeriac.days WHERE NOT is_listed ORDER BY day DESC LOOP
        EXECUTE 'UPDATE celeriac.ended e SET awaits = CAST(h.headers -> ''canvas'' ->> ''awaits'' AS uuid)'
            ' FROM celeriac.history h WHERE e.id = h.id AND e.day = $1 AND h.workflow IS NOT NULL'
            ' AND h.headers -> ''canvas'' ->> ''awaits'' IS NOT NULL AND '
            || replace(celeriac.within(each), 'completed_at', 'h.completed_at') USING each;
        EXECUTE 'UPDATE celeriac.ended e SET status = h.status, role = h.role, account = h.account,'
            ' completed_at = h.completed_at FROM celeriac.history h'
            ' WHERE e.id = h.id AND e.day = $1 AND h.status IN (''failed'', ''cancelled'') AND '
            || replace(celeriac.within(each), 'completed_at', 'h.completed_at') USING each;
        EXECUTE 'INSERT INTO celeriac.ended (id, day, task_id, parent_id, workflow, barrier, status, role, account,'
            ' completed_at) SELECT id, $1, task_id, parent_id, workflow, barrier, status, role, account, completed_at'
            ' FROM celeriac.history h WHERE status IN (''failed'', ''cancelled'') AND ' || celeriac.within(each)
            || ' AND NOT EXISTS (SELECT FROM celeriac.ended e WHERE e.id = h.id)' USING each;
        UPDATE celeriac.days SET is_listed = true WHERE day = each;
        COMMIT;
    END LOOP;
END $$;

REVOKE ALL ON FUNCTION celeriac.begin_closing, celeriac.close_days, celeriac.fold_days FROM PUBLIC;
