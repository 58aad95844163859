"""Runs of the sweeps within a day, as beat counts them by the hour; and which of them fail, or are off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

RUNS = text("""
SELECT s.name, s.enabled, s.quarantined IS NULL AND NOT coalesce(
        s.enabled AND s.next_run_at < statement_timestamp() - interval '60 seconds', false) AS is_in_time,
    coalesce(ran.runs, 0) AS runs, coalesce(ran.failed, 0) AS failed, coalesce(ran.done, 0) AS done,
    ran.seconds / ran.runs AS mean, ran.longest, ran.error
FROM celeriac.scheduled_jobs s LEFT JOIN (
    SELECT name, CAST(sum(runs) AS bigint) AS runs, CAST(sum(failed) AS bigint) AS failed,
        CAST(sum(done) AS bigint) AS done, sum(seconds) AS seconds, max(longest) AS longest,
        (array_agg(error ORDER BY hour DESC) FILTER (WHERE error IS NOT NULL))[1] AS error
    FROM celeriac.sweep_runs WHERE hour > statement_timestamp() - interval '24 hours' GROUP BY name
) AS ran ON ran.name = s.name
WHERE s.kind = 'sweep' ORDER BY s.name
""")

# One failed run may have met a lock, so it takes two within two hours; of a sweep that runs seldom, one is enough.
UNDONE = text("""
SELECT s.name, s.target, s.enabled, s.last_report ->> 'error' AS error, s.last_run_at
FROM celeriac.scheduled_jobs s
WHERE s.kind = 'sweep' AND s.quarantined IS NULL AND (NOT s.enabled
    OR jsonb_typeof(s.last_report -> 'error') = 'string' AND (
        s.next_run_at > s.last_run_at + interval '10 minutes' OR 1 < (
            SELECT sum(failed) FROM celeriac.sweep_runs r
            WHERE r.name = s.name AND r.hour > statement_timestamp() - interval '2 hours')))
ORDER BY s.name
""")

#: What it costs if a sweep does not do its work.
COSTS = {
    "rescue": "what a dead worker held is run by nobody else",
    "lost_tickets": "tickets that Redis has lost are not handed out anew",
    "hand_over": "lock keys whose holder is gone are not handed over",
    "history": "the days of history are not made ahead",
    "prune": "what has ended is kept for ever, and tables grow",
    "ring": "claims become slower",
    "promote": "without a worker, what waits for its time goes on waiting",
    "resume": "what waits for a paused account may wait after its pause",
    "aging": "what waits at a low priority may wait for ever",
    "review": "the queues' reviews are old",
    "alerts": "alerts neither fire nor end",
    "minutes": "charts, totals and comparisons with the day before are out of date",
}


@dataclass(frozen=True, slots=True)
class Undone:
    """A sweep's schedule that is switched off, or whose last runs failed with this error."""

    name: str
    target: str
    enabled: bool
    error: str | None
    last_run_at: datetime | None

    @property
    def cost(self) -> str:
        return COSTS.get(self.target, "its repairs are not made")


@dataclass(frozen=True, slots=True)
class SweepRuns:
    """The runs of a sweep's schedule. `done`: rows it repaired or removed; `mean` and `longest`: seconds a run took,
    None if none is counted; `error`: that of the last failed run. `is_in_time` False: it is overdue for over a minute,
    or cannot run.
    """

    name: str
    enabled: bool
    is_in_time: bool
    runs: int
    failed: int
    done: int
    mean: float | None
    longest: float | None
    error: str | None


def sweep_runs(connection: Connection) -> list[SweepRuns]:
    """Return the sweeps' runs of the last 24 hours, by name. Workers' runs, where there is no beat, are not counted."""
    return [SweepRuns(*row) for row in connection.execute(RUNS)]


def undone(connection: Connection) -> list[Undone]:
    """Return the sweeps that are switched off, and those that fail, by name."""
    return [Undone(*row) for row in connection.execute(UNDONE)]
