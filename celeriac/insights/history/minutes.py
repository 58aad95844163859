"""Sums over the counted minutes, for charts; `celeriac.repair.minutes` explains each count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.insights.history.histogram import BUCKETS, quantile

#: The spans that can be requested, with their length and the length of a step (seconds).
SPANS: Mapping[str, tuple[int, int]] = {"1h": (3_600, 60), "24h": (86_400, 900), "7d": (604_800, 7_200)}

#: Maximum number of rows, one a minute and role, that are read for all roles together: the newest ones.
MOST = 500_000

UNTIL = text("SELECT until FROM celeriac.minutes_until")

# The newest minute that would not be read in full.
BEYOND = text("""
SELECT minute FROM celeriac.minutes WHERE minute >= :since AND minute < :until
ORDER BY minute DESC LIMIT 1 OFFSET :most
""")

_SUMS = """
SELECT greatest(date_bin(:step * interval '1 second', minute, CAST(:origin AS timestamptz)),
        CAST(:since AS timestamptz)) AS at,
    CAST(sum(enqueued) AS bigint) AS enqueued, CAST(sum(started) AS bigint) AS started,
    CAST(sum(completed) AS bigint) AS completed, CAST(sum(failed) AS bigint) AS failed,
    CAST(sum(cancelled) AS bigint) AS cancelled, CAST(sum(retried) AS bigint) AS retried,
    bool_or(enqueued IS NULL) AS is_partial
FROM celeriac.minutes"""

FLOW = text(f"{_SUMS} WHERE minute >= :since AND minute < :until GROUP BY 1 ORDER BY 1")

FLOW_OF = text(f"{_SUMS} WHERE role = :role AND minute >= :since AND minute < :until GROUP BY 1 ORDER BY 1")

ENDED = text("""
SELECT role, minute AS at, completed, failed FROM celeriac.minutes
WHERE minute >= :since AND minute < :until AND completed + failed > 0
""")

LENGTHS = text("""
SELECT role, n, CAST(sum(wait) AS bigint) AS waits, CAST(sum(run) AS bigint) AS runs
FROM celeriac.minutes, unnest(waits, runs) WITH ORDINALITY AS u (wait, run, n)
WHERE minute >= :since AND minute < :until
GROUP BY role, n
""")

AGAIN = text("""
SELECT CAST(coalesce(sum(completed_again), 0) AS bigint), CAST(coalesce(sum(failed_again), 0) AS bigint)
FROM celeriac.minutes WHERE minute >= :since AND minute < :until
""")

AGAIN_OF = text(f"{AGAIN.text.rstrip()} AND role = :role")

#: The span (seconds) of figures that have none of their own.
HOUR = 3_600


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a flow: the counts from `at` on. None: unknown for all roles."""

    at: datetime
    enqueued: int | None = 0
    started: int | None = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow. `steps`: all of them, of `step` seconds each; the last ends at `until`, up to which minutes are counted.

    `is_partial`: the sums of enqueued and started tasks lack roles that keep no successes, for which these are unknown.
    `is_cut`: there were too many rows to read, so the span's beginning is left out; the first step may be shorter.
    """

    until: datetime
    step: int
    steps: list[Step]
    is_partial: bool
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """Times that tasks waited before they started, and that they ran, as counts in `histogram.BOUNDS`."""

    waits: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    runs: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def wait(self, share: float) -> float | None:
        return quantile(self.waits, share)

    def run(self, share: float) -> float | None:
        return quantile(self.runs, share)


@dataclass(frozen=True, slots=True)
class Retries:
    """Tasks that were tried more than once: how many completed, and how many failed."""

    completed: int
    failed: int


def flow(connection: Connection, span: str = "1h", role: str | None = None) -> Flow:
    """Return the counts of a span of `SPANS`, for one role or all. Raises BadValue."""
    if span not in SPANS:
        raise BadValue(f"span={span!r:.50}: give one of {', '.join(SPANS)}")
    seconds, step = SPANS[span]
    asked = _span(connection, seconds)
    origin = since = asked["since"]
    if role is None and (beyond := connection.execute(BEYOND, asked | {"most": MOST}).scalar_one_or_none()):
        since = beyond + timedelta(minutes=1)
    statement, of = (FLOW, {}) if role is None else (FLOW_OF, {"role": role})
    rows = connection.execute(statement, asked | of | {"step": step, "origin": origin, "since": since}).all()
    steps = {row.at: Step(*row[:-1]) for row in rows}
    times = [origin + timedelta(seconds=n * step) for n in range(seconds // step)]
    begins = [max(at, since) for at in times if at + timedelta(seconds=step) > since]
    is_partial = any(row.is_partial for row in rows)
    return Flow(asked["until"], step, [steps.get(at, Step(at)) for at in begins], is_partial, since > origin)


def last_hour(connection: Connection) -> dict[str, list[Step]]:
    """Return, for each role with ended tasks, a step for each of the last hour's minutes."""
    asked = _span(connection, HOUR)
    steps: dict[str, list[Step]] = {}
    for row in connection.execute(ENDED, asked):
        if row.role not in steps:
            steps[row.role] = [Step(asked["since"] + timedelta(minutes=n)) for n in range(HOUR // 60)]
        nth = int((row.at - asked["since"]).total_seconds()) // 60
        steps[row.role][nth] = Step(row.at, completed=row.completed, failed=row.failed)
    return steps


def lengths(connection: Connection) -> dict[str, Lengths]:
    """Return the last hour's histograms by role; roles without any are left out."""
    of_roles: dict[str, Lengths] = {}
    for row in connection.execute(LENGTHS, _span(connection, HOUR)):
        of_role = of_roles.setdefault(row.role, Lengths())
        of_role.waits[row.n - 1], of_role.runs[row.n - 1] = row.waits or 0, row.runs or 0
    return of_roles


def together(of_roles: Sequence[Lengths]) -> Lengths:
    return Lengths(
        [sum(n) for n in zip(*(one.waits for one in of_roles), strict=True)] or [0] * BUCKETS,
        [sum(n) for n in zip(*(one.runs for one in of_roles), strict=True)] or [0] * BUCKETS,
    )


def retries(connection: Connection, role: str | None = None) -> Retries:
    """Return how tasks tried more than once ended within the last hour, of all roles or one."""
    statement, of = (AGAIN, {}) if role is None else (AGAIN_OF, {"role": role})
    return Retries(*connection.execute(statement, _span(connection, HOUR) | of).one())


def _span(connection: Connection, seconds: int) -> dict[str, Any]:
    until: datetime = connection.execute(UNTIL).scalar_one()
    return {"since": until - timedelta(seconds=seconds), "until": until}
