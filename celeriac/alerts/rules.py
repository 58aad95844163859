"""The rules: what is watched, the threshold above which it is an alert, and the alert's sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from celeriac.dispatch.asking import SLOW_ANSWER, TOO_SLOW
from celeriac.settings import Settings
from celeriac.store.shell import argument, word

if TYPE_CHECKING:
    from sqlalchemy import Connection

Severity = Literal["page", "warn"]
SEVERITIES: Sequence[Severity] = get_args(Severity)

#: The function of an application's rule: returns each subject's value.
Measure = Callable[["Connection"], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Fires for a subject whose measure has been above the threshold for `lasts` seconds.

    `threshold`: a setting's name, or the number itself. `says`: a format of `value` and `threshold` that continues a
    sentence beginning with the subject. `measure`: one of the engine's, or an application's function of a connection,
    which is in a transaction that reads. `page`: somebody has to act now; `warn`: somebody should look. `cure`: the
    command that cures or leads to the cure, a format of `subject`. `promql`: the same for Prometheus, with
    `$threshold`.
    """

    name: str
    of: str
    measure: str | Measure
    threshold: str | float
    says: str
    severity: Severity = "warn"
    lasts: float = 0.0
    cure: str = ""
    promql: str = ""

    def limit(self, settings: Settings) -> float:
        return float(getattr(settings, self.threshold) if isinstance(self.threshold, str) else self.threshold)


#: The share of its `maxmemory` above which Redis is full.
FULL = 0.95

