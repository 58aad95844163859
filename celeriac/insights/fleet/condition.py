"""The condition of the system below the engine: Postgres' own figures, beats, and workers that fell silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.tasks.counting import Count
from celeriac.insights.why.blockers import quoted
from celeriac.insights.why.spans import span
from celeriac.store.shell import argument

#: Most rows returned of each kind.
MOST = 20

#: Seconds for which a transaction may be open. A longer one keeps vacuum from removing rows that died since.
OLD = 600.0

#: Up to this number, dead rows are not reported.
FEW_DEAD = 10_000

BEATS = text("""
SELECT beat_id, hostname, pid, started_at, last_tick_at, late_by,
    CAST(extract(epoch FROM statement_timestamp() - last_tick_at) AS double precision) AS age
FROM celeriac.beats ORDER BY last_tick_at DESC LIMIT :most
""")

# A replication slot, or a standby with feedback, has the id of a transaction at which vacuum has to stop, but no time.
# Its age is estimated from the oldest minute that was written after it, among minutes at doubling distances.
HELD_BACK = """
held_back AS (
    SELECT h.name, h.kind, CAST(extract(epoch FROM statement_timestamp() - interval '2 minutes' - (
        SELECT min(m.minute) FROM generate_series(0, 13) AS n, LATERAL (
            SELECT minute, xmin FROM celeriac.minutes
            WHERE minute >= statement_timestamp() - power(2, n) * interval '1 minute' ORDER BY minute LIMIT 1) AS m
        WHERE age(m.xmin) <= age(h.xmin))) AS double precision) AS seconds
    FROM (
        SELECT CAST(slot_name AS text), 'slot', xmin FROM pg_replication_slots
        UNION ALL
        SELECT application_name, 'standby', backend_xmin FROM pg_stat_replication) AS h (name, kind, xmin)
    WHERE h.xmin IS NOT NULL
)
"""

# A login that is neither superuser nor member of pg_monitor sees others' transactions, but not when they began.
OLD_TRANSACTIONS = text(f"""
WITH {HELD_BACK}
SELECT CAST(pid AS text) AS id, coalesce(application_name, '') AS name, coalesce(usename, '') AS login,
    coalesce(state, '') AS state,
    CAST(extract(epoch FROM clock_timestamp() - xact_start) AS double precision) AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND xact_start < clock_timestamp() - :seconds * interval '1 second'
UNION ALL
SELECT gid, '', owner, 'prepared', extract(epoch FROM clock_timestamp() - prepared)
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - :seconds * interval '1 second'
UNION ALL
SELECT name, '', '', kind, seconds FROM held_back WHERE seconds > :seconds
ORDER BY seconds DESC LIMIT :most
""")

# INVARIANT: the rule by which Postgres decides what a login may see of a session.
UNSEEN = text("""
SELECT quote_ident(current_user) AS login, bool_or(a.datname = current_database()) AS in_database
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.datname IS NOT NULL AND NOT pg_has_role(a.usesysid, 'USAGE')
    AND NOT pg_has_role('pg_read_all_stats', 'USAGE')
HAVING count(*) > 0
""")

DEAD_ROWS = text("""
SELECT CAST(relname AS text) AS name, n_live_tup AS live, n_dead_tup AS dead, pg_table_size(relid) AS bytes
FROM pg_stat_user_tables WHERE schemaname = 'celeriac' AND n_dead_tup > :few AND n_dead_tup > n_live_tup
ORDER BY n_dead_tup DESC LIMIT :most
""")

# A partitioned table counts as one. Rows are inserted less deleted ones, as Postgres counts within seconds.
SIZES = text("""
SELECT CAST(coalesce(whole.relname, part.relname) AS text) AS name, CAST(count(*) AS integer) AS parts,
    CAST(sum(pg_stat_get_live_tuples(part.oid)) AS bigint) AS about,
    CAST(sum(pg_table_size(part.oid)) AS bigint) AS bytes,
    CAST(sum(pg_indexes_size(part.oid)) AS bigint) AS bytes_of_indexes
