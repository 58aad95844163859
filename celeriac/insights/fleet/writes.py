"""Find what keeps Postgres from taking writes: it may only read, or commits wait for a standby or for the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.insights.fleet.slowness import LongStatement, long_statements
from celeriac.insights.why.spans import span

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


def slow_commits(connection: Connection) -> SlowCommits | None:
    """Return who waits for a commit now; None if nobody does."""
    row = connection.execute(COMMITS).mappings().one_or_none()
    if row is None:
        return None
    beside = [] if row["for_standby"] else long_statements(connection)
    return SlowCommits(**row, beside=[one for one in beside if not one.name.startswith("celeriac")])
