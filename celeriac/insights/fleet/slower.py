"""Find roles whose tasks run far longer now than before, usually because an endpoint is slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, text

from celeriac.insights.history.histogram import quantile
from celeriac.insights.why.spans import span

#: How many of a role's newest runs are read, with those under way; with fewer than `FEW` there is no judgement.
NEWEST, FEW = 20, 10

#: A role is slower if half of its newest runs took so many times as long as nine of ten did before, and so many seconds
#: more.
TIMES, MORE = 3.0, 1.0

#: So many runs make a past that can be compared with.
PAST = 100

#: So many minutes of the day before are read first, and the whole day of so many roles at most.
SAMPLED, ROLES = 35, 20

# As in the minutes, tasks that shared a ticket each count with its mean. A ticket under way has taken at least its age,
# divided by its tasks. The sampled minutes are 41 apart, so that they fall on each minute of an hour.
RUNS = text("""
SELECT r.role, newest.runs, newest.under_way, sample.runs AS sample FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT array_agg(seconds ORDER BY at DESC) AS runs, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS half,
        CAST(count(*) FILTER (WHERE is_under_way) AS integer) AS under_way
    FROM (
        (SELECT statement_timestamp() AS at, true AS is_under_way,
            CAST(extract(epoch FROM statement_timestamp() - started_at) AS double precision)
                / greatest(cardinality(ids), 1) AS seconds
        FROM celeriac.tickets WHERE role = r.role AND started_at IS NOT NULL ORDER BY claimed_at LIMIT :newest)
        UNION ALL
        (SELECT completed_at, false,
            CAST(extract(epoch FROM max(completed_at) OVER ticket - started_at) AS double precision)
                / count(*) OVER ticket
        FROM (
            SELECT worker_id, worker_pid, started_at, completed_at FROM celeriac.history
            WHERE role = r.role AND completed_at > statement_timestamp() - interval '5 minutes'
                AND status IN ('completed', 'failed') AND started_at IS NOT NULL
            ORDER BY completed_at DESC LIMIT 10 * :newest) AS h
        WINDOW ticket AS (PARTITION BY worker_id, worker_pid, started_at))
        ORDER BY at DESC LIMIT :newest
    ) AS run
) AS newest CROSS JOIN LATERAL (
    SELECT array_agg(n ORDER BY place) AS runs FROM (
        SELECT place, sum(n) AS n FROM celeriac.minutes, unnest(runs) WITH ORDINALITY AS u (n, place)
        WHERE role = r.role AND minute = ANY (ARRAY(
            SELECT date_trunc('minute', statement_timestamp()) - interval '1 hour' - i * interval '41 minutes'
            FROM generate_series(1, :sampled) AS i)) GROUP BY place) AS s
) AS sample
WHERE NOT r.paused AND cardinality(newest.runs) >= :few AND newest.half > :more
""")

HISTOGRAM = text("""
SELECT array_agg(n ORDER BY place) FROM (
    SELECT place, sum(n) AS n FROM celeriac.minutes, unnest(runs) WITH ORDINALITY AS u (n, place)
    WHERE role = :role AND minute >= statement_timestamp() - :begin * interval '1 minute'
        AND minute < statement_timestamp() - :end * interval '1 minute' GROUP BY place) AS d
""")

#: The past (minutes ago): the day before this hour, or, for a younger role, this hour except its last ten minutes.
DAY, HOUR = {"begin": 25 * 60, "end": 60}, {"begin": 60, "end": 10}


@dataclass(frozen=True, slots=True)
class Slower:
    """A slower role: half of its newest runs took `now` seconds or more; nine of ten took up to `usual` before.
    `under_way`: how many of the newest `runs` have not ended.
    """

    role: str
    now: float
    usual: float
    runs: int
    under_way: int

    @property
    def sentence(self) -> str:
        return (
            f"half of its newest {self.runs} runs take {span(self.now)} and more, nine of ten took up to "
            f"{self.usual:.3g} s before; {self.under_way} of them have not ended"
        )


def slower(connection: Connection) -> list[Slower]:
    """Return the roles that are slower than in their own past, the slowest first."""
    parameters = {"newest": NEWEST, "few": FEW, "more": MORE, "sampled": SAMPLED}
    rows = connection.execute(RUNS, parameters).all()
    suspects = sorted(
        (row for row in rows if grown_by(row.runs, row.sample) > TIMES), key=lambda row: -median(row.runs)
    )
    judged = [slower_of(row.role, row.runs, row.under_way, _usual(connection, row.role)) for row in suspects[:ROLES]]
    return sorted((one for one in judged if one is not None), key=lambda one: -one.now / one.usual)


def grown_by(runs: Sequence[float], sample: Sequence[int] | None) -> float:
    """Return how many times as long as half of a sample of the day before these runs take: an upper bound of how much
    slower the role is; infinite without a sample. Pure.
    """
    half = quantile([int(n) for n in sample], 0.5) if sample and sum(sample) >= FEW else None
    return median(runs) / half if half else math.inf


def _usual(connection: Connection, role: str) -> float | None:
    """Return how long (seconds) nine of ten runs took up to; None if there is no past to compare with."""
    for past in (DAY, HOUR):
        numbers = connection.execute(HISTOGRAM, {"role": role, **past}).scalar_one()
        if numbers and sum(numbers) >= PAST:
            return quantile([int(n) for n in numbers], 0.9)
    return None


def slower_of(role: str, runs: Sequence[float], under_way: int, usual: float | None) -> Slower | None:
    """Judge a role by its newest runs (seconds) and what was usual before. Pure."""
    if usual is None:
        return None
    now = median(runs)
    return Slower(role, now, usual, len(runs), under_way) if now > TIMES * usual and now > usual + MORE else None
