-- How many tasks of a role may be claimed or running at once: as said, or where nobody has (`said` null) by measure. The
-- rule is that of celeriac/dispatch/window.py. `slots`: processes of live workers; `seconds`: a task's, null if nobody
-- has measured any; `ahead`: seconds of work that are claimed in advance.
CREATE OR REPLACE FUNCTION celeriac.window_of(said integer, slots bigint, seconds double precision, ahead double precision)
RETURNS integer LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(said, CAST(CASE
    WHEN seconds IS NULL THEN greatest(2 * slots, 8)
    WHEN slots = 0 THEN 8
    ELSE greatest(slots, least(2000, ceil(slots * (1 + ahead / greatest(seconds, 1e-6)))))
END AS integer))
$$;

-- The lanes of a role: its own name first, then those of its further queues.
CREATE OR REPLACE FUNCTION celeriac.lanes_of(of_role text) RETURNS text[] LANGUAGE sql STABLE AS $$
SELECT of_role || ARRAY(SELECT r.role FROM celeriac.roles r WHERE r.definition ->> 'lane_of' = of_role ORDER BY r.role)
$$;

-- How many processes of live workers serve a queue.
CREATE OR REPLACE FUNCTION celeriac.slots_of(of_queue text) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT coalesce(sum(concurrency), 0) FROM celeriac.workers
WHERE status = 'active' AND queues ? of_queue AND celeriac.is_heard(last_heartbeat_at)
$$;

-- A registered role's window as it is now, and for how many seconds a newcomer waits for what is claimed before it where
-- the window is full: null if nobody has measured the role, or nobody serves it.
CREATE OR REPLACE FUNCTION celeriac.current_window(of_role text, OUT size integer, OUT newcomer double precision)
LANGUAGE sql STABLE AS $$
SELECT w.size, greatest(0, w.size - live.slots) * b.seconds_per_task / nullif(live.slots, 0)
FROM celeriac.roles r
CROSS JOIN LATERAL (SELECT celeriac.slots_of(coalesce(r.definition ->> 'queue', r.role)) AS slots) AS live
LEFT JOIN LATERAL celeriac.batcher(r.role) AS b ON true
CROSS JOIN LATERAL (SELECT CASE WHEN r.definition ->> 'window_by_measure' = 'true' THEN celeriac.window_of(
        NULL, live.slots, b.seconds_per_task, 1 + CASE WHEN r.definition ->> 'prompt' = 'false'
            THEN coalesce(CAST(r.definition ->> 'every' AS double precision), 30) ELSE 0 END)
    ELSE CAST(r.definition ->> 'window' AS integer) END AS size) AS w
WHERE r.role = of_role
$$;
