"""Find what makes Postgres slow, or keeps it from taking writes: long statements, a full disk, slow commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from psycopg2.errors import DiskFull
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from celeriac.insights.why.blockers import without_constants
from celeriac.insights.why.spans import span

#: Seconds that a statement has to run to be named if processors are short; the engine's own take milliseconds.
LONG = 5.0

#: Number of timed series, and of pieces of work in each, of about 0.1 ms a piece.
SERIES, PIECES = 3, 40

#: Most statements that are returned.
MOST = 20

# A session that waits for a lock, its client, a standby or a time uses no processor and no disk. A vacuum that pauses
# between pages waits for a time. Without pg_read_all_stats, neither state nor statement of another login's session is
# visible.
LONG_STATEMENTS = text("""
SELECT a.pid, coalesce(a.usename, '') AS login, coalesce(a.application_name, '') AS name,
    CAST(extract(epoch FROM clock_timestamp() - a.query_start) AS double precision) AS seconds,
    coalesce(a.query, '') AS runs, a.backend_type = 'autovacuum worker' AS is_automatic
FROM pg_stat_activity a
WHERE a.state = 'active' AND a.pid <> pg_backend_pid() AND a.backend_type IN ('client backend', 'autovacuum worker')
    AND a.query_start < clock_timestamp() - :long * interval '1 second'
    AND coalesce(a.wait_event_type, '') NOT IN ('Lock', 'Client', 'Timeout', 'Activity', 'Extension')
    AND coalesce(a.wait_event, '') <> 'SyncRep'
ORDER BY a.query_start LIMIT :most
""")

#: Number of sessions at work from which they are examined even if none of their statements is long.
CROWD = 16

# The login and application with most of them, and a statement of theirs. The engine's own are short, and as many as it
# has processes: while a backlog is worked off they may well keep all processors busy.
MANY_STATEMENTS = text("""
WITH active AS MATERIALIZED (
    SELECT coalesce(a.usename, '') AS login, coalesce(a.application_name, '') AS name, coalesce(a.query, '') AS runs
    FROM pg_stat_activity a
    WHERE a.state = 'active' AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
        AND NOT starts_with(coalesce(a.application_name, ''), 'celeriac')
        AND coalesce(a.wait_event_type, '') NOT IN ('Lock', 'Client', 'Timeout', 'Activity', 'Extension')
)
SELECT login, name, count(*) AS n, (SELECT count(*) FROM active) AS of, min(runs) AS runs
FROM active GROUP BY login, name HAVING (SELECT count(*) FROM active) >= :crowd ORDER BY n DESC, login, name LIMIT 1
""")

# The checkpointer has no statement; it either waits for its time or is at work.
UNDER_WAY = text("""
SELECT 'a vacuum of ' || CAST(relid AS regclass) || ' is under way (pid ' || pid || ')'
FROM pg_stat_progress_vacuum WHERE datname = current_database()
UNION ALL
SELECT 'a checkpoint is under way' FROM pg_stat_activity
WHERE backend_type = 'checkpointer' AND coalesce(wait_event_type, '') <> 'Activity'
    AND coalesce(wait_event, '') <> 'CheckpointWriteDelay'
