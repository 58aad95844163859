-- Whether a task of this role that has failed or was cancelled leaves a row: where `keep` is 0 only if a body may read it.
CREATE OR REPLACE FUNCTION celeriac.leaves_row(of_role text, barrier uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT barrier IS NOT NULL
    OR NOT EXISTS (SELECT FROM celeriac.roles WHERE role = of_role AND definition -> 'keep' = '0')
$$;

-- Whether the workers of a role of this definition have counted what ended so (`outcomes`). A member of a group leaves its
-- row to the body all the same, which then is not counted as well. By the definition of now: what ended before `keep` was
-- changed is not told apart, and an hour's figures may miss it.
CREATE OR REPLACE FUNCTION celeriac.is_counted(definition jsonb, status text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(CASE status WHEN 'completed' THEN definition -> 'keep' IN ('null', '0')
    WHEN 'failed' THEN definition -> 'keep' = '0' END, false)
$$;

-- Which rows of history are of this day (UTC), as a condition whose times the planner knows: it locks the one partition.
CREATE OR REPLACE FUNCTION celeriac.within(day date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT format('completed_at >= %L AND completed_at < %L', to_char(day, 'YYYY-MM-DD') || ' 00:00+00',
    to_char(day + 1, 'YYYY-MM-DD') || ' 00:00+00')
$$;

-- The day (UTC) on which this id was made, if it begins as a UUID of version 7, as those of `celeriac.fresh_id` do; else
-- null. Every task that ends is asked for it: a class of characters that must not occur takes a tenth of the time that a
-- pattern of the whole takes.
CREATE OR REPLACE FUNCTION celeriac.day_of(task_id text) RETURNS date LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN task_id LIKE '________-____-7%'
    AND (left(task_id, 8) || substr(task_id, 10, 4)) COLLATE "C" !~ '[^0-9a-f]'
THEN date '1970-01-01' + CAST(CAST(CAST('x0000' || left(task_id, 8) || substr(task_id, 10, 4) AS bit(64)) AS bigint)
    / 86400000 AS integer) END
$$;

-- Today (UTC), by the clock.
CREATE OR REPLACE FUNCTION celeriac.today() RETURNS date LANGUAGE sql AS $$
SELECT CAST(clock_timestamp() AT TIME ZONE 'UTC' AS date)
$$;

-- Records the first id of today (UTC), unless that is recorded.
-- INVARIANT: an id that `ended` leaves out tells the same day ever after. So a day begins behind each id that was drawn
-- before, and behind those in history that somebody wrote there without drawing them.
CREATE OR REPLACE FUNCTION celeriac.begin_day() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
DECLARE
    today CONSTANT date := celeriac.today();
    latest celeriac.days_begun;
    next bigint;
    upto bigint;
BEGIN
    SELECT * INTO latest FROM celeriac.days_begun ORDER BY day DESC LIMIT 1;
    IF latest.day >= today THEN
        RETURN;
    END IF;
    IF latest.day IS NOT NULL THEN
        EXECUTE 'SELECT max(id) FROM celeriac.history WHERE ' || celeriac.within(latest.day) INTO upto;
    END IF;
    SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END INTO next FROM celeriac.tasks_id_seq;
    INSERT INTO celeriac.days_begun (day, first) VALUES (today, greatest(next, latest.first + 1, upto + 1))
    ON CONFLICT (day) DO NOTHING;
    INSERT INTO celeriac.days (day) VALUES (today) ON CONFLICT DO NOTHING;
END $$;

-- The days (UTC) that may have finished tasks with these ids. With their owner's rights, as are the next two: logins of
-- the release before have none on `days_begun`.
CREATE OR REPLACE FUNCTION celeriac.days_of(ids bigint[]) RETURNS SETOF date LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
WITH listed AS MATERIALIZED (SELECT e.id, e.day FROM celeriac.ended e WHERE e.id = ANY (ids))
SELECT l.day FROM listed l
UNION SELECT b.day FROM unnest(ids) AS i (id), LATERAL (
    SELECT b.day FROM celeriac.days_begun b WHERE b.first <= i.id ORDER BY b.first DESC LIMIT 1) AS b
    WHERE i.id NOT IN (SELECT l.id FROM listed l)
UNION SELECT u.day FROM celeriac.unlisted u
ORDER BY 1
$$;

-- Those that may have finished tasks with these `task_id`s.
CREATE OR REPLACE FUNCTION celeriac.days_of(task_ids text[]) RETURNS SETOF date LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
WITH listed AS MATERIALIZED (SELECT e.task_id, e.day FROM celeriac.ended e WHERE e.task_id = ANY (task_ids))
SELECT l.day FROM listed l
UNION SELECT b.day FROM unnest(task_ids) AS i (task_id), LATERAL (
    SELECT b.day FROM celeriac.days_begun b WHERE b.day = celeriac.day_of(i.task_id) LIMIT 1) AS b
    WHERE i.task_id NOT IN (SELECT l.task_id FROM listed l)
UNION SELECT u.day FROM celeriac.unlisted u
ORDER BY 1
$$;

-- Those that may have finished tasks with ids behind `after`, up to `upto`.
CREATE OR REPLACE FUNCTION celeriac.days_between(after bigint, upto bigint) RETURNS SETOF date LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
SELECT e.day FROM celeriac.ended e WHERE e.id > after AND e.id <= upto
UNION SELECT b.day FROM celeriac.days_begun b WHERE b.first <= upto AND b.first >= coalesce(
    (SELECT f.first FROM celeriac.days_begun f WHERE f.first <= after + 1 ORDER BY f.first DESC LIMIT 1), 0)
UNION SELECT u.day FROM celeriac.unlisted u
ORDER BY 1
$$;

-- Keeps `ended` and `day_changes` beside history, whoever writes there. What a login may do to history it may, so it acts
-- with its owner's rights: workers of the release before have none on these.
-- INVARIANT: left out of `ended` is only what was enqueued and has been completed today, whose id and `task_id` tell that,
-- and which nobody looks up by another key. Today is by the clock: no id that is there now is behind the first of a day to
-- come. Left out of `day_changes` is only what ended today: today is not closed before this transaction is over.
CREATE OR REPLACE FUNCTION celeriac.list_ended() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    today celeriac.days_begun;
    began timestamptz;
    tomorrow timestamptz;
    late boolean;
BEGIN
    SELECT * INTO today FROM celeriac.days_begun ORDER BY day DESC LIMIT 1;
    IF today.day <> celeriac.today() THEN  -- also where a clock went back over midnight
        today := NULL;
    END IF;
    began := today.day::timestamp AT TIME ZONE 'UTC';
    tomorrow := began + interval '1 day';
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM celeriac.ended e WHERE e.ctid = ANY (ARRAY(
            SELECT e.ctid FROM gone g, LATERAL (SELECT e.ctid FROM celeriac.ended e WHERE e.id = g.id) AS e));
        INSERT INTO celeriac.day_changes (day, role, completed, failed, cancelled, members)
        SELECT CAST(completed_at AT TIME ZONE 'UTC' AS date), role, -count(*) FILTER (WHERE status = 'completed'),
            -count(*) FILTER (WHERE status = 'failed'), -count(*) FILTER (WHERE status = 'cancelled'),
            -count(*) FILTER (WHERE status = 'completed' AND barrier IS NOT NULL)
        FROM gone WHERE (completed_at >= began AND completed_at < tomorrow) IS NOT TRUE GROUP BY 1, 2;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        WITH listed AS (
            INSERT INTO celeriac.ended (
                id, day, task_id, parent_id, workflow, barrier, awaits, status, role, account, completed_at)
            SELECT id, CAST(completed_at AT TIME ZONE 'UTC' AS date), task_id, parent_id, workflow, barrier,
                CASE WHEN workflow IS NOT NULL THEN CAST(headers -> 'canvas' ->> 'awaits' AS uuid) END,
                nullif(status, 'completed'), CASE WHEN status <> 'completed' THEN role END,
                CASE WHEN status <> 'completed' THEN account END, CASE WHEN status <> 'completed' THEN completed_at END
            FROM added
            WHERE (status = 'completed' AND parent_id IS NULL AND workflow IS NULL AND barrier IS NULL
                AND id >= today.first AND completed_at >= began AND completed_at < tomorrow
                AND celeriac.day_of(task_id) = today.day) IS NOT TRUE
            RETURNING day
        )
        SELECT bool_or(day IS DISTINCT FROM today.day) INTO late FROM listed;
        IF late THEN
            INSERT INTO celeriac.day_changes (day, role, completed, failed, cancelled, members)
            SELECT CAST(completed_at AT TIME ZONE 'UTC' AS date), role, count(*) FILTER (WHERE status = 'completed'),
                count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'cancelled'),
                count(*) FILTER (WHERE status = 'completed' AND barrier IS NOT NULL)
            FROM added WHERE (completed_at >= began AND completed_at < tomorrow) IS NOT TRUE
            GROUP BY 1, 2;
            -- What the release before has recorded of these days.
            DELETE FROM celeriac.history_days d WHERE d.day = ANY (ARRAY(
                SELECT CAST(completed_at AT TIME ZONE 'UTC' AS date) FROM added));
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- The rows of history with these keys: their ids, their tasks' ids, that of who enqueued them, or their barrier.
-- INVARIANT: a statement for each day that has one, or is not listed yet, as whoever names none has all partitions and
-- their indexes locked.
CREATE OR REPLACE FUNCTION celeriac.history_by(key text, wanted text[]) RETURNS SETOF celeriac.history
LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    days CONSTANT date[] := CASE key
        WHEN 'id' THEN ARRAY(SELECT celeriac.days_of(CAST(wanted AS bigint[])))
        WHEN 'task_id' THEN ARRAY(SELECT celeriac.days_of(wanted))
        WHEN 'parent_id' THEN ARRAY(SELECT e.day FROM celeriac.ended e WHERE e.parent_id = ANY (CAST(wanted AS bigint[]))
            UNION SELECT u.day FROM celeriac.unlisted u)
        WHEN 'barrier' THEN ARRAY(SELECT e.day FROM celeriac.ended e WHERE e.barrier = ANY (CAST(wanted AS uuid[]))
            UNION SELECT u.day FROM celeriac.unlisted u)
    END;
    kind CONSTANT text := CASE key WHEN 'task_id' THEN 'text' WHEN 'barrier' THEN 'uuid' ELSE 'bigint' END;
    each date;
BEGIN
    FOR each IN SELECT d FROM unnest(days) AS d ORDER BY d DESC LOOP
        RETURN QUERY EXECUTE format('SELECT h.* FROM (SELECT DISTINCT unnest(CAST($1 AS %s[]))) AS w (key), LATERAL ('
            'SELECT * FROM celeriac.history WHERE %I = w.key AND %s OFFSET 0) AS h', kind, key, celeriac.within(each))
            USING wanted;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION celeriac.history_with(ids bigint[]) RETURNS SETOF celeriac.history LANGUAGE sql STABLE AS $$
SELECT * FROM celeriac.history_by('id', CAST(ids AS text[]))
$$;

CREATE OR REPLACE FUNCTION celeriac.history_named(task_ids text[]) RETURNS SETOF celeriac.history
LANGUAGE sql STABLE AS $$
SELECT * FROM celeriac.history_by('task_id', task_ids)
$$;

CREATE OR REPLACE FUNCTION celeriac.history_under(parent bigint) RETURNS SETOF celeriac.history
LANGUAGE sql STABLE AS $$
SELECT * FROM celeriac.history_by('parent_id', ARRAY[CAST(parent AS text)])
$$;

CREATE OR REPLACE FUNCTION celeriac.history_at(at_barrier uuid) RETURNS SETOF celeriac.history
LANGUAGE sql STABLE AS $$
SELECT * FROM celeriac.history_by('barrier', ARRAY[CAST(at_barrier AS text)])
$$;

-- Whose ids are of this range: which role, and when each was enqueued.
CREATE OR REPLACE FUNCTION celeriac.created_between(after bigint, upto bigint)
RETURNS TABLE (role text, created_at timestamptz) LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off AS $$
DECLARE
    each date;
BEGIN
    FOR each IN SELECT celeriac.days_between(after, upto) LOOP
        RETURN QUERY EXECUTE 'SELECT role, created_at FROM celeriac.history WHERE id > $1 AND id <= $2 AND '
            || celeriac.within(each) || ' ORDER BY id' USING after, upto;
    END LOOP;
END $$;

-- Locks rows of history, in the order of their ids within each day.
CREATE OR REPLACE FUNCTION celeriac.hold_history(ids bigint[]) RETURNS void LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    each date;
BEGIN
    FOR each IN SELECT celeriac.days_of(ids) LOOP
        EXECUTE 'SELECT FROM celeriac.in_order($1) AS i (id), LATERAL (SELECT FROM celeriac.history h WHERE h.id = i.id'
            ' AND ' || celeriac.within(each) || ' LIMIT 1 FOR UPDATE) AS h' USING ids;
    END LOOP;
END $$;

-- Deletes rows of history, and tells what they were.
CREATE OR REPLACE FUNCTION celeriac.forget(ids bigint[]) RETURNS SETOF celeriac.history LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    each date;
BEGIN
    FOR each IN SELECT celeriac.days_of(ids) LOOP
        RETURN QUERY EXECUTE 'DELETE FROM celeriac.history h WHERE h.ctid = ANY (ARRAY(SELECT e.ctid FROM unnest($1)'
            ' AS i (id), LATERAL (SELECT ctid FROM celeriac.history WHERE id = i.id AND ' || celeriac.within(each)
            || ' OFFSET 0) AS e)) AND ' || celeriac.within(each) || ' RETURNING h.*' USING ids;
    END LOOP;
END $$;

-- Lists what ended before there was a list, a day a transaction; killed, it goes on where it was.
CREATE OR REPLACE PROCEDURE celeriac.list_history() LANGUAGE plpgsql AS $$
DECLARE
    each date;
BEGIN
    FOR each IN SELECT day FROM celeriac.unlisted ORDER BY day DESC LOOP
        EXECUTE 'INSERT INTO celeriac.ended (id, day, task_id, parent_id, workflow, barrier)'
            ' SELECT id, $1, task_id, parent_id, workflow, barrier FROM celeriac.history h WHERE '
            || celeriac.within(each) || ' AND NOT EXISTS (SELECT FROM celeriac.ended e WHERE e.id = h.id)' USING each;
        DELETE FROM celeriac.unlisted WHERE day = each;
        COMMIT;
    END LOOP;
END $$;

-- Makes the partition of `history` for a day (UTC), unless it is there or somebody makes one just now; whether it did.
-- Rows of that day that the default partition took meanwhile move into it. Partitions are their owner's, so it acts with
-- that one's rights.
CREATE OR REPLACE FUNCTION celeriac.add_history_day(day date) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
DECLARE
    name text := 'history_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
    last timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0))
        OR to_regclass('celeriac.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE celeriac.%I (LIKE celeriac.history INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('WITH moved AS (DELETE FROM celeriac.history_rest WHERE completed_at >= %L AND completed_at < %L'
        ' RETURNING *) INSERT INTO celeriac.%I SELECT * FROM moved', first, last, name);
    EXECUTE format('ALTER TABLE celeriac.history ATTACH PARTITION celeriac.%I FOR VALUES FROM (%L) TO (%L)',
        name, first, last);
    -- What ended on a day without a partition is told already, as all that is written to it.
    INSERT INTO celeriac.days (day, is_closed)
    SELECT add_history_day.day, EXISTS (SELECT FROM celeriac.day_roles r WHERE r.day = add_history_day.day)
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

-- Drops the partition of a day, with all that finished on it. Two who look what a day has, and then both drop it, would
-- wait for one another: the second is told at once that somebody has it, and leaves.
CREATE OR REPLACE FUNCTION celeriac.drop_history_day(day date) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
DECLARE
    name text := 'history_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0))
        OR to_regclass('celeriac.' || name) IS NULL THEN
        RAISE lock_not_available USING MESSAGE = format('somebody else has %s, or dropped it', name);
    END IF;
    EXECUTE format('DROP TABLE celeriac.%I', name);
    DELETE FROM celeriac.history_days h WHERE h.day = drop_history_day.day;
    DELETE FROM celeriac.days_begun b WHERE b.day = drop_history_day.day;
    UPDATE celeriac.role_totals t SET completed = t.completed - d.completed, failed = t.failed - d.failed,
        cancelled = t.cancelled - d.cancelled
    FROM celeriac.day_roles d WHERE d.day = drop_history_day.day AND t.role = d.role;
    DELETE FROM celeriac.day_roles d WHERE d.day = drop_history_day.day;
    DELETE FROM celeriac.day_changes d WHERE d.day = drop_history_day.day;
    DELETE FROM celeriac.days d WHERE d.day = drop_history_day.day;
    INSERT INTO celeriac.dropped_days VALUES (drop_history_day.day) ON CONFLICT DO NOTHING;
END $$;

REVOKE ALL ON FUNCTION celeriac.add_history_day, celeriac.drop_history_day FROM PUBLIC;
