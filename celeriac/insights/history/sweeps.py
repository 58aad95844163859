"""Runs of the sweeps within a day, as beat counts them by the hour."""

from __future__ import annotations

from dataclasses import dataclass

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