""")

# INVARIANT: each piece is the same work, so the quickest shows how long a processor needs for it.
WORK = text("""
SELECT clock_timestamp() FROM generate_series(0, :pieces) AS n
WHERE (SELECT sum(i) FROM generate_series(1, 3000) AS i WHERE n IS NOT NULL) > 0
""")

# More than fits into `work_mem`, so that it is written to a temporary file, usually on the tables' disk.
ROOM = text("SELECT count(*) FROM generate_series(1, 25000)")

# These events mean a commit, except in a session that fills the log's buffers: so the statement has to be a commit. Of
# the engine's sessions any statement but BEGIN counts, because each is a short write.
COMMITS = text("""
WITH waiting AS MATERIALIZED (
    SELECT lower(a.wait_event) = 'syncrep' AS for_standby, a.wait_event AS event,
        CAST(extract(epoch FROM clock_timestamp() - a.query_start) AS double precision) AS seconds
    FROM pg_stat_activity a
    WHERE a.state = 'active' AND a.pid <> pg_backend_pid() AND a.datname = current_database()
        AND lower(a.wait_event) IN ('syncrep', 'walsync', 'walwrite')
        AND (a.query ~* '(^|;)\\s*(commit|end)\\s*;?\\s*$'
            OR starts_with(a.application_name, 'celeriac') AND a.query !~* '^\\s*begin')
)
SELECT for_standby, max(seconds) AS seconds, CAST(count(*) AS integer) AS sessions, min(event) AS event,
    coalesce(current_setting('synchronous_standby_names', true), '') AS standbys,
    (SELECT CAST(count(*) AS integer) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS connected
FROM waiting GROUP BY for_standby ORDER BY seconds DESC LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class LongStatement:
    """A statement that runs, without constants, for so many seconds. `is_automatic`: autovacuum's."""

    pid: int
    login: str
    name: str
    seconds: float
    runs: str
    is_automatic: bool

    @property
    def sentence(self) -> str:
        who = ", ".join(filter(None, (f"login {self.login}" if self.login else "", self.name)))
        whose = " (the engine's own)" if self.name.startswith("celeriac") else ""
        return f"pid {self.pid} ({who or 'autovacuum'}){whose} runs for {span(self.seconds)}: {self.runs}"

    @property
    def cure(self) -> str:
        if self.is_automatic:
            return "let it run, or slow it down: raise autovacuum_vacuum_cost_delay"
        return f"SELECT pg_cancel_backend({self.pid});"


@dataclass(frozen=True, slots=True)
class ManyStatements:
    """`n` of the sessions that run a statement (`of` in all) are of this login and application; one `runs` this."""

    login: str
    name: str
    n: int
    of: int
    runs: str

    @property
    def sentence(self) -> str:
        who = ", ".join(filter(None, (f"login {self.login}" if self.login else "", self.name)))
        return f"{self.n:,} of {self.of:,} other sessions that run something are of {who}, one of them: {self.runs}"

    @property
    def cure(self) -> str:
        return "let it run fewer at once: a smaller pool, or PgBouncer between"


@dataclass(frozen=True, slots=True)
class Slowness:
    """The slowness of Postgres.

    `longest`: what runs for long, the longest first. `beside`: vacuums and a checkpoint that are under way. `many`: who
    runs most, where many run something.
    """

    crowd: float
    longest: Sequence[LongStatement]
    beside: Sequence[str]
    many: ManyStatements | None = None

    @property
    def sentence(self) -> str:
        more = [f"{len(self.longest) - 1} more run for over {LONG:.0f} s"] if len(self.longest) > 1 else []
        why = [*(one.sentence for one in self.longest[:1]), *more, *([self.many.sentence] if self.many else [])]
        crowd = f"its statements take {self.crowd:.1f} times as long as they need"
        return "; ".join([f"{crowd}: {why[0]}", *why[1:], *self.beside])

    @property
    def cure(self) -> str:
        return self.longest[0].cure if self.longest or self.many is None else self.many.cure


@dataclass(frozen=True, slots=True)
class SlowCommits:
    """So many `sessions` wait for their commit, the first for `seconds`: for a standby or for the disk (`event`).

    `standbys`: the setting, and how many of them are `connected`. `beside`: somebody's statements that run for long.
    """

    for_standby: bool
    seconds: float
    sessions: int
    event: str
    standbys: str
    connected: int
    beside: Sequence[LongStatement] = ()

    @property
    def sentence(self) -> str:
        who = f"{self.sessions:,} sessions wait for their commit, the first for {span(self.seconds)}"
        if self.for_standby:
            return (
                f"{who}: for a standby, as synchronous_standby_names is {self.standbys!r}, and {self.connected} of "
                "them are connected"
            )
        return "; ".join([f"{who}: for the disk of the write-ahead log ({self.event})", *self._beside()])

    def _beside(self) -> list[str]:
        return [one.sentence for one in self.beside[:1]]

    @property
    def cure(self) -> str:
        if self.for_standby:
            return (
                "bring the standby back; or go on without it, which a failover then may lose: "
                "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();"
            )
        if self.beside:
            return self.beside[0].cure
        return "see who else writes to that disk, and whether it is at its limit; make it faster, or write less"


def long_statements(connection: Connection) -> list[LongStatement]:
    """Return what runs for longer than `LONG` and uses a processor or the disk, the longest first."""
    rows = connection.execute(LONG_STATEMENTS, {"long": LONG, "most": MOST}).mappings()
    return [LongStatement(**row | {"runs": without_constants(row["runs"])}) for row in map(dict, rows)]


def slowness(connection: Connection) -> Slowness | None:
    """Return how slow Postgres is where statements run for long, or many do; None elsewhere: then nothing is timed."""
    longest = long_statements(connection)
    met = connection.execute(MANY_STATEMENTS, {"crowd": CROWD}).mappings().one_or_none()
    many = None if met is None else ManyStatements(**dict(met) | {"runs": without_constants(met["runs"])})
    if not longest and many is None:
        return None
    times = [at.timestamp() for at in connection.execute(WORK, {"pieces": SERIES * PIECES}).scalars()]
    return Slowness(crowd_of(times), longest, connection.execute(UNDER_WAY).scalars().all(), many)


def crowd_of(times: Sequence[float]) -> float:
    """Return how many times as long as the quickest a piece took, given when each began (seconds). Pure.

    The quickest is the limit of the fastest quarter, because a single value may be a mistake of the clock. The result
    is the median of the series' means, so that a single stall, which affects one series, does not count.
    """
    took = [after - before for before, after in pairwise(times)]
    quick, size = sorted(took)[len(took) // 4], len(took) // SERIES
    means = [fmean(took[i * size : (i + 1) * size]) for i in range(SERIES)]
    return median(means) / quick if quick > 0 else 1.0


def no_room(connection: Connection) -> str | None:
    """Return Postgres' error if it cannot write a temporary file of 0.5 MB, else None. Call it in a transaction."""
    connection.exec_driver_sql("SAVEPOINT room; SET LOCAL work_mem = '64kB'")
    try:
        connection.execute(ROOM)
    except OperationalError as error:
        if not isinstance(error.orig, DiskFull):
            raise
        return str(error.orig).partition("\n")[0]
    finally:
        if not connection.invalidated:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT room; RELEASE SAVEPOINT room")
    return None


def slow_commits(connection: Connection) -> SlowCommits | None:
    """Return who waits for a commit now; None if nobody does."""
    row = connection.execute(COMMITS).mappings().one_or_none()
    if row is None:
        return None
    beside = [] if row["for_standby"] else long_statements(connection)
    return SlowCommits(**row, beside=[one for one in beside if not one.name.startswith("celeriac")])
