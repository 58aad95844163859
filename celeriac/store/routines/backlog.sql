-- How much there is to do, and how fast it goes.
--
-- SELECT * FROM v_worker_capacity;        what waits, what runs, how fast it goes and how long it will take

-- The one count of a backlog: whoever says how much of a role waits or runs asks here. Each count stops at `most`, which
-- then means "at least", and walks the index of its room: no table is read from end to end, however much of it the
-- planner believes to be this role's. `due` is a part of `later`, `stale` of `claimed` and `running`.
CREATE OR REPLACE FUNCTION celeriac.backlog(for_role text, most bigint DEFAULT 300000) RETURNS TABLE (
    ready bigint, later bigint, due bigint, behind_lock bigint, parked bigint, members bigint, claimed bigint, running bigint,
    stale bigint, longest_running double precision
) LANGUAGE sql STABLE SET jit = off SET enable_seqscan = off AS $$
SELECT
    (SELECT count(*) FROM (
        SELECT FROM celeriac.ready WHERE role = for_role ORDER BY account LIMIT most) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM celeriac.later WHERE role = for_role ORDER BY due_at LIMIT most) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM celeriac.later WHERE role = for_role AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT most) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM celeriac.behind WHERE role = for_role ORDER BY lock_key LIMIT most) AS counted),
    (SELECT count(*) FROM (SELECT FROM celeriac.parked WHERE role = for_role LIMIT most) AS counted),
    (SELECT count(*) FROM (SELECT FROM celeriac.barriers WHERE role = for_role LIMIT most) AS counted),
    active.*
FROM (
    SELECT coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NULL), 0),
        coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NOT NULL), 0),
        coalesce(sum(cardinality(ids)) FILTER (WHERE celeriac.is_stale(k, coalesce((
            SELECT CAST(definition ->> 'stale_after' AS double precision) FROM celeriac.roles
            WHERE role = celeriac.role_of(for_role)
        ), 600))), 0),
        CAST(extract(epoch FROM statement_timestamp() - min(started_at)) AS double precision)
    FROM celeriac.tickets k WHERE role = for_role
) AS active
$$;

-- How many slots a role could use now: what it holds, and as much of what waits and is due as its window has room for. Of
-- each room at most a window's entries are read; 0 for a role there is none of. An autoscaler's login may execute this and nothing else.
CREATE OR REPLACE FUNCTION celeriac.wanted_slots(for_role text) RETURNS double precision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog SET jit = off SET enable_seqscan = off AS $$
SELECT coalesce((
    SELECT CASE WHEN r.paused THEN active.n ELSE greatest(active.n, least(size.slots, active.n + b.ready + b.due)) END
    FROM celeriac.roles r
    CROSS JOIN LATERAL (SELECT coalesce(CAST(r.definition ->> 'window' AS bigint), 0) AS slots) AS size
    CROSS JOIN LATERAL celeriac.backlog(for_role, size.slots) AS b
    CROSS JOIN LATERAL (SELECT b.claimed + b.running AS n) AS active
    WHERE r.role = for_role
), 0)
$$;

-- Whether a finished task was tried before. Whoever fails for good has used up all rounds, also in its first attempt.
CREATE OR REPLACE FUNCTION celeriac.was_retried(status text, retry_count integer, tries integer, max_retries integer)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT retry_count > 0
    OR CASE WHEN status = 'completed' THEN tries > 0 WHEN max_retries = 0 THEN tries > 1 ELSE false END
$$;

