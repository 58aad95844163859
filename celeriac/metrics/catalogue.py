"""All figures: each with its name, its labels from a closed set, and its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from celeriac import counters
from celeriac.insights.history import histogram
from celeriac.worker.limits import MEANS

PREFIX = "celeriac_"

#: The number to which the tasks of a state table are counted.
COUNTED = 10_000

#: The source of a figure: the database as a whole, or one process, which may be of either kind.
Source = Literal["sql", "worker", "beat", "process"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure. `name` has no prefix; a counter's ends in `_total`, a histogram has `bounds` of its buckets.

    `values`: those of its label that is neither a role nor a schedule. `is_counted`: events are counted in
    `celeriac.counters` as they happen.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    source: Source = "sql"
    bounds: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    is_counted: bool = False

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def is_histogram(self) -> bool:
        return bool(self.bounds)

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        return "histogram" if self.is_histogram else "counter" if self.name.endswith("_total") else "gauge"


ROLE = ("role",)

LONG = histogram.BOUNDS

_TO = f"counted to {COUNTED + 1:,}"

#: The suffix of figures that are counted by the minute, afterwards (`celeriac.repair.minutes`).
_LATER = "; a minute late"
_KEPT = f"{_LATER}, and not told of roles that keep no successes"


def _counted(name: str, meaning: str, labels: tuple[str, ...], source: Source, *values: str) -> Metric:
    bounds = () if name.endswith("_total") else counters.BOUNDS
    return Metric(name, meaning, labels, source, bounds, values, is_counted=True)


METRICS = (
    Metric("tasks_ready", f"Tasks that could start now, {_TO}", ROLE),
    Metric("tasks_delayed", f"Tasks that wait for a time, {_TO}", ROLE),
    Metric("tasks_locked", f"Tasks that wait for a lock key, {_TO}", ROLE),
    Metric("tasks_parked", f"Tasks of paused accounts, {_TO}", ROLE),
    Metric("tasks_awaiting", f"Bodies of chords that wait for the members, {_TO}", ROLE),
    Metric("tasks_claimed", "Tasks that were handed out and have not begun", ROLE),
    Metric("tasks_running", "Tasks that run", ROLE),
    Metric("tasks_stale", "Tasks that run with a lease that is over", ROLE),
    Metric("tasks_estimated", "Unfinished tasks in all, as Postgres believes: no bound"),
    Metric("recent_tasks", "Of the newest 1,000 that ended within an hour, by what they came to", ("role", "outcome")),
    Metric("tasks_enqueued_total", f"Tasks that were enqueued{_KEPT}", ROLE),
    Metric("tasks_ended_total", f"Tasks that ended, by what they came to{_LATER}", ("role", "outcome")),
    Metric("tasks_retried_total", f"Attempts after which another was to come{_LATER}", ROLE),
    Metric("wait_seconds", f"From when a task was due to when its ticket began{_KEPT}", ROLE, bounds=LONG),
    Metric("run_seconds", f"From there to its outcome, the mean of what ran one by one{_KEPT}", ROLE, bounds=LONG),
    Metric("passes_total", "Passes that claimed anything", ROLE),
    Metric("counts_behind_seconds", "Since the minute up to which these are counted; two minutes are usual"),
    Metric(
        "oldest_ready_seconds", "For how long the oldest could have started, of 1,000 accounts and priorities", ROLE
    ),
    Metric("tasks_failing_now", "Tasks hit within an hour where far more attempts fail than before; else 0", ROLE),
    Metric("account_tasks_failing", "Tasks hit within an hour, of the worst account that fails alone", ROLE),
    Metric("runs_slower_ratio", "How many times as long half of its newest runs take as nine of ten did before", ROLE),
    Metric("tasks_left_ready", "Those that nobody claims, with room in the window and an idle worker", ROLE),
    Metric("tasks_of_a_flood", "Those of the role that wait, where most of the newest are one account's; else 0", ROLE),
    Metric("wait_objective_seconds", "For how long a task may that could start", ROLE),
    Metric("running_oldest_seconds", "For how long the oldest task runs", ROLE),
    Metric("accounts_waiting", "Accounts with a task that could start, counted to 100", ROLE),
    Metric(
        "fairness_lag_rounds",
        "Rounds an account that holds nothing waits, or its wait in line by the longest fair one; 1 is the bound",
        ROLE,
    ),
    Metric("tickets_lost", "Tasks whose ticket Redis lost, within 15 minutes", ROLE),
    Metric("late_finishes", "Outcomes refused as the task was no longer its run's, within 15 minutes", ROLE),
    Metric("window", "How many tasks may be claimed or running at once", ROLE),
    Metric("slots_free", "How many more may be", ROLE),
    Metric("role_paused", "1 while no pass claims anything of it", ROLE),
    Metric("workers", "Workers of the role's queue; silent: for two minutes to an hour", ("role", "state")),
    Metric("worker_silence_seconds", "Of its workers the longest silence, up to an hour", ROLE),
    Metric("worker_slots", "How many tasks its active workers could run at once", ROLE),
    Metric("workers_idle", "How many of these slots have nothing to do", ROLE),
    Metric("schedule_lateness_seconds", "For how long a schedule that is switched on has been due", ("schedule",)),
    Metric("schedule_skips_total", "Instants left out: missed, or while the last task was unfinished", ("schedule",)),
    Metric("sweep_fails", "1 where a sweep's last runs have failed", ("schedule",)),
    Metric("beats", "Beats that have ticked within a minute"),
    Metric("beat_tick_age_seconds", "Since the last tick of any beat; 0 where no schedule needs one"),
    Metric("alerts_firing", "Subjects for which an alert fires", ("alert",)),
    Metric("dead_letters", "Messages that became no task, counted to 1,001"),
    Metric("outbox_tasks", "Tasks that are accepted and not yet inserted, counted to 1,000"),
    Metric("outbox_oldest_seconds", "For how long the oldest of them waits"),
    Metric("oldest_transaction_seconds", "Age of the oldest transaction that keeps what is dead from being vacuumed"),
    Metric("lock_held_seconds", "For how long somebody holds rows that the engine needs; 0 of nobody"),
    Metric("table_locked_seconds", "For how long somebody has locked whole tables of the engine; 0 of nobody"),
    Metric("schema_behind", "Revisions of the scraped server's code that the database lacks"),
    Metric("schema_ahead", "1 where a later release has migrated the database, which the scraped server does not know"),
    Metric("postgres_read_only", "1 where Postgres takes no writes from the scraped server's login"),
    Metric("commit_wait_seconds", "For how long a commit waits for a standby or the disk; 0 of none"),
    Metric("disk_full", "1 where Postgres finds no room for a temporary file"),
    Metric("postgres_crowd_ratio", "How many times as long as it needs a statement takes, where one runs for long"),
    Metric("workers_short_of_memory", "Workers that take nothing, as their memory stays short"),
    Metric("worker_release_behind_seconds", "For how long a newer release has served a queue of an older worker's"),
    Metric("worker_clock_seconds", "By how much a worker's clock and the database's differ, of the worst"),
    Metric("connections_ratio", "Connections to Postgres in use, as a share of those there may be"),
    Metric("stuck_key_seconds", "For how long a task waits behind a lock key that does not move; 0 of none"),
    Metric("table_dead_ratio", "Dead rows as a share of a table's, as Postgres believes", ("table",)),
    Metric("redis_memory_ratio", "Memory of Redis in use, as a share of its `maxmemory`; 0 where it has none"),
    Metric("redis_answer_seconds", "What an answer of Redis takes, the mean of three"),
    Metric("redis_round_trip_seconds", "The way from the scraped server to Redis and back"),
    Metric("redis_up", "Whether Redis answers the server that is scraped"),
    Metric("redis_refuses", "1 where it answers, and refuses that server's wake-ups though it is not full"),
    Metric("schema_info", "The engine's migration that is applied", ("revision",)),
    Metric("build_info", "The version of the server that is scraped", ("version",)),
    Metric("scrape_ok", "0 where none of Postgres' figures could be read: they are unknown"),
    Metric("group_unread", "1 where a group of them could not be read; the server's log says why", ("group",)),
    Metric("scrape_duration_seconds", "What the last reading took"),
    Metric("worker_tasks_run_total", "Tasks that ran here", ROLE, "worker"),
    Metric("kicks_total", "Kicks taken up here: somebody is asked to look at a role", ROLE, "worker"),
    _counted(
        "tickets_total", "Tickets that arrived here, by what became of them; partly: some of its tasks were others'",
        ("role", "result"), "worker", "won", "partly", "lost", "handed_back", "broken",
    ),
    _counted("messages_set_aside_total", "Messages on its queues that were no tickets", (), "worker"),
    _counted(
        "fence_refusals_total", "Tasks that were no longer their run's, by what was refused",
        ("role", "verb"), "worker", "start", "settle",
    ),
    _counted(
        "sql_seconds", "What a statement took, with the way there and back", ("verb",), "worker",
        "start", "settle", "look", "heartbeat",
    ),
    _counted(
        "pass_results_total", "Passes begun here; busy: another one of the role was under way",
        ("role", "result"), "process", "claimed", "nothing", "busy",
    ),
    _counted("pass_seconds", "What a pass took here, without the busy ones", ROLE, "process"),
    _counted("rows_claimed_total", "Tasks that passes claimed here", ROLE, "process"),
    _counted(
        "tickets_published_total", "Tickets that Redis was given; refused: it may have taken some of that batch",
        ("role", "result"), "process", "taken", "refused",
    ),
    _counted(
        "tickets_republished_total", "Tasks whose ticket was found lost here: they are handed out anew", ROLE, "process"
    ),
    _counted(
        "rescued_total", "Tasks that were taken here from who would not finish them, by why",
        ("role", "reason"), "process", "rescue", "worker_lost", "abandoned", "lost", "handed_back",
    ),
    _counted(
        "kicks_sent_total", "Kicks for work that was enqueued or freed here; merged: one was under way",
        ("result",), "process", "sent", "merged", "refused",
    ),
    Metric("worker_tickets_active", "Tickets that run here", source="worker"),
    Metric("worker_tickets_reserved", "Tickets that were taken from Redis and are not over", source="worker"),
    Metric("worker_processes", "Processes, threads or greenlets for tasks", source="worker"),
    Metric(
        "worker_backing_off", "1 while nothing new begins, as it is short of this", ("reason",), "worker",
        values=MEANS,
    ),
    Metric("worker_draining", "1 from when it was told to stop", source="worker"),
    Metric("worker_drain_overdue_seconds", "For how long it should have ended; else 0", source="worker"),
    Metric("worker_memory_ratio", "Memory, as a share of its limit", source="worker"),
    Metric("worker_cpu_ratio", "CPU, as a share of what it may use", source="worker"),
    Metric("worker_heartbeat_age_seconds", "Since the leases were last renewed", source="worker"),
    Metric("worker_heartbeat_failures_total", "Looks of the lifeline that Postgres did not answer", source="worker"),
    Metric("beat_ticks_total", "Rounds over the schedules", source="beat"),
    _counted("schedule_ticks_total", "Instants that it ran", ("schedule",), "beat"),
    Metric("beat_late_seconds", "How late what it ran last was", source="beat"),
    Metric("beat_acts_running", "Passes and sweeps under way", source="beat"),
)  # fmt: skip

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}

#: Tables whose dead rows slow claims and settles.
TABLES = ("tasks", "ready_0", "ready_1", "ready_2", "later", "behind", "locks", "tickets", "parked")

OUTCOMES = ("completed", "failed", "cancelled")

STATES = ("active", "draining", "silent")
