-- Walks over history, day by day. A statement that names no day has every partition planned for, and locked with all of
-- its indexes; so each of these reads one day after the other, of those that have something, in statements for whose
-- times the planner knows the partition (`force_custom_plan`).
-- INVARIANT: whatever it walks over, it holds the locks of one day. Each day is read in a block that an exception ends:
-- with its subtransaction its locks are released, and what was returned stays returned. CLD01 is that exception.

-- What ended of a role, or of all with null, before this time and id, by time, newest first.
CREATE OR REPLACE FUNCTION celeriac.ended_before(of_role text, before timestamptz, before_id bigint, most integer)
RETURNS TABLE (id bigint, completed_at timestamptz) LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
    each date := celeriac.day_before(CAST(before AT TIME ZONE 'UTC' AS date) + 1, of_role);
    wanted integer := most;
    n integer;
    began timestamptz;
    ended timestamptz;
BEGIN
    WHILE each IS NOT NULL AND wanted > 0 LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            IF of_role IS NOT NULL THEN
                RETURN QUERY SELECT h.id, h.completed_at FROM celeriac.history h
                WHERE h.role = of_role AND h.completed_at >= began AND h.completed_at < ended
                    AND (h.completed_at, h.id) < (before, before_id)
                ORDER BY h.completed_at DESC, h.id DESC LIMIT wanted;
            ELSE
                RETURN QUERY WITH RECURSIVE names AS (
                    (SELECT h.role FROM celeriac.history h WHERE h.completed_at >= began AND h.completed_at < ended
                        ORDER BY h.role LIMIT 1)
                    UNION ALL
                    SELECT next.role FROM names, LATERAL (
                        SELECT h.role FROM celeriac.history h
                        WHERE h.role > names.role AND h.completed_at >= began AND h.completed_at < ended
                        ORDER BY h.role LIMIT 1) AS next
                )
                SELECT f.id, f.completed_at FROM names, LATERAL (
                    SELECT h.id, h.completed_at FROM celeriac.history h
                    WHERE h.role = names.role AND h.completed_at >= began AND h.completed_at < ended
                        AND (h.completed_at, h.id) < (before, before_id)
                    ORDER BY h.completed_at DESC, h.id DESC LIMIT wanted) AS f
                ORDER BY f.completed_at DESC, f.id DESC LIMIT wanted;
            END IF;
            GET DIAGNOSTICS n = ROW_COUNT;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN
            wanted := wanted - n;
        END;
        each := celeriac.day_before(each, of_role);
    END LOOP;
END $$;

-- The finished tasks with ids below this one, and their days, the greatest ids first. An id tells the day on which its
-- task was enqueued, and `ended` has those that ended on another, among others.
CREATE OR REPLACE FUNCTION celeriac.ended_below(before bigint, most integer)
RETURNS TABLE (id bigint, day date) LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    upto bigint := before;
    wanted integer := most;
    enqueued celeriac.days_begun;
    visited date[];
    each date;
    began timestamptz;
    ended timestamptz;
    found bigint[];
    ids bigint[];
    days date[];
    n integer;
BEGIN
    LOOP
        SELECT * INTO enqueued FROM celeriac.days_begun b WHERE b.first < upto ORDER BY b.first DESC LIMIT 1;
        enqueued.first := coalesce(enqueued.first, -9223372036854775808);
        visited := ARRAY(SELECT u.day FROM celeriac.unlisted u);
        IF enqueued.day IS NOT NULL AND enqueued.day <> ALL (visited) THEN
            visited := visited || enqueued.day;
        END IF;
        ids := '{}';
        days := '{}';
        FOREACH each IN ARRAY visited LOOP
            began := celeriac.begin_of(each);
            ended := celeriac.begin_of(each + 1);
            BEGIN
                found := ARRAY(SELECT h.id FROM celeriac.history h
                    WHERE h.id >= enqueued.first AND h.id < upto AND h.completed_at >= began AND h.completed_at < ended
                    ORDER BY h.id DESC LIMIT wanted);
                RAISE SQLSTATE 'CLD01';
            EXCEPTION WHEN SQLSTATE 'CLD01' THEN
                ids := ids || found;
                days := days || array_fill(each, ARRAY[cardinality(found)]);
            END;
        END LOOP;
        RETURN QUERY SELECT either.id, either.day FROM (
            SELECT i.id, i.day FROM unnest(ids, days) AS i (id, day)
            UNION
            (SELECT e.id, e.day FROM celeriac.ended e WHERE e.id >= enqueued.first AND e.id < upto
                ORDER BY e.id DESC LIMIT wanted)) AS either
        ORDER BY either.id DESC LIMIT wanted;
        GET DIAGNOSTICS n = ROW_COUNT;
        wanted := wanted - n;
        EXIT WHEN enqueued.day IS NULL OR wanted = 0;
        upto := enqueued.first;
    END LOOP;
END $$;