-- What rates and means are of: the newest 5,000. How many there are beyond those is read from `minutes`, as far as they
-- are counted, and from the rows before and after. A task waits from when it was due. Of a role that keeps no successes,
-- whose history tells of the others alone, what its workers have counted by minutes; of one that keeps nothing, their count
-- of its failures, too. The tasks of a ticket run one by one, and each counts their mean since the first of `newest` could
-- begin; where a worker's slots share a process, each runs by itself since the ticket began. The planner knows the hour's
-- times, so that it plans for its days alone.
CREATE OR REPLACE FUNCTION celeriac.last_hour(for_role text) RETURNS TABLE (
    completed bigint, failed bigint, failed_rate double precision, retry_rate double precision,
    retry_success_rate double precision, run_seconds double precision, wait_seconds double precision
) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    hour_ago CONSTANT timestamptz := statement_timestamp() - interval '1 hour';
    soon CONSTANT timestamptz := statement_timestamp() + interval '1 minute';
BEGIN
    RETURN QUERY
WITH newest AS MATERIALIZED (
    SELECT status, celeriac.was_retried(status, retry_count, tries, max_retries) AS again, id, completed_at, started_at,
        greatest(created_at, scheduled_for) AS due_at, worker_id, worker_pid
    FROM celeriac.history WHERE role = for_role AND completed_at > hour_ago AND completed_at < soon
    ORDER BY completed_at DESC, id DESC LIMIT 5000
), last AS MATERIALIZED (
    SELECT completed_at, id FROM newest WHERE (SELECT count(*) FROM newest) = 5000 ORDER BY completed_at, id LIMIT 1
), whole AS MATERIALIZED (
    SELECT hour.first, greatest(hour.first, least(u.until, date_trunc('minute', last.completed_at))) AS upto
    FROM last, celeriac.minutes_until u, LATERAL (
        SELECT date_trunc('minute', statement_timestamp() - interval '59 minutes') AS first) AS hour
), rest AS (
    SELECT older.* FROM last, whole, LATERAL (
        (SELECT status, celeriac.was_retried(status, retry_count, tries, max_retries) AS again FROM celeriac.history h
        WHERE role = for_role AND h.completed_at > hour_ago AND h.completed_at < soon
            AND h.completed_at < whole.first AND (h.completed_at, h.id) < (last.completed_at, last.id)
        ORDER BY h.completed_at DESC, h.id DESC LIMIT 990000)
        UNION ALL
        (SELECT status, celeriac.was_retried(status, retry_count, tries, max_retries) FROM celeriac.history h
        WHERE role = for_role AND h.completed_at > hour_ago AND h.completed_at < soon
            AND h.completed_at >= whole.upto AND (h.completed_at, h.id) < (last.completed_at, last.id)
        ORDER BY h.completed_at DESC, h.id DESC LIMIT 990000)) AS older
), minutes AS (
    SELECT sum(m.completed) AS completed, sum(m.failed) AS failed, sum(m.failed_again) AS failed_again
    FROM whole JOIN celeriac.minutes m ON m.role = for_role AND m.minute >= whole.first AND m.minute < whole.upto
)
SELECT CAST(ended.completed AS bigint), CAST(ended.failed AS bigint),
    CASE WHEN counted.completed IS NULL THEN means.failed_rate
        ELSE ended.failed / nullif(ended.completed + ended.failed, 0) END,
    CASE WHEN counted.completed IS NULL THEN means.retry_rate
        ELSE (counted.completed_again + ended.failed_again) / nullif(ended.completed + ended.failed, 0) END,
    CASE WHEN counted.completed IS NULL THEN means.retry_success_rate
        ELSE counted.completed_again / nullif(counted.completed_again + ended.failed_again, 0) END,
    coalesce(means.run_seconds, counted.run_seconds), means.wait_seconds