FROM pg_class part LEFT JOIN pg_inherits i ON i.inhrelid = part.oid LEFT JOIN pg_class whole ON whole.oid = i.inhparent
WHERE part.relnamespace = CAST('celeriac' AS regnamespace) AND part.relkind = 'r'
GROUP BY 1 ORDER BY sum(pg_total_relation_size(part.oid)) DESC, 1 LIMIT :most
""")

# A connection of the engine has to fit under three limits: the server's, without what is kept for others, its login's
# and the database's, which bind no superuser. The one that is nearest counts.
CONNECTIONS = text("""
WITH backends AS MATERIALIZED (
    SELECT datid, usesysid, coalesce(usename, '') AS login, coalesce(application_name, '') AS name, state
    FROM pg_stat_activity WHERE backend_type = 'client backend'
        -- hidden in other logins' sessions without pg_read_all_stats
        OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL
), here AS MATERIALIZED (
    SELECT oid, datconnlimit AS most FROM pg_database WHERE datname = current_database()
), limits AS MATERIALIZED (
    SELECT 'server' AS kind, '' AS of, CAST(NULL AS oid) AS login, CAST(NULL AS oid) AS database,
        CAST(current_setting('max_connections') AS integer)
            - CAST(current_setting('superuser_reserved_connections') AS integer)
            - CAST(coalesce(current_setting('reserved_connections', true), '0') AS integer) AS most
    UNION ALL
    SELECT 'login', quote_ident(r.rolname), r.oid, NULL, r.rolconnlimit FROM pg_roles r
    WHERE r.rolconnlimit >= 0 AND NOT r.rolsuper
        AND EXISTS (SELECT FROM backends b JOIN here ON b.datid = here.oid
            WHERE b.usesysid = r.oid AND (b.login = current_user OR starts_with(b.name, 'celeriac')))
    UNION ALL
    SELECT 'database', quote_ident(current_database()), NULL, here.oid, here.most FROM here WHERE here.most >= 0
), nearest AS MATERIALIZED (
    SELECT l.*, (
        SELECT CAST(count(*) AS integer) FROM backends b
        WHERE (l.login IS NULL OR b.usesysid = l.login) AND (l.database IS NULL OR b.datid = l.database)) AS used
    FROM limits l
), worst AS MATERIALIZED (
    SELECT kind, of, login, database, used, greatest(most, 1) AS most FROM nearest
    ORDER BY CAST(used AS double precision) / greatest(most, 1) DESC, kind, of LIMIT 1
)
SELECT w.kind, w.of, w.used, w.most, b.login, b.name, count(*) AS theirs,
    count(*) FILTER (WHERE starts_with(b.state, 'idle')) AS idle
FROM worst w JOIN backends b
    ON (w.login IS NULL OR b.usesysid = w.login) AND (w.database IS NULL OR b.datid = w.database)
GROUP BY w.kind, w.of, w.used, w.most, b.login, b.name ORDER BY theirs DESC, b.login, b.name LIMIT 1
""")

# Counted as `celeriac.stale` does: after a restart or a failover every worker has a whole lease to report.
SILENT = text("""
SELECT k.worker_id, CAST(sum(cardinality(k.ids)) AS integer) AS tasks,
    CAST(max(extract(epoch FROM statement_timestamp()
        - celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at))) AS double precision) AS seconds
FROM celeriac.tickets k LEFT JOIN celeriac.roles r ON r.role = celeriac.role_of(k.role)
WHERE k.worker_id IS NOT NULL AND (CAST(:worker_id AS text) IS NULL OR k.worker_id = :worker_id)
    AND celeriac.is_stale(k, coalesce(
        CAST(:seconds AS double precision), CAST(r.definition ->> 'stale_after' AS double precision), 600))