-- What failed or was cancelled on days whose failures `ended` does not list yet, the greatest ids first.
CREATE OR REPLACE FUNCTION celeriac.badly_unlisted(status text, of_role text, before bigint, most integer)
RETURNS TABLE (id bigint, day date, task_id text, role text, account text, completed_at timestamptz)
LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    each date;
    began timestamptz;
    ended timestamptz;
BEGIN
    FOR each IN SELECT celeriac.days_not_listed() LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            RETURN QUERY SELECT h.id, each, h.task_id, h.role, h.account, h.completed_at FROM celeriac.history h
            WHERE h.completed_at >= began AND h.completed_at < ended AND h.id < before
                AND h.status IN ('failed', 'cancelled') AND h.status = badly_unlisted.status
                AND (of_role IS NULL OR h.role = of_role)
                AND NOT EXISTS (SELECT FROM celeriac.ended e WHERE e.id = h.id AND e.status IS NOT NULL)
            ORDER BY h.id DESC LIMIT most;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN NULL;
        END;
    END LOOP;
END $$;

-- Finished tasks by their ids and days.
CREATE OR REPLACE FUNCTION celeriac.finished_on(ids bigint[], days date[]) RETURNS SETOF celeriac.worker_tasks
LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    each record;
    began timestamptz;
    ended timestamptz;
BEGIN
    FOR each IN SELECT d.day, array_agg(d.id) AS ids FROM unnest(ids, days) AS d (id, day) GROUP BY d.day LOOP
        began := celeriac.begin_of(each.day);
        ended := celeriac.begin_of(each.day + 1);
        BEGIN
            RETURN QUERY SELECT f.* FROM unnest(each.ids) AS i (id), LATERAL (
                SELECT * FROM celeriac.finished f
                WHERE f.id = i.id AND f.completed_at >= began AND f.completed_at < ended OFFSET 0) AS f;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN NULL;
        END;
    END LOOP;
END $$;

-- The tasks of a role that ended last, newest first.
CREATE OR REPLACE FUNCTION celeriac.last_ended(of_role text, most integer) RETURNS SETOF celeriac.history
LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off AS $$
DECLARE
    each date := celeriac.day_before('infinity', of_role);
    wanted integer := most;
    n integer;
    began timestamptz;
    ended timestamptz;
BEGIN
    WHILE each IS NOT NULL AND wanted > 0 LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            RETURN QUERY SELECT * FROM celeriac.history h
            WHERE h.role = of_role AND h.completed_at >= began AND h.completed_at < ended
            ORDER BY h.completed_at DESC, h.id DESC LIMIT wanted;
            GET DIAGNOSTICS n = ROW_COUNT;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN
            wanted := wanted - n;
        END;
        each := celeriac.day_before(each, of_role);
    END LOOP;
END $$;

-- What ended of a role behind this time and id, up to a time, oldest first.
CREATE OR REPLACE FUNCTION celeriac.ended_after(
    of_role text, since timestamptz, since_id bigint, until timestamptz, most integer
) RETURNS SETOF celeriac.history LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off AS $$
DECLARE
    each date := celeriac.day_after(CAST(since AT TIME ZONE 'UTC' AS date) - 1, of_role);
    wanted integer := most;
    n integer;
    began timestamptz;
    ended timestamptz;
BEGIN
    WHILE celeriac.begin_of(each) <= until AND wanted > 0 LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            RETURN QUERY SELECT * FROM celeriac.history h
            WHERE h.role = of_role AND h.completed_at >= began AND h.completed_at < ended
                AND (h.completed_at, h.id) > (since, since_id) AND h.completed_at <= until
            ORDER BY h.completed_at, h.id LIMIT wanted;
            GET DIAGNOSTICS n = ROW_COUNT;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN
            wanted := wanted - n;
        END;
        each := celeriac.day_after(each, of_role);
    END LOOP;
END $$;

-- How many tasks of a role have ended, or of all with null: what is told of days, and of the others each status counted up
-- to `most`. `has_more`: there may be more completed ones. They are counted among so many more rows as ended badly, since
-- finding successes among many failures could take for ever.
CREATE OR REPLACE FUNCTION celeriac.count_ended(of_role text, most bigint)
RETURNS TABLE (completed bigint, failed bigint, cancelled bigint, has_more boolean) LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off AS $$
DECLARE
    each date;
    wanted bigint;
    bad bigint;
    n bigint;
    also bigint;
    condition text;
    by_status CONSTANT text := 'SELECT count(*) FROM (SELECT FROM celeriac.history'
        ' WHERE status IN (''failed'', ''cancelled'') AND status = $2 AND %s ORDER BY role, -id LIMIT $3) AS h';