FROM (
    SELECT CASE WHEN celeriac.is_counted(r.definition, 'completed') THEN 0 ELSE seen.completed END AS completed,
        CASE WHEN celeriac.is_counted(r.definition, 'failed') THEN 0 ELSE seen.failed END AS failed,
        CASE WHEN celeriac.is_counted(r.definition, 'failed') THEN 0 ELSE seen.failed_again END AS failed_again
    FROM (
        SELECT of_rows.completed + coalesce(minutes.completed, 0) AS completed,
            of_rows.failed + coalesce(minutes.failed, 0) AS failed,
            of_rows.failed_again + coalesce(minutes.failed_again, 0) AS failed_again
        FROM minutes, (
            SELECT count(*) FILTER (WHERE status = 'completed') AS completed,
                count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'failed' AND again) AS failed_again
            FROM (SELECT status, again FROM newest UNION ALL SELECT status, again FROM rest) AS finished
        ) AS of_rows
    ) AS seen
    LEFT JOIN celeriac.roles r ON r.role = for_role
) AS kept
CROSS JOIN (
    SELECT avg(CASE status WHEN 'failed' THEN 1.0 WHEN 'completed' THEN 0.0 END) AS failed_rate,
        avg(CASE WHEN again THEN 1.0 ELSE 0.0 END) FILTER (WHERE status <> 'cancelled') AS retry_rate,
        avg(CASE status WHEN 'failed' THEN 0.0 WHEN 'completed' THEN 1.0 END) FILTER (WHERE again) AS retry_success_rate,
        avg(seconds) FILTER (WHERE status = 'completed') AS run_seconds,
        avg(date_part('epoch', started_at - due_at)) AS wait_seconds
    FROM (
        SELECT status, again, started_at, due_at, CASE WHEN n = 1 THEN date_part('epoch', ended_at - started_at)
            ELSE greatest(0, date_part('epoch', ended_at - greatest(started_at, since))) / n END AS seconds
        FROM (
            SELECT status, again, started_at, due_at, max(completed_at) OVER ticket AS ended_at,
                count(*) OVER ticket AS n, coalesce(
                    (SELECT completed_at FROM last), statement_timestamp() - interval '1 hour') AS since
            FROM newest WINDOW ticket AS (PARTITION BY worker_id, worker_pid, started_at, CASE
                WHEN status = 'cancelled' OR coalesce((
                    SELECT w.resources -> 'shares_process' = 'true' FROM celeriac.workers w
                    WHERE w.worker_id = newest.worker_id LIMIT 1), false)
                THEN id END)
        ) AS in_tickets
    ) AS run
) AS means
CROSS JOIN (
    SELECT CAST(sum(o.completed) AS double precision) AS completed,
        CAST(sum(o.completed_again) AS double precision) AS completed_again,
        CAST(sum(o.failed) FILTER (WHERE r.definition -> 'keep' = '0') AS double precision) AS failed,
        CAST(sum(o.failed_again) FILTER (WHERE r.definition -> 'keep' = '0') AS double precision) AS failed_again,
        sum(o.run_seconds) / nullif(sum(o.completed + o.failed), 0) AS run_seconds
    FROM celeriac.roles r JOIN celeriac.outcomes o ON o.role = r.role
    WHERE r.role = for_role AND r.definition -> 'keep' IN ('null', '0')
        AND o.minute > statement_timestamp() - interval '1 hour'
) AS counted
CROSS JOIN LATERAL (
    SELECT kept.completed + coalesce(counted.completed, 0) AS completed,
        kept.failed + coalesce(counted.failed, 0) AS failed,
        kept.failed_again + coalesce(counted.failed_again, 0) AS failed_again
) AS ended;
END $$;