RULES = (
    Rule(
        name="queue_depth", of="a role", measure="queued", threshold="alert_queue_depth", lasts=600,
        says="{value:.0f} tasks wait, more than {threshold:g}",
        cure="start more workers; `celeriac accounts list {argument}` says for whom it waits",
        promql=(
            "max by (role) (celeriac_tasks_ready + celeriac_tasks_delayed + celeriac_tasks_locked"
            " + celeriac_tasks_parked + celeriac_tasks_awaiting + celeriac_tasks_claimed) > $threshold"
        ),
    ),
    Rule(
        name="flood", of="a role", measure="flooded", threshold="alert_queue_depth", lasts=60,
        says="{value:.0f} tasks wait, more than {threshold:g}, most of them of one account",
        promql="max by (role) (celeriac_tasks_of_a_flood) > $threshold",
    ),
    Rule(
        name="stuck_key", of="a lock key", measure="key_stuck", threshold=0, lasts=30,
        says="a task has waited behind it for {value:.0f} s, and it does not move",
        promql="max(celeriac_stuck_key_seconds) > $threshold",
    ),
    Rule(
        name="failed_rate", of="a role", measure="failed_rate", threshold="alert_failed_rate", lasts=300,
        says="{value:.1%} of its tasks fail, more than {threshold:.1%}",
        cure="`celeriac failures list --role {subject} --since 3600` groups their errors",
        promql=(
            'max by (role) (celeriac_recent_tasks{outcome="failed"})'
            ' / (sum by (role) (max by (role, outcome) (celeriac_recent_tasks{outcome!="cancelled"})) > 20)'
            " > $threshold"
        ),
    ),
    Rule(
        name="fails_now", of="a role", measure="failing_now", threshold=0, severity="page",
        says="far more of its attempts fail than before; {value:.0f} tasks are hit within the hour",
        cure="`celeriac failures list --role {subject} --since 3600` groups their errors",
        promql="max by (role) (celeriac_tasks_failing_now) > $threshold",
    ),
    Rule(
        name="account_fails", of="an account", measure="account_failing", threshold=0,
        says="all its attempts fail while others' do not; {value:.0f} tasks are hit within the hour",
        cure="`celeriac failures list --since 3600` groups their errors",
        promql="max by (role) (celeriac_account_tasks_failing) > $threshold",
    ),
    Rule(
        name="slow_role", of="a role", measure="slower", threshold=3, lasts=60,
        says="its tasks run {value:.0f} times as long as they did before",
        cure="see what they wait for: `celeriac tasks list --role {subject} --status running` names some",
        promql="max by (role) (celeriac_runs_slower_ratio) > $threshold",
    ),
    Rule(
        name="long_running", of="a role", measure="longest_running", threshold="alert_running",
        says="a task runs for {value:.0f} s, over {threshold:g} s",
        cure="`celeriac tasks list --role {subject} --status running` names it; `celeriac tasks cancel` stops it",
        promql="max by (role) (celeriac_running_oldest_seconds) > $threshold",
    ),
    Rule(
        name="missed_schedule", of="a schedule", measure="late", threshold="alert_schedule_grace", severity="page",
        says="is {value:.0f} s late, more than {threshold:g} s",
        cure="see that a beat runs: `celeriac doctor` says when one ticked last",
        promql="max by (schedule) (celeriac_schedule_lateness_seconds) > $threshold",
    ),
    Rule(
        name="skipped_instants", of="a schedule", measure="skipped", threshold=0,
        says="left out an instant within the last hour, as it was missed or the last task was not over",
        cure="keep a beat running",
        promql="max by (schedule) (increase(celeriac_schedule_skips_total[1h])) > $threshold",
    ),
    Rule(
        name="beat_silent", of="beat", measure="beat_silence", threshold="alert_beat", severity="page",
        says="there are schedules, and none has ticked for {value:.0f} s, more than {threshold:g} s",
        cure="start a beat: `celery -A tasks beat`",
        promql="max(celeriac_beat_tick_age_seconds) > $threshold",
    ),
    Rule(
        name="failing_sweep", of="a schedule", measure="sweep_fails", threshold=0, lasts=60,
        says="fails, and what it repairs stays as it is",
        cure="`celeriac doctor` has its error, which is to be mended",
        promql="max by (schedule) (celeriac_sweep_fails) > $threshold",
    ),
    Rule(
        name="no_worker", of="a role", measure="unserved", threshold=0, severity="page", lasts=300,
        says="{value:.0f} tasks could start, and no worker takes them",
        cure="start a worker of its queue",
        promql=(
            "max by (role) (celeriac_tasks_ready + celeriac_tasks_claimed) > $threshold"
            ' unless on (role) max by (role) (celeriac_workers{state="active"}) > 0'
            " unless on (role) max by (role) (celeriac_role_paused) == 1"
        ),
    ),
    Rule(
        name="idle_while_ready", of="a role", measure="left_ready", threshold=0, severity="page", lasts=120,
        says="{value:.0f} tasks could start and a worker has nothing to do, but no pass claims them",
        cure="`celeriac why` of one of them names the first check that says no",
        promql="max by (role) (celeriac_tasks_left_ready) > $threshold",
    ),
    Rule(
        name="dead_worker", of="a worker", measure="heartbeat_age", threshold="alert_heartbeat",
        says="has sent no heartbeat for {value:.0f} s, more than {threshold:g} s",
        cure="if it is dead, run `celeriac workers recover {argument}`; the sweep does by itself, later",
        promql="max by (role) (celeriac_worker_silence_seconds) > $threshold",
    ),
    Rule(
        name="short_of_memory", of="a worker", measure="memory_short", threshold=0,
        says="takes nothing more: its memory is short, and was so already when it last waited",
        cure="restart it; against the next time, `worker_max_memory_per_child` or `CELERIAC_MEMORY_LIMIT_MB`",
        promql="max(celeriac_workers_short_of_memory) > $threshold",
    ),
    Rule(
        name="old_worker", of="a worker", measure="release_behind", threshold=600,
        says="a newer release has served one of its queues for {value:.0f} s, more than {threshold:g} s",
        cure="restart it with the new code: `celeriac workers decommission {argument}` ends it once its tasks are over",
        promql="max(celeriac_worker_release_behind_seconds) > $threshold",
    ),
    Rule(
        name="clocks_apart", of="a worker", measure="clock_apart", threshold=5, lasts=60,
        says="its clock and the database's differ by {value:.0f} s, more than {threshold:g} s",
        cure="let its host and the database's follow NTP; the engine's own times are the database's",
        promql="max(celeriac_worker_clock_seconds) > $threshold",
    ),
    Rule(
        name="drains_on", of="a worker", measure="drain_overdue", threshold=0,
        says="takes nothing more and should have ended {value:.0f} s ago",
        cure="end its process (`kill -9`) and start it again; what it held waits again already, or will",
        promql="max(celeriac_worker_drain_overdue_seconds) > $threshold",
    ),
    Rule(
        name="long_wait", of="a role", measure="oldest_ready", threshold="alert_wait", lasts=300,
        says="a task that could start waits for {value:.0f} s, longer than it should",
        cure="`celeriac tasks list --role {subject} --status pending` names it; `celeriac why` of it says why it waits",
        promql=(
            "max by (role) (celeriac_oldest_ready_seconds)"
            " > on (role) max by (role) (celeriac_wait_objective_seconds)"
        ),
    ),
    Rule(
        name="unfair", of="a role", measure="fairness_lag", threshold=1, severity="page", lasts=120,
        says="an account that holds nothing waits while another got {value:.0f} slots; {threshold:g} is the bound",
        cure="`celeriac accounts list {argument}` says who lacks most; end the transaction that holds its rows",
        promql="max by (role) (celeriac_fairness_lag_rounds) > $threshold",
    ),
    Rule(
        name="redis_away", of="Redis", measure="redis_silent", threshold=0, severity="page", lasts=60,
        says="does not answer, or refuses wake-ups; work goes on more slowly, as workers look for it in SQL",
        cure="start it, or mend REDIS_URL",
        promql="max(celeriac_redis_up) == 0 or max(celeriac_redis_refuses) > $threshold",
    ),
    Rule(
        name="slow_redis", of="Redis", measure="redis_lag", threshold=SLOW_ANSWER, severity="page", lasts=30,
        says=(
            "an answer takes {value:.1f} s: over {threshold:.1f} s longer than the way there and back, or more than"
            f" {TOO_SLOW:g} s"
        ),
        cure="its `SLOWLOG GET` names the commands that keep it busy; end who sends them",
        promql=(
            "max((celeriac_redis_answer_seconds > celeriac_redis_round_trip_seconds + $threshold)"
            f" or celeriac_redis_answer_seconds > {TOO_SLOW:g})"
        ),
    ),
    Rule(
        name="redis_full", of="Redis", measure="redis_memory", threshold=FULL, severity="page", lasts=60,
        says="has {value:.1%} of its `maxmemory` in use, more than {threshold:.1%}: it takes no more tickets",
        cure="give it more (`CONFIG SET maxmemory`), or remove what is not of the engine",
        promql="max(celeriac_redis_memory_ratio) > $threshold",
    ),
    Rule(
        name="disk_full", of="Postgres", measure="no_room", threshold=0, severity="page",
        says="its disk is full: nothing can be written",
        cure="free space on it, or make it larger; nothing that was accepted is lost",
        promql="max(celeriac_disk_full) > $threshold",
    ),
    Rule(
        name="read_only", of="Postgres", measure="read_only", threshold=0, severity="page",
        says="takes no writes: nothing can run",
        cure="name its primary in DATABASE_URL, or turn default_transaction_read_only off",
        promql="max(celeriac_postgres_read_only) > $threshold",
    ),
    Rule(
        name="slow_commits", of="Postgres", measure="commit_waits", threshold=2, severity="page", lasts=15,
        says="commits wait for {value:.0f} s, more than {threshold:g} s: for a standby, or for the disk",
        cure="bring the standby back, or see who else writes to that disk",
        promql="max(celeriac_commit_wait_seconds) > $threshold",
    ),
    Rule(
        name="schema_behind", of="Postgres", measure="schema_behind", threshold=0, severity="page", lasts=60,
        says="lacks {value:.0f} revisions of this code: its workers do not start",
        cure="run `celeriac migrate`",
        promql="max(celeriac_schema_behind) > $threshold",
    ),
    Rule(
        name="schema_ahead", of="Postgres", measure="schema_ahead", threshold=0, severity="page", lasts=60,
        says="a later release has migrated it, and this code does not run on that",
        cure="deploy the release that migrated it, or a later one; `celeriac workers list` names each worker's",
        promql="max(celeriac_schema_ahead) > $threshold",
    ),
    Rule(
        name="slow_postgres", of="Postgres", measure="crowd", threshold=3, severity="page", lasts=30,
        says="statements run for long, and take {value:.1f} times as long as they need, more than {threshold:g}",
        cure="`SELECT pg_cancel_backend(…);` ends the longest",
        promql="max(celeriac_postgres_crowd_ratio) > $threshold",
    ),
    Rule(
        name="connections_full", of="Postgres", measure="connections_used", threshold=0.9, severity="page", lasts=15,
        says="{value:.1%} of its connections are in use, more than {threshold:.1%}",
        cure="end those that are idle, put PgBouncer between, run fewer processes, or raise max_connections",
        promql="max(celeriac_connections_ratio) > $threshold",
    ),
    Rule(
        name="lost_tickets", of="a role", measure="lost_tickets", threshold="alert_lost_tickets", lasts=600,
        says="Redis lost the tickets of {value:.0f} tasks within 15 minutes, more than {threshold:g}",
        cure="they are handed out anew by themselves; see that Redis keeps what it has: `maxmemory-policy noeviction`",
        promql="max by (role) (celeriac_tickets_lost) > $threshold",
    ),
    Rule(
        name="late_finish", of="a role", measure="late_finishes", threshold=0,
        says="within 15 minutes {value:.0f} runs ended after their task had been taken from them",
        cure="see whether its worker stood still, or give the role a longer `stale_after`",
        promql="max by (role) (celeriac_late_finishes) > $threshold",
    ),
    Rule(
        name="locked_table", of="a session", measure="table_locked", threshold=5, severity="page", lasts=15,
        says="somebody's transaction has locked tables of the engine for {value:.0f} s, more than {threshold:g} s",
        promql="max(celeriac_table_locked_seconds) > $threshold",
    ),
    Rule(
        name="held_lock", of="a session", measure="lock_held", threshold=5, severity="page", lasts=15,
        says="somebody's transaction holds rows or tables of the engine for {value:.0f} s, more than {threshold:g} s",
        promql="max(celeriac_lock_held_seconds) > $threshold",
    ),
    Rule(
        name="held_snapshot", of="Postgres", measure="transaction_age", threshold="alert_transaction", lasts=60,
        says="a transaction is open for {value:.0f} s, more than {threshold:g} s: nothing that is dead can be vacuumed",
        promql="max(celeriac_oldest_transaction_seconds) > $threshold",
    ),
    Rule(
        name="stuck_outbox", of="the outbox", measure="outbox_age", threshold=60,
        says="an accepted task has waited for {value:.0f} s to be inserted, more than {threshold:g} s",
        cure="see that a worker runs: it inserts them, and its log says why it cannot",
        promql="max(celeriac_outbox_oldest_seconds) > $threshold",
    ),
    Rule(
        name="dead_letters", of="plain Celery", measure="letters", threshold="alert_dead_letters",
        says="messages that are no task: {value:.0f}, more than {threshold:g}",
        cure="`celeriac dead-letters list` lists them, `celeriac dead-letters replay` makes tasks of them",
        promql="max(celeriac_dead_letters) > $threshold",
    ),
)  # fmt: skip

