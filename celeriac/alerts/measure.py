"""What the rules compare: values of roles, schedules, workers, Redis and Postgres.

Each group is read by itself. One that cannot be read leaves its alerts as they are: nobody knows better.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from celeriac.alerts.rules import Measured, Rule, evaluate, measure_of
from celeriac.insights.failures.burning import burning
from celeriac.insights.fairness import rounds
from celeriac.insights.fleet import left_ready, watched
from celeriac.insights.why.blockers import blockers
from celeriac.store.failures import log_error
from celeriac.store.plans import lookups

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: A rate says nothing of fewer tasks than this.
SAMPLES = 20

#: What waits is counted to here in each room, or to one more than the setting, at most to a million; and so many of the
#: newest tell how many fail.
COUNTED, MOST_COUNTED, NEWEST = 10_000, 1_000_000, 10_000

Group = Callable[["Celeriac", Connection], Iterable[Measured]]


def _roles(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    most = min(max(COUNTED, int(app.settings.alert_queue_depth)), MOST_COUNTED) + 1
    with lookups(connection):
        rows = watched.of_roles(connection, samples=SAMPLES, most=most, newest=NEWEST)
    names = ("queued", "failed_rate", "longest_running", "unserved")
    return [Measured(name, row["role"], row[name]) for row in rows for name in names if row[name] is not None]


def _burning(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("failing_now", one.role, one.tasks, sentence=one.sentence) for one in burning(connection)]


def _oldest(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = watched.oldest_ready(connection)
        left = left_ready.left(connection, {row.role: row.seconds for row in rows}, COUNTED)
    yield from (Measured("oldest_ready", row.role, row.seconds, row.objective) for row in rows)
    yield from (Measured("left_ready", *one) for one in left.items())


def _schedules(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    yield from (Measured("late", row.name, row.late) for row in watched.late_schedules(connection))
    yield from (Measured("skipped", row.name, row.skips) for row in watched.skipping_schedules(connection))
    if (silence := watched.beat_silence(connection)) is not None:
        yield Measured("beat_silence", "beat", silence)


def _workers(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    silent = watched.silent_workers(connection, app.settings.alert_heartbeat)
    yield from (Measured("heartbeat_age", row.worker_id, row.age) for row in silent)
    yield from (Measured("drain_overdue", row.worker_id, row.overdue) for row in watched.draining_on(connection))


def _redis(app: Celeriac, _: Connection) -> Iterable[Measured]:
    """Whether it answers this process: others may be better off."""
    return [Measured("redis_silent", "Redis", 0.0 if app.publisher.answers() else 1.0)]


def _trouble(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = watched.trouble(connection)
    yield from (Measured("lost_tickets", row.role, row.lost) for row in rows)
    yield from (Measured("late_finishes", row.role, row.late) for row in rows)


def _fairness(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("fairness_lag", *one) for one in rounds.lags(connection).items()]


def _postgres(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        age = watched.oldest_transaction(connection)
    return [] if age is None else [Measured("transaction_age", "Postgres", age)]


def _locks(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    """The oldest is told; the doctor tells all of them."""
    known = [one for one in blockers(connection) if one.seconds is not None]
    return [Measured("lock_held", "Postgres", b.seconds or 0.0, sentence=f"{b.sentence}; {b.cure}") for b in known[:1]]


def _letters(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("letters", "plain Celery", watched.letters(connection))]


#: What reads which measures.
GROUPS: Mapping[Group, Sequence[str]] = {
    _roles: ("queued", "failed_rate", "longest_running", "unserved"),
    _burning: ("failing_now",),
    _oldest: ("oldest_ready", "left_ready"),
    _schedules: ("late", "skipped", "beat_silence"),
    _workers: ("heartbeat_age", "drain_overdue"),
    _redis: ("redis_silent",),
    _trouble: ("lost_tickets", "late_finishes"),
    _fairness: ("fairness_lag",),
    _postgres: ("transaction_age",),
    _locks: ("lock_held",),
    _letters: ("letters",),
}


def measure(app: Celeriac, connection: Connection, rules: Iterable[Rule]) -> dict[str, list[Measured]]:
    """By measure, the values that these rules need; what could not be read is absent. Within a transaction."""
    wanted = {measure_of(rule) for rule in rules}
    measured: dict[str, list[Measured]] = {}
    for group, names in GROUPS.items():
        if wanted & {*names} and (values := _read(app, connection, group)) is not None:
            measured |= {name: [one for one in values if one.measure == name] for name in names}
    for rule in rules:
        if not isinstance(rule.measure, str) and (values := _read(app, connection, _of_application(rule))) is not None:
            measured[rule.name] = values
    return measured


def _of_application(rule: Rule) -> Group:
    def read(app: Celeriac, connection: Connection) -> Iterable[Measured]:
        """Raises for what could not be judged or written later on, with all the others."""
        assert not isinstance(rule.measure, str)
        values = [Measured(rule.name, subject, float(value)) for subject, value in rule.measure(connection).items()]
        above = evaluate([rule], values, app.settings)
        if not all(_is_told_of(one.subject) and math.isfinite(one.value) for one in values):
            raise ValueError(f"the measure of {rule.name!r}: give each subject, a short text, a finite number")
        if not all(_is_text(one.says) for one in above):
            raise ValueError(f"the sentence of {rule.name!r} is no text that Postgres takes")
        return values

    return read


def _is_told_of(subject: object) -> bool:
    """Whether it fits the key of an alert."""
    return isinstance(subject, str) and len(subject) <= 500 and _is_text(subject)


def _is_text(said: str) -> bool:
    return "\0" not in said and not any("\ud800" <= letter <= "\udfff" for letter in said)


def _read(app: Celeriac, connection: Connection, group: Group) -> list[Measured] | None:
    """None, and a line in the log, for one that cannot be read. Raises what says that this connection is lost.

    An application's function may speak with other databases, whose errors look the same.
    """
    connection.exec_driver_sql("SAVEPOINT measured")
    try:
        values = list(group(app, connection))
    except Exception as error:
        if connection.invalidated:
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT measured")
        log_error(logger, error, "What alerts are about could not be read")
        return None
    connection.exec_driver_sql("RELEASE SAVEPOINT measured")
    return values
