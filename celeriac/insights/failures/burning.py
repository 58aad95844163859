"""Find roles whose attempts have begun to fail: within minutes, and compared with the role's own past.

The alert `fails_now`, `celeriac doctor`, `status`, the overview, the role's page and the API all use this one. An
attempt failed if its event has an error: it is retried, begins a new round, timed out, was given up, or took its
process down. A retry without an error, by which a handler waits for something, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.insights.why.spans import span
from celeriac.store.messages import pattern_of, quoted
from celeriac.store.shell import argument, word

#: Kinds of events by which an attempt failed.
KINDS = ("retry", "retry_round", "timeout", "failed", "worker_lost")

#: Minimum number of failed attempts for a judgement.
FEW = 10

#: Maximum number of events read (the newest of any kind: their index has none), and of a role's ended tasks.
MOST = 10_001

#: Most of so many newest attempts have to fail, too, so that a failure that has passed leaves the list.
NEWEST = 20

#: The share of failures at which a role without a past burns; the multiple of its own share at which one with a past
#: burns, and the bounds of that.
WITHOUT_PAST, LEAST, TIMES, CERTAIN = 0.5, 0.2, 4.0, 0.9

#: Minimum number of attempts in a past with which the present can be compared.
PAST = 100

#: A role does not burn if none of its attempts has failed for so long (seconds).
OVER = 600.0

#: Maximum number of a role's failures that are read for their error, and of their tasks that are looked up.
READ, LOOKED_UP = 1_000, 500

# The windows of five minutes and of an hour begin no earlier than the oldest event or task that is read, because before
# that either failures or successes are unknown. Roles that keep no successes have counted them by minutes.
SUSPECTS = text(f"""
WITH walked AS MATERIALIZED (
    SELECT role, task, at, kind, from_status, to_status, why IS NOT NULL AS said FROM celeriac.task_events
    WHERE at > statement_timestamp() - interval '1 hour' ORDER BY at DESC LIMIT :most
), failed AS MATERIALIZED (
    SELECT role, task, at, to_status FROM walked
    WHERE from_status = 'running' AND said AND kind = ANY (CAST(:kinds AS text[]))
        AND (CAST(:role AS text) IS NULL OR role = :role)
), suspects AS MATERIALIZED (
    SELECT f.role, max(f.at) AS last_at, count(DISTINCT f.task) AS tasks,
        count(*) FILTER (WHERE f.to_status = 'failed') AS given_up,
        coalesce(r.definition -> 'keep' IN ('null', '0'), false) AS forgets,
        (SELECT CASE WHEN count(*) >= :most THEN min(at) END FROM walked) AS reach
    FROM failed f LEFT JOIN celeriac.roles r ON r.role = f.role
    WHERE r.paused IS NOT TRUE GROUP BY f.role, r.definition HAVING count(*) >= :few
)
SELECT s.role, s.tasks, s.given_up, statement_timestamp() AS now, w.since AS since_5, hour.since AS since_60,
    CAST(extract(epoch FROM statement_timestamp() - s.last_at) AS double precision) AS silent,
    (SELECT count(*) FROM failed f WHERE f.role = s.role AND f.at >= w.since) AS failed_5,
    (SELECT count(*) FROM failed f WHERE f.role = s.role AND f.at >= hour.since) AS failed_60,
    e.completed_5 + coalesce(counted.completed_5, 0) AS completed_5,
    greatest(e.completed_60 + coalesce(counted.completed_60, 0), minutes.completed_60) AS completed_60,
    CASE WHEN s.forgets THEN (
        SELECT count(*) / nullif(count(*) + coalesce(counted.completed_1, 0), 0.0) FROM failed f
        WHERE f.role = s.role AND f.at >= date_trunc('minute', statement_timestamp()) - interval '1 minute')
    ELSE (
        SELECT avg(bad) FROM (
            SELECT bad FROM (
                (SELECT at, 1.0 AS bad FROM failed f WHERE f.role = s.role ORDER BY at DESC LIMIT :newest)
                UNION ALL
                (SELECT completed_at, 0.0 FROM celeriac.history
                WHERE role = s.role AND {LATELY}
                    AND status = 'completed' ORDER BY completed_at DESC LIMIT :newest)
            ) AS ended ORDER BY at DESC LIMIT :newest) AS newest) END AS newest,
    past.completed AS past_completed, past.failed AS past_failed