GROUP BY k.worker_id ORDER BY seconds DESC
""")

#: Most tasks of a role that are counted.
COUNTED = 1_000

PAUSED = text("SELECT role FROM celeriac.roles WHERE paused ORDER BY role")

#: Maximum number of paused or capped accounts whose work is counted.
SHUT_LOOKED_AT = 1_000

# INVARIANT: a bounded descent for each of at most :looks_at accounts that are paused or have the cap 0.
SHUT = text("""
SELECT p.account, p.paused, w.n
FROM (
    SELECT account, paused FROM celeriac.account_policies WHERE paused OR cap = 0 LIMIT :looks_at
) AS p CROSS JOIN LATERAL (
    SELECT CAST(count(*) AS integer) AS n FROM (
        SELECT FROM celeriac.parked WHERE account = p.account ORDER BY account, role, priority DESC, due_at, id
        LIMIT :counted) AS parked
) AS w
WHERE w.n > 0 ORDER BY w.n DESC, p.account LIMIT :most
""")

# A paused role's tasks are not overdue: they are promoted once it is resumed. Of failed tasks only the newest are read.
RETRIES = text("""
SELECT r.role, CAST(overdue.n AS integer) AS overdue, overdue.seconds, CAST(failed.n AS integer) AS used_up
FROM celeriac.roles r
CROSS JOIN LATERAL (
    SELECT count(*) AS n,
        CAST(extract(epoch FROM statement_timestamp() - min(due_at)) AS double precision) AS seconds
    FROM (
        SELECT due_at FROM celeriac.later
        WHERE role = r.role AND due_at < statement_timestamp() - :late * interval '1 second'
        ORDER BY due_at LIMIT :most) AS l
    WHERE NOT r.paused
) AS overdue
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT array_agg(id) AS ids, array_agg(day) AS days FROM (
            SELECT id, day, completed_at FROM celeriac.ended
            WHERE status = 'failed' AND role = r.role ORDER BY status, role, -id LIMIT :most) AS e
        WHERE completed_at > statement_timestamp() - interval '1 day'
    ) AS newest CROSS JOIN celeriac.finished_on(newest.ids, newest.days) AS h
    WHERE h.retry_count > 0 AND h.retry_count >= h.max_retries
) AS failed
WHERE overdue.n > 0 OR failed.n > 0
ORDER BY r.role
""")


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction open for long. `id`: the process id, or the name of a prepared transaction, a slot or a standby."""

    id: str
    name: str
    login: str
    state: str
    seconds: float

    @property
    def sentence(self) -> str:
        return f"{self.id} ({self.name or self.login}, {self.state}) is open for {span(self.seconds)}"

    @property
    def cure(self) -> str:
        name = quoted(self.id)
        cures = {
            "prepared": f"COMMIT PREPARED {name}; or ROLLBACK PREPARED {name}; as its coordinator says",
            "slot": f"bring back the standby that has it, or SELECT pg_drop_replication_slot({name});",
            "standby": "end the query that runs there, or turn its hot_standby_feedback off",
        }
        return cures.get(self.state, f"end its process, or SELECT pg_terminate_backend({self.id});")


@dataclass(frozen=True, slots=True)
class Unseen:
    """A login that sees neither state nor times of some sessions. `in_database`: some are in this database."""

    login: str
    in_database: bool

    @property
    def cure(self) -> str:
        return f"GRANT pg_read_all_stats TO {self.login};"


@dataclass(frozen=True, slots=True)
class DeadRows:
    """A table that has more dead rows than living ones."""

    name: str
    live: int
    dead: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table with its `parts`, in bytes. `about`: rows, inserted less deleted ones."""

    name: str
    parts: int
    about: int
    bytes: int
    bytes_of_indexes: int


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections in use, of those that a limit lets there be: the one of three that is nearest.

    `kind`: server (of all databases; without those kept for superusers and others), login or database, and `of` which,
    quoted. `theirs`: of the login and application with most of them, of which `idle` are idle.
    """

    kind: str
    of: str
    used: int
    most: int
    login: str
    name: str
    theirs: int
    idle: int

    @property
    def sentence(self) -> str:
        who = ", ".join(filter(None, (f"login {self.login}", self.name)))
        whose = "" if self.kind == "server" else f" that the {self.kind} {self.of} may have"
        by = f"{self.theirs} of them by {who} ({self.idle} idle)"
        return f"{self.used} of {self.most} connections{whose} are in use, {by}"

    @property
    def cure(self) -> str:
        more = {
            "login": f"ALTER ROLE {self.of} CONNECTION LIMIT {self.most * 2};",
            "database": f"ALTER DATABASE {self.of} CONNECTION LIMIT {self.most * 2};",
        }.get(self.kind, "raise max_connections")
        return f"end those that are idle, put PgBouncer between, run fewer processes, or {more}"


