"""Find roles whose tasks run far longer now than before, usually because an endpoint is slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, text

from celeriac.insights.fleet.resources import is_sharing
from celeriac.insights.history.histogram import quantile
from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.insights.why.spans import span

#: Maximum number of a role's newest runs that are judged, and the minimum number for a judgement.
NEWEST, FEW = 20, 10

#: Judged runs are of the last `SOON` seconds, or twice the bound if that is more; if these are too few and something
#: hangs, of the last `LONG` seconds.
SOON, LONG = 300, 86_400

#: A role is slower if half of them took so many times as long as nine of ten did before, and so many seconds more.
TIMES, MORE = 3.0, 1.0

#: Minimum number of runs in a past with which the present can be compared.
PAST = 100

#: Minutes of the day before that are read first, and the maximum number of roles whose whole day is read.
SAMPLED, ROLES = 35, 20

#: Maximum number of a role's ended runs, and of its tickets under way, that are read.
ENDED, UNDER_WAY = 200, 10_000

# Tasks that one process ran one by one each count as the mean of their ticket, as in `celeriac.minutes`. If older runs
# are not read, that begins no earlier than the oldest one read ended.
_ENDED = f"""
    SELECT extract(epoch FROM statement_timestamp() - completed_at)::double precision AS ago,
        CAST(extract(epoch FROM ended_at - CASE WHEN n > 1 THEN greatest(started_at, since) ELSE started_at END)
            AS double precision) / n AS seconds
    FROM (
        SELECT completed_at, started_at, max(completed_at) OVER ticket AS ended_at, count(*) OVER ticket AS n,
            CASE WHEN count(*) OVER () = :ended THEN min(completed_at) OVER () END AS since
        FROM (
            SELECT id, worker_id, worker_pid, started_at, completed_at FROM celeriac.history
            WHERE role = r.role AND {LATELY}
                AND status IN ('completed', 'failed') AND started_at IS NOT NULL
            ORDER BY completed_at DESC LIMIT :ended) AS h
        WINDOW ticket AS (
            PARTITION BY worker_id, worker_pid, started_at, CASE WHEN {is_sharing("h.worker_id")} THEN id END)
    ) AS in_tickets"""

# A ticket under way has taken at least its age, shared by its tasks (`n`) unless they run side by side.
_UNDER_WAY = f"""
    SELECT CAST(extract(epoch FROM statement_timestamp() - k.started_at) AS double precision) AS age,
        CASE WHEN run.shares THEN 1 ELSE greatest(cardinality(k.ids), 1) END AS n
    FROM celeriac.tickets k CROSS JOIN LATERAL (SELECT {is_sharing("k.worker_id")} AS shares) AS run
    CROSS JOIN LATERAL generate_series(1, CASE WHEN run.shares THEN cardinality(k.ids) ELSE 1 END)
    WHERE k.role = r.role AND k.started_at IS NOT NULL ORDER BY k.started_at LIMIT :under_way"""

# Roles half of whose newest runs may exceed `more`. Sampled minutes lie 41 apart, to fall on each minute of an hour.
CANDIDATES = text(f"""
SELECT r.role, sample.runs AS sample FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE seconds > :more) AS slow FROM ({_ENDED}) AS e
) AS ended CROSS JOIN LATERAL (
    SELECT count(*) AS slow FROM ({_UNDER_WAY}) AS u WHERE age / n > :more
) AS under_way CROSS JOIN LATERAL (
    SELECT array_agg(n ORDER BY place) AS runs FROM (
        SELECT place, sum(n) AS n FROM celeriac.minutes, unnest(runs) WITH ORDINALITY AS u (n, place)
        WHERE role = r.role AND minute = ANY (ARRAY(
            SELECT date_trunc('minute', statement_timestamp()) - interval '1 hour' - i * interval '41 minutes'
            FROM generate_series(1, :sampled) AS i)) GROUP BY place) AS s
) AS sample
WHERE NOT r.paused AND (2 * (ended.slow + under_way.slow) >= :few OR ended.n < :few AND under_way.slow > 0)
""")

RUNS = text(f"""
SELECT r.role, ended.*, under_way.* FROM unnest(CAST(:roles AS text[])) AS r (role) CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(ago), '{{}}') AS ago, coalesce(array_agg(seconds), '{{}}') AS seconds
    FROM ({_ENDED}) AS e
) AS ended CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(age), '{{}}') AS ages, coalesce(array_agg(n), '{{}}') AS sizes FROM ({_UNDER_WAY}) AS u
) AS under_way
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