-- By tens: 0 counts 0 to 9. Of each room the first 20,000.
CREATE OR REPLACE FUNCTION celeriac.priorities(for_role text) RETURNS jsonb
LANGUAGE sql STABLE SET jit = off SET enable_seqscan = off AS $$
SELECT coalesce(jsonb_object_agg(tens, n), '{}') FROM (
    SELECT CAST(floor(priority / 10.0) * 10 AS integer) AS tens, sum(n) AS n FROM (SELECT priority, count(*) AS n FROM (
        (SELECT priority FROM celeriac.ready WHERE role = for_role ORDER BY account LIMIT 20000)
        UNION ALL
        (SELECT t.priority FROM (
            SELECT id FROM celeriac.later WHERE role = for_role ORDER BY due_at LIMIT 20000) AS l
            JOIN celeriac.tasks t ON t.id = l.id)
        UNION ALL
        (SELECT priority FROM celeriac.behind WHERE role = for_role ORDER BY lock_key LIMIT 20000)
        UNION ALL
        (SELECT priority FROM celeriac.parked WHERE role = for_role LIMIT 20000)
        UNION ALL
        (SELECT t.priority FROM (
            SELECT unnest(ids) AS id FROM celeriac.tickets WHERE role = for_role AND worker_id IS NULL LIMIT 20000) AS k
            JOIN celeriac.tasks t ON t.id = k.id)
    ) AS queued GROUP BY priority) AS counted GROUP BY tens) AS histogram
$$;

-- Of each registered role; `most`: as of `backlog`.
CREATE OR REPLACE FUNCTION celeriac.capacity(most bigint) RETURNS TABLE (
    role text, pending_tasks bigint, ready_tasks bigint, claimed_tasks bigint, running_tasks bigint,
    completed_last_hour bigint, failed_last_hour bigint, active_workers bigint, avg_duration_sec double precision,
    tasks_per_worker_hour double precision, estimated_hours_to_drain double precision, failed_rate double precision,
    retry_success_rate double precision, average_wait double precision, at_least boolean
) LANGUAGE sql STABLE AS $$
SELECT r.role,
    backlog.ready + backlog.later + backlog.behind_lock + backlog.parked + backlog.members AS pending_tasks,
    backlog.ready + backlog.due + backlog.behind_lock + backlog.parked AS ready_tasks,
    backlog.claimed AS claimed_tasks,
    backlog.running AS running_tasks,
    hour.completed AS completed_last_hour,
    hour.failed AS failed_last_hour,
    live.workers AS active_workers,
    pace.seconds AS avg_duration_sec,
    pace.slots_per_worker * 3600 / pace.seconds AS tasks_per_worker_hour,
    CASE WHEN live.workers > 0
        THEN (backlog.ready + backlog.later + backlog.behind_lock + backlog.parked + backlog.members) * pace.seconds
            / (3600 * live.workers * pace.slots_per_worker)
    END AS estimated_hours_to_drain,
    hour.failed_rate, hour.retry_success_rate, hour.wait_seconds AS average_wait,
    greatest(backlog.ready, backlog.later, backlog.behind_lock, backlog.parked, backlog.members) >= most AS at_least
FROM celeriac.roles r
LEFT JOIN celeriac.batchers b ON b.role = r.role
CROSS JOIN LATERAL celeriac.backlog(r.role, most) AS backlog
CROSS JOIN LATERAL celeriac.last_hour(r.role) AS hour
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, CAST(sum(concurrency) AS double precision) AS slots FROM celeriac.workers
    WHERE status = 'active' AND queues ? coalesce(r.definition ->> 'queue', r.role)
        AND celeriac.is_heard(last_heartbeat_at)
) AS live
CROSS JOIN LATERAL (
    -- Rows that share a ticket share its start: where the run time itself is measured, that counts.
    SELECT nullif(coalesce(b.seconds_per_task, hour.run_seconds), 0) AS seconds,
        coalesce(
            least(live.slots, CAST(r.definition ->> 'window' AS double precision)) / nullif(live.workers, 0), 1
        ) AS slots_per_worker
) AS pace
$$;

CREATE OR REPLACE VIEW celeriac.v_worker_capacity AS
SELECT role, pending_tasks, ready_tasks, claimed_tasks, running_tasks, completed_last_hour, failed_last_hour,
    active_workers, avg_duration_sec, tasks_per_worker_hour, estimated_hours_to_drain
FROM celeriac.capacity(300000);

-- Of an earlier release: beside the one that has a bound, nobody could call either without it.
DROP FUNCTION IF EXISTS celeriac.backlog(text);
