"""The figures in SQL, each count with a bound: neither backlog nor history changes the cost of a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from celeriac.insights.failures.burning import burning
from celeriac.insights.failures.failing_accounts import failing_accounts
from celeriac.insights.fairness import floods, rounds
from celeriac.insights.fairness.locks import stuck
from celeriac.insights.fleet import condition, figures, left_ready, unfit, watched
from celeriac.insights.fleet.slower import slower
from celeriac.insights.fleet.slowness import no_room, slowness
from celeriac.insights.tasks import counting
from celeriac.insights.why.blockers import in_the_way
from celeriac.metrics.catalogue import BY_NAME, COUNTED, OUTCOMES, STATES, TABLES
from celeriac.store.role_names import is_built_in

#: Bounds: a role's last tasks that are read for outcomes, its accounts, pairs of account and priority read for the
#: longest wait, and tasks in the outbox.
RECENT_TASKS, ACCOUNTS, LEVELS, OUTBOX = 1_000, 100, 1_000, 1_000

#: How many schedules are exported at most, by name: users name them as they like.
SCHEDULES_TOLD = 200

#: The column of `celeriac.backlog` for each word in a metric's name.
PLACES = {
    "ready": "ready", "delayed": "later", "locked": "behind_lock", "parked": "parked", "awaiting": "members",
    "claimed": "claimed", "running": "running", "stale": "stale",
}  # fmt: skip

#: Those among them whose tasks wait.
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

    def zeros(self, name: str, labels: Iterable[str], *before: str) -> None:
        """Put 0 for each set of labels without a value yet."""
        for label in labels:
            self.values.setdefault(name, {}).setdefault((*before, label), 0.0)


#: Figures by role, by metric.
ByRole = Mapping[str, Mapping[str, float]]


def compared(connection: Connection) -> ByRole:
    """Read the figures that compare attempts and runs with the past. Their cost depends on the failures of an hour and
    the number of roles. Call it in the same transaction.
    """
    return {
        "account_tasks_failing": {one.role: one.tasks for one in reversed(failing_accounts(connection))},
        "runs_slower_ratio": {one.role: one.now / one.usual for one in slower(connection)},
    }


def read(connection: Connection, rules: Iterable[str], wait: float, beside: ByRole) -> Samples:
    """Read all figures. `rules`: names of those that may fire. `wait`: the objective (seconds) of roles without their
    own. `beside`: the latest result of `compared`. Call it in a read transaction planned by look-ups.
    """
    samples = Samples()
    roles = _rooms(connection, samples)
    _served(connection, samples, roles, wait)
    _ended(connection, samples, roles, beside)
    _in_all(connection, samples, roles)
    _schedules(connection, samples)
    _whole(connection, samples, wait)
    firing = figures.firing_by_rule(connection)
    for name in rules:
        samples.put("alerts_firing", firing.get(name, 0), name)
    return samples


def _rooms(connection: Connection, samples: Samples) -> set[str]:
    """Put each role's counts; return the exported roles: registered ones, built-in ones only if they have work."""
    rows = counting.backlogs(connection, COUNTED + 1)
    roles = {row["role"]: row for row in rows if not is_built_in(row["role"]) or any(map(row.get, PLACES.values()))}
    for role, row in roles.items():
        for place, counted in PLACES.items():
            samples.put(f"tasks_{place}", row[counted], role)
        samples.put("slots_free", max(0, row["window"] - row["claimed"] - row["running"]), role)
    waiting = {role: sum(row[PLACES[place]] for place in WAIT) for role, row in roles.items()}
    flooded = {one.role for one in floods.floods(connection, [role for role, n in waiting.items() if n])}
    for role, n in waiting.items():
        samples.put("tasks_of_a_flood", n if role in flooded else 0, role)
    return set(roles)


def _served(connection: Connection, samples: Samples, roles: set[str], wait: float) -> None:
    for row in figures.served(connection, wait):
        if (role := row["role"]) in roles:
            samples.put("wait_objective_seconds", row["objective"], role)
            samples.put("window", row["window"], role)
            samples.put("role_paused", row["paused"], role)
            samples.put("running_oldest_seconds", row["running_oldest"], role)
            samples.put("worker_silence_seconds", row["silence"], role)
            samples.put("worker_slots", row["slots"], role)
            samples.put("workers_idle", row["slots"] - row["busy"], role)
            for state in STATES:
                samples.put("workers", row[state], role, state)