@dataclass(frozen=True, slots=True)
class LateRuns:
    """A role's runs. `ended`: how long ago (seconds) each ended, and how long it took; `under_way`: each ticket's age
    and how many tasks share it.
    """

    role: str
    ended: Sequence[tuple[float, float]]
    under_way: Sequence[tuple[float, int]]

    def newest(self, bound: float) -> list[tuple[float, bool]]:
        """Return how long each of the newest runs takes, and whether it has not ended; none without enough of them.

        A run is judged when it ends, or once it has taken longer than `bound`, whichever comes first. So each counts
        once, whether or not it has ended, and those that happen to be under way, which are the long ones, do not count
        for more than others. Pure.
        """
        judged = [(ago + max(0.0, seconds - bound), seconds, False) for ago, seconds in self.ended]
        judged += [(age - bound * n, age / n, True) for age, n in self.under_way if age > bound * n]
        judged.sort()
        recent = [one for one in judged if one[0] <= max(SOON, 2 * bound)]
        if len(recent) < FEW and any(is_under_way for *_, is_under_way in judged):
            recent = [one for one in judged if one[0] <= LONG]
        return [(seconds, is_under_way) for _, seconds, is_under_way in recent[:NEWEST]] if len(recent) >= FEW else []

    def half(self, bound: float) -> float:
        """Return what half of the newest runs take and more, judged by this bound; 0 without enough of them."""
        return median(seconds for seconds, _ in newest) if (newest := self.newest(bound)) else 0.0


def slower(connection: Connection) -> list[Slower]:
    """Return the roles that are slower than in their own past, the slowest first."""
    limits = {"ended": ENDED, "under_way": UNDER_WAY}
    parameters = limits | {"few": FEW, "more": MORE, "sampled": SAMPLED}
    candidates = connection.execute(CANDIDATES, parameters | lately(connection, SOON))
    least = {row.role: least_bound(row.sample) for row in candidates}
    halves = [(runs.half(least[runs.role]), runs) for runs in _runs(connection, least, limits)]
    suspects = sorted((one for one in halves if one[0] > least[one[1].role]), key=lambda one: -one[0])
    judged = [slower_of(runs, _usual(connection, runs.role)) for _, runs in suspects[:ROLES]]
    return sorted((one for one in judged if one is not None), key=lambda one: -one.now / one.usual)


def _runs(connection: Connection, roles: Iterable[str], limits: dict[str, int]) -> list[LateRuns]:
    names = [*roles]
    rows = connection.execute(RUNS, limits | {"roles": names} | lately(connection, LONG)) if names else ()
    return [
        LateRuns(row.role, [*zip(row.ago, row.seconds, strict=True)], [*zip(row.ages, row.sizes, strict=True)])
        for row in rows
    ]


def least_bound(sample: Sequence[int] | None) -> float:
    """Return the least (seconds) that half of the newest runs must take to be slower than before. Pure."""
    half = quantile([int(n) for n in sample], 0.5) if sample and sum(sample) >= FEW else None
    return max(MORE, TIMES * (half or 0.0))


def _usual(connection: Connection, role: str) -> float | None:
    """Return how long (seconds) nine of ten runs took up to; None if there is no past to compare with."""
    for past in (DAY, HOUR):
        numbers = connection.execute(HISTOGRAM, {"role": role, **past}).scalar_one()
        if numbers and sum(numbers) >= PAST:
            return quantile([int(n) for n in numbers], 0.9)
    return None


def slower_of(runs: LateRuns, usual: float | None) -> Slower | None:
    """Judge a role by its runs and what was usual (seconds) before. Pure."""
    if usual is None:
        return None
    bound = max(TIMES * usual, usual + MORE)
    newest = runs.newest(bound)
    if (now := runs.half(bound)) <= bound:
        return None
    return Slower(runs.role, now, usual, len(newest), sum(is_under_way for _, is_under_way in newest))