FROM suspects s CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) >= :most THEN min(completed_at) END AS reach FROM (
        SELECT completed_at FROM celeriac.history
        WHERE role = s.role AND completed_at > statement_timestamp() - interval '5 minutes' AND {LATELY}
        ORDER BY completed_at DESC LIMIT :most) AS h
) AS ended CROSS JOIN LATERAL (
    SELECT greatest(statement_timestamp() - interval '5 minutes', s.reach, ended.reach) AS since
) AS w CROSS JOIN LATERAL (
    SELECT greatest(statement_timestamp() - interval '1 hour', s.reach) AS since
) AS hour CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE completed_at >= w.since) AS completed_5, count(*) AS completed_60 FROM (
        SELECT completed_at, status FROM celeriac.history
        WHERE role = s.role AND completed_at >= hour.since AND {LATELY}
        ORDER BY completed_at DESC LIMIT :most) AS h
    WHERE status = 'completed' AND NOT s.forgets
) AS e CROSS JOIN LATERAL (
    SELECT CAST(sum(completed) FILTER (WHERE minute >= date_trunc('minute', w.since)) AS bigint) AS completed_5,
        CAST(sum(completed) AS bigint) AS completed_60, CAST(sum(completed) FILTER (
            WHERE minute >= date_trunc('minute', statement_timestamp()) - interval '1 minute') AS bigint) AS completed_1
    FROM celeriac.outcomes
    WHERE s.forgets AND role = s.role AND minute >= date_trunc('minute', hour.since)
) AS counted CROSS JOIN LATERAL (
    SELECT CAST(coalesce(sum(completed), 0) AS bigint) AS completed_60 FROM celeriac.minutes
    WHERE role = s.role AND minute >= hour.since
) AS minutes CROSS JOIN LATERAL (
    SELECT CAST(coalesce(sum(completed), 0) AS bigint) AS completed,
        CAST(coalesce(sum(failed + retried), 0) AS bigint) AS failed
    FROM celeriac.minutes
    WHERE role = s.role AND minute >= statement_timestamp() - interval '25 hours'
        AND minute < statement_timestamp() - interval '1 hour'
) AS past
""")

ERRORS = text("""
SELECT task, at, left(split_part(why, chr(10), 1), 500) AS message FROM (
    SELECT role, task, at, kind, from_status, why FROM celeriac.task_events
    WHERE at > statement_timestamp() - interval '1 hour' ORDER BY at DESC LIMIT :most) AS walked
WHERE role = :role AND from_status = 'running' AND why IS NOT NULL AND kind = ANY (CAST(:kinds AS text[]))
ORDER BY at DESC LIMIT :read
""")

# Only minutes with counts, the newest first.
MINUTES = text("""
SELECT minute, completed, failed + retried AS failed FROM celeriac.minutes
WHERE role = :role AND minute >= statement_timestamp() - interval '1 day' AND completed + failed + retried > 0
ORDER BY minute DESC
""")

HIT = text(f"""
SELECT account, created_at FROM unnest(CAST(:ids AS bigint[])) AS hit (id), LATERAL (
    (SELECT account, created_at FROM celeriac.tasks WHERE id = hit.id LIMIT 1)
    UNION ALL
    (SELECT account, NULL FROM celeriac.history
        WHERE id = hit.id AND {LATELY} LIMIT 1)
    LIMIT 1) AS task
""")

STARTED = text("""
SELECT started_at, version FROM celeriac.workers
WHERE queues ? coalesce((SELECT definition ->> 'queue' FROM celeriac.roles WHERE role = :role), :role)
    AND started_at BETWEEN CAST(:since AS timestamptz) - interval '10 minutes' AND CAST(:since AS timestamptz)
ORDER BY started_at DESC LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class Burning:
    """A role of which `failed` of `attempts` attempts failed within `window` seconds.

    `usual`: the share (0 to 1) on the day before, None if there were too few attempts. `error`: the pattern of the most
    frequent error; `same` of the `read` newest failures have it, and it began at `since`. `tasks`: how many are hit
    within the hour; `given_up` of them have failed for good. `accounts`: how many accounts the newest 500 of these
    tasks have; `account`: the only one, if it is one. `oldest`: seconds since the oldest unfinished one of these was
    enqueued. `worker_started_at`, `version`: those of a worker of its queue that started within the ten minutes before
    `since`.
    """

    role: str
    attempts: int
    failed: int
    window: float
    usual: float | None
    error: str
    same: int
    read: int
    since: datetime
    tasks: int
    given_up: int
    accounts: int
    account: str | None
    oldest: float | None
    worker_started_at: datetime | None
    version: str | None

    @property
    def sentence(self) -> str:
        """The alert's sentence, to be written after the role's name."""
        usual = "" if self.usual is None else f", {self.usual:.1%} the day before"
        most = "" if self.same == self.read else f" (most of them: {self.same:,} of {self.read:,})"
        who = f"account {self.account}" if self.account is not None else f"{self.accounts:,} accounts"
        who = "" if self.accounts == 0 else f" of {who}"
        oldest = "" if self.oldest is None else f", the oldest {span(self.oldest)} old"
        given_up = f", {self.given_up:,} given up" if self.given_up else ""
        new = self.worker_started_at
        started = "" if new is None else f"; a worker of it started at {_time(new)}"
        return (
            f"{self.failed:,} of {self.attempts:,} attempts failed in {span(self.window)}{usual}, "
            f"since {_time(self.since)}: {quoted(self.error)}{most}; "
            f"{self.tasks:,} tasks{who} are hit{given_up}{oldest}{started}"
        )

    @property
    def cure(self) -> str:
        role = argument(self.role)
        return (
            f"`celeriac failures list --role {word(self.role)} --since 3600` groups what was given up; "
            f"`celeriac roles pause {role}` keeps attempts from being used up until it is mended, "
            f"then `celeriac roles resume {role}`"
        )