NAMES = frozenset(rule.name for rule in RULES)

#: Rules about the schema: if one of them fires, tables may differ from what this code reads.
OF_THE_SCHEMA = frozenset({"schema_behind", "schema_ahead"})

#: Rules about somebody's open transaction: if one of them fires, other statements may wait for it in vain.
LOCKS = frozenset({"locked_table", "held_lock"})

#: The path of a rule's page, in the repository and in the documentation.
RUNBOOKS = "docs/runbooks"


def runbook(name: str) -> str | None:
    """Return the page of one of the engine's rules; None for an application's rule."""
    return f"{RUNBOOKS}/{name}.md" if name in NAMES else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A subject's value. `threshold`, `sentence`, `cure`: in place of the rule's. `tasks`: how many it concerns."""

    measure: str
    subject: str
    value: float
    threshold: float | None = None
    sentence: str | None = None
    cure: str | None = None
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Above:
    """A value above its threshold; it fires once it `lasts`. `tasks`: how many it concerns, as far as known."""

    name: str
    subject: str
    value: float
    threshold: float
    severity: str
    lasts: float
    says: str
    cure: str
    tasks: int

    def __str__(self) -> str:
        return f"{self.name}: {self.subject}: {self.says}"

    @property
    def runbook(self) -> str | None:
        return runbook(self.name)


def evaluate(rules: Iterable[Rule], measured: Iterable[Measured], settings: Settings) -> list[Above]:
    """Return the values above their thresholds, by rule and subject."""
    by_measure: dict[str, list[Measured]] = {}
    for one in measured:
        by_measure.setdefault(one.measure, []).append(one)
    judged = ((rule, one) for rule in rules for one in by_measure.get(measure_of(rule), ()))
    above = (_above(rule, one, settings) for rule, one in judged)
    return [one for one in above if one.value > one.threshold]


def measure_of(rule: Rule) -> str:
    """Return the measure's name; an application's function goes by its rule's name."""
    return rule.measure if isinstance(rule.measure, str) else rule.name


def _above(rule: Rule, one: Measured, settings: Settings) -> Above:
    threshold = rule.limit(settings) if one.threshold is None else one.threshold
    sentence = rule.says.format(value=one.value, threshold=threshold) if one.sentence is None else one.sentence
    names = {"subject": word(one.subject), "argument": argument(one.subject)}
    cure = rule.cure.format_map(names) if one.cure is None else one.cure
    return Above(rule.name, one.subject, one.value, threshold, rule.severity, rule.lasts, sentence, cure, one.tasks)