BEGIN
    SELECT t.completed, t.failed, t.cancelled INTO completed, failed, cancelled FROM celeriac.told_ended(of_role) AS t;
    has_more := completed >= most;
    FOR each IN SELECT celeriac.open_days() LOOP
        condition := celeriac.within(each) || CASE WHEN of_role IS NULL THEN '' ELSE ' AND role = $1' END;
        wanted := greatest(0, most - completed);
        BEGIN
            EXECUTE format(by_status, condition) USING of_role, 'failed', most INTO n;
            EXECUTE format(by_status, condition) USING of_role, 'cancelled', most INTO also;
            bad := n + also;
            failed := failed + n;
            cancelled := cancelled + also;
            IF wanted > 0 THEN
                EXECUTE 'SELECT count(*), count(*) FILTER (WHERE status = ''completed'') FROM ('
                    'SELECT status FROM celeriac.history WHERE ' || condition
                    || ' ORDER BY role, completed_at LIMIT $2) AS h' USING of_role, wanted + bad INTO n, also;
                has_more := has_more OR n >= wanted + bad;
                completed := completed + also;
            END IF;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN NULL;
        END;
    END LOOP;
    RETURN NEXT;
END $$;

-- What failed on the day of this time and since, of a role, or of all with null, and has ids below this one: the greatest
-- ids. Of each day only those are read that may be among them.
CREATE OR REPLACE FUNCTION celeriac.failed_since(since timestamptz, of_role text, before bigint, most integer)
RETURNS TABLE (id bigint, task_id text, role text, account text, completed_at timestamptz)
LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    first CONSTANT date := CAST(since AT TIME ZONE 'UTC' AS date);
    each date := celeriac.day_before('infinity', of_role);
    least_id bigint := -9223372036854775807;
    began timestamptz;
    ended timestamptz;
    found bigint[];
    ids bigint[] := '{}';
    days date[] := '{}';
BEGIN
    WHILE each >= first LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            found := ARRAY(WITH RECURSIVE names AS (
                (SELECT h.role FROM celeriac.history h
                    WHERE h.status = 'failed' AND h.status IN ('failed', 'cancelled')
                        AND h.completed_at >= began AND h.completed_at < ended AND h.role >= coalesce(of_role, '')
                    ORDER BY h.status, h.role LIMIT 1)
                UNION ALL
                SELECT next.role FROM names, LATERAL (
                    SELECT h.role FROM celeriac.history h
                    WHERE h.status = 'failed' AND h.status IN ('failed', 'cancelled') AND of_role IS NULL
                        AND h.completed_at >= began AND h.completed_at < ended AND h.role > names.role
                    ORDER BY h.status, h.role LIMIT 1) AS next
            )
            SELECT f.id FROM names, LATERAL (
                SELECT h.id FROM celeriac.history h
                WHERE h.status = 'failed' AND h.status IN ('failed', 'cancelled') AND h.role = names.role
                    AND h.completed_at >= began AND h.completed_at < ended AND -h.id > -before AND -h.id < -least_id
                ORDER BY h.status, h.role, -h.id LIMIT most) AS f
            WHERE names.role = coalesce(of_role, names.role));
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN NULL;
        END;
        SELECT coalesce(array_agg(i.id ORDER BY i.id DESC), '{}'), coalesce(array_agg(i.day ORDER BY i.id DESC), '{}')
        INTO ids, days FROM (
            SELECT u.id, u.day FROM unnest(ids || found, days || array_fill(each, ARRAY[cardinality(found)]))
                AS u (id, day) ORDER BY u.id DESC LIMIT most) AS i;
        IF cardinality(ids) >= most THEN
            least_id := ids[most];
        END IF;
        each := celeriac.day_before(each, of_role);
    END LOOP;
    RETURN QUERY SELECT f.id, f.task_id, f.role, f.account, f.completed_at FROM celeriac.finished_on(ids, days) AS f;
END $$;


-- The parts of a workflow that have ended, by role, barrier and status: of each day on which some have.
CREATE OR REPLACE FUNCTION celeriac.shape_of(of_workflow text)
RETURNS TABLE (role text, barrier uuid, status text, n bigint, first bigint, parent bigint, created timestamptz,
    started timestamptz, completed timestamptz) LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    each date;
    began timestamptz;
    ended timestamptz;
BEGIN
    FOR each IN SELECT DISTINCT e.day FROM celeriac.ended e WHERE e.workflow = of_workflow LOOP
        began := celeriac.begin_of(each);
        ended := celeriac.begin_of(each + 1);
        BEGIN
            RETURN QUERY SELECT h.role, h.barrier, h.status, count(*), min(h.id), min(h.parent_id), min(h.created_at),
                min(h.started_at), max(h.completed_at)
            FROM celeriac.history h WHERE h.workflow = of_workflow AND h.completed_at >= began AND h.completed_at < ended
            GROUP BY h.role, h.barrier, h.status;
            RAISE SQLSTATE 'CLD01';
        EXCEPTION WHEN SQLSTATE 'CLD01' THEN NULL;
        END;
    END LOOP;
END $$;
