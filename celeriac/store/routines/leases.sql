-- Leases: since when they count, and how long ago each was renewed. Whoever frees or lists what is silent goes by this.

-- Whether a worker whose last heartbeat was at this time still counts as one. Its limit is that of
-- celeriac/store/states.py.
CREATE OR REPLACE FUNCTION celeriac.is_heard(last_heartbeat_at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT last_heartbeat_at > statement_timestamp() - interval '2 minutes'
$$;

-- Since when this server answers.
CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE AS $$
SELECT pg_postmaster_start_time()
$$;

-- Since when leases count: a lease counts only time in which it could have been renewed. Since this server answers, or
-- since the end of the last gap: a failover, a frozen server, a clock that was set forward.
CREATE OR REPLACE FUNCTION celeriac.leases_since() RETURNS timestamptz LANGUAGE sql STABLE AS $$
SELECT greatest(celeriac.up_since(), (SELECT at FROM celeriac.repairs WHERE name = 'gap'))
$$;

-- Notes the end of a gap: who writes every few seconds has not been able to since `own`, and nobody else has either, for
-- `silence` seconds. Call it before the write. A beat that was away alone finds the heartbeats of others; those who have
-- reported for the first time since then were not there, so they tell nothing. `own` is null: a newcomer's first report,
-- and it cannot know why all others are silent. It notes only when it came.
CREATE OR REPLACE FUNCTION celeriac.note_gap(own timestamptz, silence double precision) RETURNS void LANGUAGE sql
SET jit = off SET enable_seqscan = off AS $$
INSERT INTO celeriac.repairs (name, at)
SELECT CASE WHEN own IS NULL THEN 'newcomer' ELSE 'gap' END, clock_timestamp()
WHERE greatest(
    own, (SELECT max(last_tick_at) FROM celeriac.beats WHERE own IS NULL OR started_at <= own),
    (SELECT max(last_heartbeat_at) FROM celeriac.workers WHERE status <> 'stopped' AND (own IS NULL OR started_at <= own))
) < clock_timestamp() - silence * interval '1 second'
ON CONFLICT (name) DO UPDATE SET at = excluded.at
WHERE excluded.name = 'gap' OR repairs.at < excluded.at - interval '10 minutes'
$$;

-- Whether the first to write after a silence of all others was a newcomer, a moment ago: those who are well come back
-- within ten seconds. Another newcomer makes it no longer, or one that crashes again and again would keep the dead
-- from being rescued.
CREATE OR REPLACE FUNCTION celeriac.awaits_others(seconds double precision) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (
    SELECT FROM celeriac.repairs
    WHERE name = 'newcomer' AND at > statement_timestamp() - least(seconds, 10) * interval '1 second')
$$;

-- When the holder of a ticket was heard last. A row that somebody has locked cannot be renewed, and that costs a worker
-- that is well nothing: what its living processes hold counts from its own heartbeat, if that is later.
CREATE OR REPLACE FUNCTION celeriac.heard_at(of_worker text, of_process integer, renewed timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
SELECT greatest(renewed, (
    SELECT w.last_heartbeat_at FROM celeriac.workers w
    WHERE w.worker_id = of_worker AND w.status <> 'stopped' AND w.resources -> 'processes' @> to_jsonb(of_process)))
$$;

-- Whether a lease has been over for so long that its holder counts as lost. Of what was renewed in time nothing else is
-- looked at.
CREATE OR REPLACE FUNCTION celeriac.is_stale(k celeriac.tickets, seconds double precision) RETURNS boolean LANGUAGE sql
STABLE AS $$
SELECT CASE WHEN k.worker_id IS NULL OR k.heartbeat_at >= statement_timestamp() - seconds * interval '1 second' THEN false
    ELSE greatest(celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at), celeriac.leases_since())
        < statement_timestamp() - seconds * interval '1 second' AND NOT celeriac.awaits_others(seconds) END
$$;