def _ended(connection: Connection, samples: Samples, roles: set[str], beside: ByRole) -> None:
    for row in figures.recent(connection, RECENT_TASKS):
        for outcome in OUTCOMES if row["role"] in roles else ():
            samples.put("recent_tasks", row[outcome], row["role"], outcome)
    trouble = watched.trouble(connection)
    oldest = {row.role: row.seconds for row in watched.oldest_ready(connection, LEVELS)}
    by_role = {
        "accounts_waiting": figures.accounts_waiting(connection, ACCOUNTS),
        "tickets_lost": {row.role: row.lost for row in trouble},
        "late_finishes": {row.role: row.late for row in trouble},
        "fairness_lag_rounds": rounds.lags(connection, rounds.in_line(connection)),
        "tasks_failing_now": {one.role: one.tasks for one in burning(connection)},
        "oldest_ready_seconds": oldest, "tasks_left_ready": left_ready.left(connection, oldest, COUNTED + 1),
        **beside,
    }  # fmt: skip
    for name, values in by_role.items():
        for role in roles:
            samples.put(name, values.get(role, 0), role)


def _in_all(connection: Connection, samples: Samples, roles: set[str]) -> None:
    """Put the totals counted by the minute, and by the passes themselves."""
    for row in figures.in_all(connection):
        if (role := row.role) in roles:
            for outcome in OUTCOMES:
                samples.put("tasks_ended_total", getattr(row, outcome), role, outcome)
            samples.put("tasks_retried_total", row.retried, role)
            samples.put("passes_total", row.passes, role)
            if not row.forgets:
                samples.put("tasks_enqueued_total", row.enqueued, role)
                samples.count("wait_seconds", row.waits, row.wait_seconds, role)
                samples.count("run_seconds", row.runs, row.run_seconds, role)
    samples.put("counts_behind_seconds", figures.counts_behind(connection))


def _schedules(connection: Connection, samples: Samples) -> None:
    for row in figures.schedules(connection, SCHEDULES_TOLD):
        samples.put("schedule_lateness_seconds", row.late, row.name)
        samples.put("schedule_skips_total", row.skips, row.name)
    samples.put("beats", figures.live_beats(connection))
    samples.put("beat_tick_age_seconds", watched.beat_silence(connection))


def _whole(connection: Connection, samples: Samples, wait: float) -> None:
    samples.put("dead_letters", watched.letters(connection))
    samples.put("outbox_tasks", figures.in_outbox(connection, OUTBOX))
    samples.put("tasks_estimated", figures.tasks_estimated(connection))
    samples.put("oldest_transaction_seconds", watched.oldest_transaction(connection))
    met = in_the_way(connection)
    for name, holds_tables in (("lock_held_seconds", False), ("table_locked_seconds", True)):
        samples.put(name, max((one.seconds or 0.0 for one in met if one.holds_tables is holds_tables), default=0.0))
    there = condition.connections(connection)
    samples.put("connections_ratio", there.used / there.most)
    slow = slowness(connection)
    samples.put("postgres_crowd_ratio", 0.0 if slow is None else slow.crowd)
    samples.put("disk_full", no_room(connection) is not None)
    samples.put("workers_short_of_memory", len(unfit.short_of_memory(connection)))
    samples.put("worker_release_behind_seconds", max((row.seconds for row in unfit.older(connection)), default=0.0))
    samples.put("worker_clock_seconds", max((abs(row.ahead) for row in unfit.clocks(connection)), default=0.0))
    keys = stuck(connection, wait)
    samples.put("stuck_key_seconds", max((one.oldest_wait_seconds or 0.0 for one in keys), default=0.0))
    dead = figures.dead_ratios(connection, TABLES)
    for table in TABLES:
        samples.put("table_dead_ratio", dead.get(table, 0.0), table)
    for revision in figures.revisions(connection):
        samples.put("schema_info", 1, revision)