def burning(connection: Connection, role: str | None = None) -> list[Burning]:
    """Return the roles that burn and are not paused, or only `role`; the one with most tasks hit comes first."""
    parameters = {"role": role, "most": MOST, "few": FEW, "newest": NEWEST, "kinds": list(KINDS)}
    suspects = connection.execute(SUSPECTS, parameters | lately(connection)).all()
    burns = [_described(connection, row, of) for row in suspects if (of := window_of(row)) is not None]
    return sorted(burns, key=lambda one: (-one.tasks, one.role))


@dataclass(frozen=True, slots=True)
class Window:
    """The window in which a role burns. `limit`: the share of failures above which it burns."""

    seconds: float
    failed: int
    completed: int
    limit: float


def window_of(row: Any) -> Window | None:
    """Return the shorter of the two windows in which the role burns, None if it burns in neither. Pure."""
    limit = limit_of(row.past_completed, row.past_failed)
    if row.silent > OVER or row.newest is None or float(row.newest) < limit:
        return None
    for failed, completed, since in (
        (row.failed_5, row.completed_5, row.since_5),
        (row.failed_60, row.completed_60, row.since_60),
    ):
        if failed >= FEW and failed / (failed + completed) >= limit:
            return Window((row.now - since).total_seconds(), failed, completed, limit)
    return None


def limit_of(completed: int, failed: int) -> float:
    """Return the share of failures above which a role burns, given its attempts of the day before. Pure."""
    usual = usual_of(completed, failed)
    return WITHOUT_PAST if usual is None else min(CERTAIN, max(LEAST, TIMES * usual))


def usual_of(completed: int, failed: int) -> float | None:
    attempts = completed + failed
    return failed / attempts if attempts >= PAST else None


def _described(connection: Connection, row: Row[Any], window: Window) -> Burning:
    parameters = {"role": row.role, "most": MOST, "kinds": list(KINDS), "read": READ}
    failures = connection.execute(ERRORS, parameters).all()
    errors = [pattern_of(failure.message) for failure in failures]
    ((error, same),) = Counter(errors).most_common(1)
    times = [failure.at for failure, its in zip(failures, errors, strict=True) if its == error]
    since = _began(connection.execute(MINUTES, {"role": row.role}).all(), times, window.limit)
    ids = list(dict.fromkeys(failure.task for failure in failures))[:LOOKED_UP]
    hit = connection.execute(HIT, {"ids": ids} | lately(connection)).all()
    accounts = {one.account for one in hit if one.account}
    created = [one.created_at for one in hit if one.created_at is not None]
    started = connection.execute(STARTED, {"role": row.role, "since": since}).one_or_none()
    return Burning(
        role=row.role, attempts=window.failed + window.completed, failed=window.failed, window=window.seconds,
        usual=usual_of(row.past_completed, row.past_failed), error=error, same=same,
        read=len(failures), since=since, tasks=row.tasks, given_up=row.given_up, accounts=len(accounts),
        account=next(iter(accounts)) if len(accounts) == 1 else None,
        oldest=(row.now - min(created)).total_seconds() if created else None,
        worker_started_at=None if started is None else started.started_at,
        version=None if started is None else started.version,
    )  # fmt: skip


def _began(minutes: Sequence[Any], times: Sequence[datetime], limit: float) -> datetime:
    """Return when this error began: its first occurrence in the unbroken run of failing minutes up to now.

    `minutes` and `times`: newest first. The minute in which it began may have more successes. A begin before the oldest
    of `times` is known to the minute only.
    """
    failing: datetime | None = None
    for minute in minutes:
        if minute.failed / (minute.completed + minute.failed) < limit / 2:
            times = [at for at in times if at >= minute.minute] or times[:1]
            break
        failing = minute.minute
    first = times[-1]
    return first if failing is None or first < failing + timedelta(minutes=1) else failing


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S %Z}".rstrip()
