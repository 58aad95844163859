"""The figures in SQL, each count with a bound: neither backlog nor history changes the cost of a scrape."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from celeriac.insights.failures.burning import burning
from celeriac.insights.failures.failing_accounts import failing_accounts
from celeriac.insights.fairness import rounds, shares
from celeriac.insights.fairness.locks import stuck
from celeriac.insights.fleet import condition, figures, unfit, watched
from celeriac.insights.fleet.slower import slower
from celeriac.insights.fleet.slowness import no_room, slow_commits, slowness
from celeriac.insights.history.sweeps import undone
from celeriac.insights.tasks import counting
from celeriac.insights.why.blockers import in_the_way
from celeriac.metrics.catalogue import BY_NAME, COUNTED, OUTCOMES, STATES, TABLES
from celeriac.store.migrate import read_only, standing_of
from celeriac.store.role_names import is_built_in

logger = logging.getLogger(__name__)

#: Seconds after the first group within which further groups begin: a slow Postgres costs each group its time limits.
BUDGET = 5.0

#: Maximum numbers: a role's last tasks, its accounts, its accounts and priorities for the longest wait, the outbox.
RECENT_TASKS, ACCOUNTS, LEVELS, OUTBOX = 1_000, 100, 1_000, 1_000

#: Maximum number of schedules that are exported, by name: users choose these names.
SCHEDULES_TOLD = 200

#: The column of `celeriac.backlog` for each word in a metric's name.
PLACES = {
    "ready": "ready", "delayed": "later", "locked": "behind_lock", "parked": "parked", "awaiting": "members",
    "claimed": "claimed", "running": "running", "stale": "stale",
}  # fmt: skip

#: The states among them in which tasks wait.
WAIT = ("ready", "delayed", "locked", "parked", "awaiting", "claimed")


@dataclass
class Samples:
    """The samples by metric: for each set of label values its value; for a histogram its counts, and their sum."""

    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    histograms: dict[str, dict[tuple[str, ...], tuple[Sequence[int], float]]] = field(default_factory=dict)

    def put(self, name: str, value: Any, *labels: str) -> None:
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), name
        self.values.setdefault(name, {})[labels] = float(value or 0)

    def count(self, name: str, counts: Sequence[int] | None, seconds: float | None, *labels: str) -> None:
        """Put a histogram's counts, one for each of the metric's bounds and one more; None if there are none yet."""
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), name
        self.histograms.setdefault(name, {})[labels] = (counts or [0] * (len(metric.bounds) + 1), seconds or 0.0)

    def add(self, others: Samples) -> None:
        """Put these samples beside those there are."""
        for name, values in others.values.items():
            self.values.setdefault(name, {}).update(values)
        for name, counts in others.histograms.items():
            self.histograms.setdefault(name, {}).update(counts)


#: Figures by role, by metric.
ByRole = Mapping[str, Mapping[str, float]]


def compared(connection: Connection) -> ByRole:
    """Read the figures that compare with the past; failures of an hour and roles make the cost. In a transaction."""
    return {
        "account_tasks_failing": {one.role: one.tasks for one in reversed(failing_accounts(connection))},
        "runs_slower_ratio": {one.role: one.now / one.usual for one in slower(connection)},
    }


@dataclass(slots=True)
class Scrape:
    """A scrape's connection, in a transaction, and its parameters.

    `rules`: names of those that may fire. `wait`: the objective (seconds) of roles without their own. `beside`: returns
    what was `compared`, lately. `migrations`: where those of the application lie. `roles`: the exported ones, None
    before they are known.
    """

    connection: Connection
    rules: Iterable[str]
    wait: float
    beside: Callable[[], ByRole]
    migrations: Path | None = None
    roles: set[str] | None = None

    def by_role(self, samples: Samples, values: Mapping[str, Mapping[str, float]]) -> None:
        for name, of in values.items():
            for role in self.roles or ():
                samples.put(name, of.get(role, 0), role)


def read(scrape: Scrape) -> Samples:
    """Read all figures, each group by itself: one that cannot be read is named, and hides no other.

    In a transaction that reads, by look-ups. Raises SQLAlchemyError if the connection is lost.
    """
    samples, until = Samples(), time.monotonic() + BUDGET
    for group in READERS:
        can_read = time.monotonic() <= until and (scrape.roles is not None or group not in OF_ROLES)
        part = _read(scrape, group) if can_read else None
        samples.put("group_unread", part is None, group)
        samples.add(part or Samples())
    return samples


def _read(scrape: Scrape, group: str) -> Samples | None:
    """Return a group's samples; None, after a log line, if it cannot be read."""
    samples, connection = Samples(), scrape.connection
    connection.exec_driver_sql("SAVEPOINT group_of_figures")
    try:
        READERS[group](scrape, samples)
    except SQLAlchemyError as error:
        if connection.invalidated:
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT group_of_figures")
        why = str(getattr(error, "orig", error)).partition("\n")[0]
        logger.warning("Figures could not be read, those of %s: %s", group, why)
        return None
    connection.exec_driver_sql("RELEASE SAVEPOINT group_of_figures")
    return samples