@dataclass(frozen=True, slots=True)
class SilentWorker:
    """A worker that holds tasks and last reported so many seconds ago."""

    worker_id: str
    tasks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ShutAccount:
    """An account of which nothing starts, as it is `paused` or its cap is 0, though tasks of it wait."""

    account: str
    paused: bool
    waiting: Count

    @property
    def how(self) -> str:
        return "is paused" if self.paused else "has the cap 0"

    @property
    def cure(self) -> str:
        name = argument(self.account)
        return f"celeriac accounts {f'resume {name}' if self.paused else f'set --no-cap {name}'}"


@dataclass(frozen=True, slots=True)
class RetryBacklog:
    """A role's retries. `overdue`: how many still wait although their time has come, the first one `seconds` ago.
    `used_up`: how many failed within a day with all retries used up.
    """

    role: str
    overdue: int
    seconds: float | None
    used_up: int


def paused(connection: Connection) -> list[str]:
    """Return the roles that somebody has paused, each with its lanes, and lanes that are paused alone."""
    return [*connection.execute(PAUSED).scalars()]


def shut_accounts(connection: Connection) -> list[ShutAccount]:
    """Return accounts that have work and are paused or capped to 0, those with most first. Counts stop at `COUNTED`."""
    rows = connection.execute(SHUT, {"counted": COUNTED + 1, "most": MOST, "looks_at": SHUT_LOOKED_AT})
    return [ShutAccount(row.account, row.paused, Count.up_to(COUNTED, row.n)) for row in rows]


def retries(connection: Connection, late: float) -> list[RetryBacklog]:
    """Return roles with overdue or used-up retries, counted to `COUNTED`. `late`: seconds until one is overdue."""
    rows = connection.execute(RETRIES, {"late": late, "most": COUNTED}).mappings()
    return [RetryBacklog(**row) for row in rows]


def beats(connection: Connection) -> list[dict[str, Any]]:
    """Return the beats, the one that ticked last first. `age`: seconds since then; `late_by`: how late it was."""
    return [dict(row) for row in connection.execute(BEATS, {"most": MOST}).mappings()]


def old_transactions(connection: Connection, seconds: float) -> list[Transaction]:
    """Return transactions open for longer than so many seconds: vacuum can remove no row that died since they began."""
    rows = connection.execute(OLD_TRANSACTIONS, {"seconds": seconds, "most": MOST}).mappings()
    return [Transaction(**row) for row in rows]


def unseen(connection: Connection) -> Unseen | None:
    """Return what this login may not see of others' sessions; None where it sees all there are."""
    row = connection.execute(UNSEEN).mappings().one_or_none()
    return None if row is None else Unseen(**row)


def dead_rows(connection: Connection, few: int) -> list[DeadRows]:
    """Return the engine's tables with more dead rows than living ones, and more than `few`."""
    return [DeadRows(**row) for row in connection.execute(DEAD_ROWS, {"few": few, "most": MOST}).mappings()]


def sizes(connection: Connection) -> list[Size]:
    """Return the engine's largest tables."""
    return [Size(**row) for row in connection.execute(SIZES, {"most": MOST}).mappings()]


def connections(connection: Connection) -> Connections:
    return Connections(**connection.execute(CONNECTIONS).mappings().one())


def silent_workers(
    connection: Connection, seconds: float | None = None, worker_id: str | None = None
) -> list[SilentWorker]:
    """Return workers that hold tasks and have not reported them for `seconds`, or for as long as the role allows."""
    rows = connection.execute(SILENT, {"seconds": seconds, "worker_id": worker_id}).mappings()
    return [SilentWorker(**row) for row in rows]