def _rooms(scrape: Scrape, samples: Samples) -> None:
    """Put each role's counts. The exported roles: registered ones, built-in ones only if they have work."""
    rows = counting.backlogs(scrape.connection, COUNTED + 1)
    roles = {row["role"]: row for row in rows if not is_built_in(row["role"]) or any(map(row.get, PLACES.values()))}
    for role, row in roles.items():
        for place, counted in PLACES.items():
            samples.put(f"tasks_{place}", row[counted], role)
        samples.put("slots_free", max(0, row["window"] - row["claimed"] - row["running"]), role)
    waiting = {role: sum(row[PLACES[place]] for place in WAIT) for role, row in roles.items()}
    flooded = {one.role for one in shares.floods(scrape.connection, [role for role, n in waiting.items() if n])}
    for role, n in waiting.items():
        samples.put("tasks_of_a_flood", n if role in flooded else 0, role)
    scrape.roles = set(roles)


def _served(scrape: Scrape, samples: Samples) -> None:
    for row in figures.served(scrape.connection, scrape.wait):
        if (role := row["role"]) in (scrape.roles or ()):
            samples.put("wait_objective_seconds", row["objective"], role)
            samples.put("window", row["window"], role)
            samples.put("role_paused", row["paused"], role)
            samples.put("running_oldest_seconds", row["running_oldest"], role)
            samples.put("worker_silence_seconds", row["silence"], role)
            samples.put("worker_slots", row["slots"], role)
            samples.put("workers_idle", row["slots"] - row["busy"], role)
            for state in STATES:
                samples.put("workers", row[state], role, state)


def _ended(scrape: Scrape, samples: Samples) -> None:
    roles = scrape.roles or set()
    for row in figures.recent(scrape.connection, RECENT_TASKS):
        for outcome in OUTCOMES if row["role"] in roles else ():
            samples.put("recent_tasks", row[outcome], row["role"], outcome)
    failing = {one.role: one.tasks for one in burning(scrape.connection)}
    scrape.by_role(samples, {"tasks_failing_now": failing})


def _trouble(scrape: Scrape, samples: Samples) -> None:
    trouble = watched.trouble(scrape.connection)
    lost, late = {row.role: row.lost for row in trouble}, {row.role: row.late for row in trouble}
    scrape.by_role(samples, {"tickets_lost": lost, "late_finishes": late})


def _waiting(scrape: Scrape, samples: Samples) -> None:
    connection = scrape.connection
    oldest = {row.role: row.seconds for row in watched.oldest_ready(connection, LEVELS)}
    accounts = figures.accounts_waiting(connection, ACCOUNTS)
    scrape.by_role(samples, {"accounts_waiting": accounts, "oldest_ready_seconds": oldest})
    left = watched.left_ready(connection, oldest, COUNTED + 1)
    scrape.by_role(samples, {"tasks_left_ready": left})


def _fairness(scrape: Scrape, samples: Samples) -> None:
    lags = rounds.lags(scrape.connection, rounds.in_line(scrape.connection))
    scrape.by_role(samples, {"fairness_lag_rounds": lags})


def _compared(scrape: Scrape, samples: Samples) -> None:
    scrape.by_role(samples, scrape.beside())


def _in_all(scrape: Scrape, samples: Samples) -> None:
    """Put the totals counted by the minute, and by the passes themselves."""
    for row in figures.in_all(scrape.connection):
        if (role := row.role) in (scrape.roles or ()):
            for outcome in OUTCOMES:
                samples.put("tasks_ended_total", getattr(row, outcome), role, outcome)
            samples.put("tasks_retried_total", row.retried, role)
            samples.put("passes_total", row.passes, role)
            if not row.forgets:
                samples.put("tasks_enqueued_total", row.enqueued, role)
                samples.count("wait_seconds", row.waits, row.wait_seconds, role)
                samples.count("run_seconds", row.runs, row.run_seconds, role)
    samples.put("counts_behind_seconds", figures.counts_behind(scrape.connection))


def _schedules(scrape: Scrape, samples: Samples) -> None:
    for row in figures.schedules(scrape.connection, SCHEDULES_TOLD):
        samples.put("schedule_lateness_seconds", row.late, row.name)
        samples.put("schedule_skips_total", row.skips, row.name)
    for one in undone(scrape.connection):
        if one.enabled:
            samples.put("sweep_fails", 1, one.name)
    samples.put("beats", figures.live_beats(scrape.connection))
    samples.put("beat_tick_age_seconds", watched.beat_silence(scrape.connection))


def _intake(scrape: Scrape, samples: Samples) -> None:
    samples.put("dead_letters", watched.letters(scrape.connection))
    outbox = figures.in_outbox(scrape.connection, OUTBOX)
    samples.put("outbox_tasks", 0 if outbox is None else outbox.n)
    samples.put("outbox_oldest_seconds", 0.0 if outbox is None else outbox.seconds)
    samples.put("tasks_estimated", figures.tasks_estimated(scrape.connection))


def _locks(scrape: Scrape, samples: Samples) -> None:
    """Put who locks tables or rows. INVARIANT: once a table has been locked for two seconds no table is read."""
    met = in_the_way(scrape.connection)
    for name, holds_tables in (("lock_held_seconds", False), ("table_locked_seconds", True)):
        samples.put(name, max((one.seconds or 0.0 for one in met if one.holds_tables is holds_tables), default=0.0))


def _postgres(scrape: Scrape, samples: Samples) -> None:
    """Put what Postgres itself knows; of the engine's tables nothing is read."""
    connection = scrape.connection
    there = condition.connections(connection)
    samples.put("connections_ratio", there.used / there.most)
    slow = slowness(connection)
    if slow is not None or condition.unseen(connection) is None:
        samples.put("postgres_crowd_ratio", 0.0 if slow is None else slow.crowd)
    samples.put("disk_full", no_room(connection) is not None)
    samples.put("postgres_read_only", read_only(connection) is not None)
    commits = slow_commits(connection)
    samples.put("commit_wait_seconds", 0.0 if commits is None else commits.seconds)
    dead = figures.dead_ratios(connection, TABLES)
    for table in TABLES:
        samples.put("table_dead_ratio", dead.get(table, 0.0), table)


def _schema(scrape: Scrape, samples: Samples) -> None:
    standing = standing_of(scrape.connection, scrape.migrations)
    samples.put("schema_behind", len(standing.lacks))
    samples.put("schema_ahead", bool(standing.newer))


def _revision(scrape: Scrape, samples: Samples) -> None:
    for revision in figures.revisions(scrape.connection):
        samples.put("schema_info", 1, revision)


def _snapshot(scrape: Scrape, samples: Samples) -> None:
    blind = condition.unseen(scrape.connection)
    if blind is None or not blind.in_database:
        samples.put("oldest_transaction_seconds", watched.oldest_transaction(scrape.connection))


def _unfit(scrape: Scrape, samples: Samples) -> None:
    connection = scrape.connection
    samples.put("workers_short_of_memory", len(unfit.short_of_memory(connection)))
    samples.put("worker_release_behind_seconds", max((row.seconds for row in unfit.older(connection)), default=0.0))
    samples.put("worker_clock_seconds", max((abs(row.ahead) for row in unfit.clocks(connection)), default=0.0))


def _keys(scrape: Scrape, samples: Samples) -> None:
    keys = stuck(scrape.connection, scrape.wait)
    samples.put("stuck_key_seconds", max((one.oldest_wait_seconds or 0.0 for one in keys), default=0.0))


def _alerts(scrape: Scrape, samples: Samples) -> None:
    firing = figures.firing_by_rule(scrape.connection)
    for name in scrape.rules:
        samples.put("alerts_firing", firing.get(name, 0), name)


#: The reader of each group: first those that no lock can block, then those that need only a known schema.
READERS: Mapping[str, Callable[[Scrape, Samples], None]] = {
    "locks": _locks, "postgres": _postgres, "schema": _schema, "revision": _revision, "snapshot": _snapshot,
    "backlogs": _rooms, "served": _served, "outcomes": _ended, "trouble": _trouble, "waiting": _waiting,
    "fairness": _fairness, "compared": _compared, "totals": _in_all, "schedules": _schedules, "intake": _intake,
    "workers": _unfit, "lock_keys": _keys, "alerts": _alerts,
}  # fmt: skip

#: Groups by role, which need to know the exported roles.
OF_ROLES = {"served", "outcomes", "trouble", "waiting", "fairness", "compared", "totals"}
