"""The values that rules compare: of roles, schedules, workers, Redis and Postgres.

Each group is read by itself. If one cannot be read, its alerts stay as they are, because nothing newer is known.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, RowMapping

from celeriac.alerts.rules import FULL, Measured, Rule, evaluate, measure_of
from celeriac.dispatch.asking import SLOW_ANSWER, AnswerTime, SlowCommand
from celeriac.insights.failures.burning import burning
from celeriac.insights.failures.failing_accounts import failing_accounts
from celeriac.insights.fairness import rounds, shares
from celeriac.insights.fairness.locks import Lock, stuck
from celeriac.insights.fleet import condition, figures, unfit, watched
from celeriac.insights.fleet.slower import TIMES, slower
from celeriac.insights.fleet.slowness import no_room, slow_commits, slowness
from celeriac.insights.history.sweeps import undone
from celeriac.insights.tasks.counting import Count
from celeriac.insights.why.blockers import in_the_way
from celeriac.insights.why.spans import span
from celeriac.store.failures import is_locked, log_error
from celeriac.store.messages import marked
from celeriac.store.migrate import read_only, standing_of
from celeriac.store.patience import HURRIED, lock_timeout
from celeriac.store.plans import lookups
from celeriac.store.role_names import is_built_in
from celeriac.store.shell import argument, word

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Minimum number of tasks for which a failure rate is computed.
SAMPLES = 20

#: The number to which waiting tasks are counted in each state table (or to one more than the setting, at most to a
#: million), and how many of the newest tasks give the failure rate.
COUNTED, MOST_COUNTED, NEWEST = 10_000, 1_000_000, 10_000

Group = Callable[["Celeriac", Connection], Iterable[Measured]]


def _locks(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    """Measure blockers. One whose age this login may not see is judged by how long it has been seen."""
    for one in in_the_way(connection):
        measure = "table_locked" if one.holds_tables else "lock_held"
        value, threshold = (0.0, -1.0) if one.seconds is None else (one.seconds, None)
        yield Measured(measure, one.subject, value, threshold, one.sentence, one.cure, one.tasks)


def _schema(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    standing = standing_of(connection, app.migrations)
    lacks = f"lacks {', '.join(sorted(standing.lacks))}, which this code has"
    yield Measured("schema_behind", "the schema", len(standing.lacks), sentence=lacks)
    yield Measured("schema_ahead", "the schema", float(bool(standing.newer)), sentence=standing.newer)


def _writes(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    if (why := read_only(connection)) is not None:
        yield Measured("read_only", "Postgres", 1.0, None, why.sentence, why.cure)
    if (slow := slow_commits(connection)) is not None:
        yield Measured("commit_waits", "Postgres", slow.seconds, None, slow.sentence, slow.cure)


def _connections(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    there = condition.connections(connection)
    return [Measured("connections_used", "Postgres", there.used / there.most, None, there.sentence, there.cure)]


def _room(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    full = no_room(connection)
    sentence = None if full is None else f"its disk is full: {full}"
    return [Measured("no_room", "Postgres", float(full is not None), sentence=sentence)]


def _slowness(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    if (slow := slowness(connection)) is not None:
        yield Measured("crowd", "Postgres", slow.crowd, None, slow.sentence, slow.cure)


def _roles(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    limit = app.settings.alert_queue_depth
    most = min(max(COUNTED, int(limit)), MOST_COUNTED) + 1
    with lookups(connection):
        everything = watched.of_roles(connection, samples=SAMPLES, most=most, newest=NEWEST)
        rows = [row for row in everything if row["is_registered"] or not is_built_in(row["role"])]
        queued = {row["role"]: row["queued"] for row in rows if row["queued"] > limit}
        flooded = {one.role: one for one in shares.floods(connection, list(queued))}
        unserved = [_unserved(connection, app, row) for row in rows if row["unserved"]]
    for row in rows:
        role = row["role"]
        tasks = str(Count.up_to(most - 1, row["queued"]))
        yield Measured("queued", role, row["queued"], sentence=f"{tasks} tasks wait, more than {limit:,.0f}")
        for name in ("failed_rate", "longest_running"):
            if row[name] is not None:
                yield Measured(name, role, row[name])
        if (flood := flooded.get(role)) is not None:
            yield _flooded(flood, row["queued"], tasks)
    yield from unserved


def _unserved(connection: Connection, app: Celeriac, row: RowMapping) -> Measured:
    queue, n = row["queue"], int(row["unserved"])
    heard = watched.last_heard(connection, queue)
    last = "" if heard is None else f"; {heard.worker_id} was heard of {span(heard.seconds)} ago"
    sentence = f"{n:,} tasks may start, and no worker takes the queue {queue}{last}"
    return Measured("unserved", row["role"], n, None, sentence, _server_of(app, row["role"], queue), n)


def _server_of(app: Celeriac, role: str, queue: str) -> str:
    """Return the cure for tasks without a worker: start one of this code, if it declares the role."""
    if app.roles.get(role) is not None:
        return f"run `celery -A {app.main or 'tasks'} worker -Q {word(queue)}`"
    return (
        f"this code does not declare it: where it was renamed, run `celeriac roles move {argument(role)} NAME` or "
        f"say `aliases=({role!r},)` where NAME is declared; else run "
        f"`celery worker -Q {word(queue)}` of the code that does"
    )


def _flooded(one: shares.Flood, queued: int, tasks: str) -> Measured:
    sentence = f"{tasks} tasks wait, and of the newest {one.looked_at:,} are {one.n:,} of account {one.account}"
    cure = (
        f"others get their share meanwhile; `celeriac accounts pause {argument(one.account)}` stops it, "
        f"`celeriac tasks cancel --role {word(one.role)} --account {word(one.account)} --status pending` ends what "
        "waits"
    )
    return Measured("flooded", one.role, queued, None, sentence, cure, queued)


def _burning(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        burns = burning(connection)
    return [Measured("failing_now", one.role, one.tasks, None, one.sentence, one.cure, one.tasks) for one in burns]


def _accounts(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        met = failing_accounts(connection)
    for one in {one.account: one for one in reversed(met)}.values():  # for each, the role with most tasks hit
        yield Measured(
            "account_failing", one.account, one.tasks, None, f"in {one.role}, {one.sentence}", one.cure, one.tasks
        )


def _slower(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("slower", one.role, one.now / one.usual, TIMES, one.sentence) for one in slower(connection)]


def _oldest(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = watched.oldest_ready(connection)
        left = watched.left_ready(connection, {row.role: row.seconds for row in rows}, COUNTED)
    yield from (Measured("oldest_ready", row.role, row.seconds, row.objective) for row in rows)
    yield from (Measured("left_ready", *one) for one in left.items())


def _schedules(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    run = f"run `celery -A {app.main or 'tasks'} beat`"
    late = watched.late_schedules(connection)
    yield from (_late(app, row) for row in late)
    if (silence := watched.beat_silence(connection)) is not None:
        waiting = sum(not row.quarantined for row in late)
        wait = f"; {waiting:,} schedules wait for one" if waiting else ""
        sentence = f"none has ticked for {span(silence)}{wait}"
        yield Measured("beat_silence", "beat", silence, None, sentence, run)


def _skips(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    """Measure apart from the other figures of schedules: this one reads tasks, which a lock may hide."""
    return [_skipped(row) for row in watched.skipping_schedules(connection)]


def _sweeps(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    for one in undone(connection):
        if one.enabled:
            sentence = f"fails: {marked(one.error or '')}; meanwhile {one.cost}"
            cure = f"mend what it says; `celeriac sweep {word(one.target)}` runs it at once"
            yield Measured("sweep_fails", one.name, 1.0, None, sentence, cure)


def _late(app: Celeriac, row: Row[Any]) -> Measured:
    whose = row.owner.removeprefix("beat ") if row.owner.startswith("beat ") else ""
    whose = "" if whose == "None" else whose  # an app without a name
    if row.quarantined:
        why = f": it cannot run: {marked(row.quarantined)}"
        cure = (
            f"`celeriac schedules edit {argument(row.name)}` changes it, and that tries it again; "
            f"`celeriac schedules toggle {argument(row.name)} off` switches it off"
        )
    elif row.is_passed_by:
        why = ", though its beat runs others"
        cure = "end the transaction that holds its row or its task's unique key: `celeriac doctor` names it"
    else:
        why = f", and no beat{f' of {whose}' if whose else ''} has run anything since"
        cure = f"run `celery -A {argument(whose or app.main or 'tasks')} beat`"
    sentence = f"is {row.late:.0f} s late, more than {app.settings.alert_schedule_grace:g} s{why}"
    return Measured("late", row.name, row.late, None, sentence, cure)


def _skipped(row: Row[Any]) -> Measured:
    ran_on = f"its last task, {row.last_task_id}, is not over"
    why = ran_on if row.overlaps else "it was missed, or its last task was not over"
    sentence = f"left out an instant at {row.last_skip_at:%H:%M:%S %Z}: {why}"
    cure = (
        f"`celeriac why {argument(row.last_task_id)}` tells of that task"
        if row.last_task_id
        else "keep a beat running; `misfire` says what becomes of missed instants"
    )
    return Measured("skipped", row.name, row.skips, None, sentence, cure)


def _workers(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    for row in watched.silent_workers(connection, app.settings.alert_heartbeat):
        sentence = f"was heard of {span(row.age)} ago, and holds {row.tasks:,} tasks"
        yield Measured("heartbeat_age", row.worker_id, row.age, sentence=sentence, tasks=row.tasks)
    yield from (Measured("drain_overdue", row.worker_id, row.overdue) for row in watched.draining_on(connection))


def _unfit(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    for row in unfit.short_of_memory(connection):
        grew = "" if row.least is None else f", {row.least:.0f} % at least within two hours"
        sentence = f"takes nothing more: {row.reason}, {row.megabytes or 0:,.0f} MB{grew}, and waiting did not help"
        yield Measured("memory_short", row.worker_id, 1.0, sentence=sentence, tasks=row.tasks)
    for row in unfit.older(connection):
        sentence = f"runs {row.version}, and {row.newer} has served one of its queues for {span(row.seconds)}"
        yield Measured("release_behind", row.worker_id, row.seconds, sentence=sentence)
    for row in unfit.clocks(connection):
        side = "ahead of" if row.ahead > 0 else "behind"
        sentence = f"its clock is {span(abs(row.ahead))} {side} the database's, and so are the instants it computes"
        yield Measured("clock_apart", row.worker_id, abs(row.ahead), sentence=sentence)


def _keys(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        met = stuck(connection, app.settings.alert_wait)
    return [_stuck(one) for one in met[:KEYS]]


def _stuck(one: Lock) -> Measured:
    oldest = one.oldest_wait_seconds or 0.0
    if one.task is None:
        why, cure = "nobody has it", "run `celeriac sweep hand_over`; beat, or else a worker, does so by itself"
    else:
        since = span(one.held_seconds or 0.0)
        silent = f", whose worker {one.worker_id} is silent for {span(one.heartbeat_age or 0.0)}"
        why = f"task {one.task} of {one.role} has it for {since}{silent if one.is_stale else ''}"
        freed = f"if that worker is dead, run `celeriac workers recover {argument(one.worker_id or '')}`"
        stopped = f"`celeriac why {one.task}` tells of it; `celeriac tasks cancel {one.task}` stops it"
        cure = freed if one.is_stale else stopped
    sentence = f"{why}; {one.waiting} wait behind it, the oldest for {span(oldest)}"
    return Measured("key_stuck", one.lock_key, oldest, None, sentence, cure, one.waiting.n)


#: The effect of a Redis without wake-ups, as a finding shows it.
SLOWLY = "work goes on more slowly, as workers look for it in SQL"

#: The cures by what is in the error: redis-py leaves out the first word of those it has a class for.
CURES_OF_REFUSALS = {
    "MISCONF": "it cannot save to its disk: free space there, or mend the folder's rights; its own log has the error",
    "read only replica": "REDIS_URL names a replica: name the primary",
    "MASTER is down": "REDIS_URL names a replica whose primary is down: name the primary",
    "NOREPLICAS": "start its replicas, or lower its `min-replicas-to-write`",
    "permission": "its ACL allows this login too little: `ACL SETUSER` changes that",
}


def _redis(app: Celeriac, _: Connection) -> Iterable[Measured]:
    """Measure whether Redis answers this process; other processes may reach it. A full one refuses for that reason."""
    if not app.settings.has_redis:
        return [Measured("redis_silent", "Redis", 0.0)]
    if not app.publisher.answers():
        return [Measured("redis_silent", "Redis", 1.0, None, f"does not answer; {SLOWLY}")]
    questions = app.publisher.questions
    used, took = questions.memory_used(), questions.answer_time()
    refused = _redis_refusal("" if used > FULL else app.publisher.refusal())
    slowest = questions.slowest() if took.seconds > took.bound else None
    return [refused, Measured("redis_memory", "Redis", used), _redis_lag(took, slowest)]


def _redis_refusal(refusal: str) -> Measured:
    sentence = f"answers, and refuses wake-ups: {refusal}; {SLOWLY}"
    cure = next((cure for sign, cure in CURES_OF_REFUSALS.items() if sign in refusal), "mend what it says")
    return Measured("redis_silent", "Redis", float(bool(refusal)), None, sentence, cure)


def _redis_lag(took: AnswerTime, slowest: SlowCommand | None) -> Measured:
    seconds = took.seconds
    if slowest is None or slowest.seconds < SLOW_ANSWER / 2:  # whoever took no time is not the cause
        way = f"an answer takes {seconds:.1f} s; the way there and back takes {took.least:.1f} s"
        return Measured("redis_lag", "Redis", seconds, took.bound, way)
    busy = f"; {slowest.name} of client {slowest.client} kept it busy for {slowest.seconds:.1f} s within the minute"
    cure = f"end that client: `CLIENT KILL ADDR {slowest.client}`, and what it asks for; `SLOWLOG GET` has the others"
    return Measured("redis_lag", "Redis", seconds, took.bound, f"an answer takes {seconds:.1f} s{busy}", cure)


def _trouble(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = watched.trouble(connection)
    yield from (Measured("lost_tickets", row.role, row.lost) for row in rows)
    yield from (Measured("late_finishes", row.role, row.late) for row in rows)


def _fairness(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        lines = rounds.in_line(connection)
        lags = rounds.lags(connection, lines)
    return [_fairness_lag(role, value, lines.get(role)) for role, value in lags.items()]


def _fairness_lag(role: str, value: float, line: rounds.InLine | None) -> Measured:
    if line is None:
        return Measured("fairness_lag", role, value)
    waits = f"a task of an account that runs nothing waits for {line.seconds:.0f} s behind what others have claimed"
    waiting = f"`celeriac accounts list {argument(role)}` says what a newcomer waits for"
    cure = f"leave out its `window=`, or make it smaller; {waiting}"
    return Measured("fairness_lag", role, value, None, f"{waits}; {line.bound:.0f} s is the bound", cure)


def _postgres(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        age = watched.oldest_transaction(connection)
        old = condition.old_transactions(connection, app.settings.alert_transaction)
    if age is None:
        return []
    sentence = None if not old else f"{old[0].sentence}: nothing that died since can be vacuumed"
    return [Measured("transaction_age", "Postgres", age, None, sentence, old[0].cure if old else None)]


def _outbox(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    if (met := figures.in_outbox(connection, COUNTED + 1)) is not None:
        sentence = (
            f"{Count.up_to(COUNTED, met.n)} accepted tasks wait to be inserted, the oldest, row {met.id} of "
            f"celeriac.intake with a task of {met.role}, for {span(met.seconds)}"
        )
        cure = f"a worker inserts them: the log of one has why it cannot (`The task in row {met.id}`)"
        yield Measured("outbox_age", "the outbox", met.seconds, None, sentence, cure, met.n)


def _letters(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("letters", "plain Celery", watched.letters(connection))]


#: Maximum number of stuck lock keys in one report: one dead worker may hold many.
KEYS = 20

#: The functions that read each group of measures; those that need no table of the engine come first.
GROUPS: Mapping[Group, Sequence[str]] = {
    _locks: ("table_locked", "lock_held"),
    _writes: ("read_only", "commit_waits"),
    _schema: ("schema_behind", "schema_ahead"),
    _room: ("no_room",),
    _connections: ("connections_used",),
    _slowness: ("crowd",),
    _redis: ("redis_silent", "redis_memory", "redis_lag"),
    _roles: ("queued", "failed_rate", "longest_running", "unserved", "flooded"),
    _burning: ("failing_now",),
    _accounts: ("account_failing",),
    _slower: ("slower",),
    _oldest: ("oldest_ready", "left_ready"),
    _schedules: ("late", "beat_silence"),
    _skips: ("skipped",),
    _sweeps: ("sweep_fails",),
    _workers: ("heartbeat_age", "drain_overdue"),
    _unfit: ("memory_short", "release_behind", "clock_apart"),
    _trouble: ("lost_tickets", "late_finishes"),
    _fairness: ("fairness_lag",),
    _postgres: ("transaction_age",),
    _keys: ("key_stuck",),
    _outbox: ("outbox_age",),
    _letters: ("letters",),
}


def unseen(connection: Connection) -> tuple[Collection[str], str]:
    """Return the measures that tell nothing of other logins' sessions, as this one may not see them, and the cure."""
    if (blind := condition.unseen(connection)) is None:
        return (), ""
    return ("crowd", "transaction_age") if blind.in_database else ("crowd",), blind.cure


#: Rules that are read first: they need no table of the engine and are quick even if Postgres is slow.
EARLY = frozenset(
    name for group in (_locks, _writes, _schema, _room, _connections, _slowness, _redis) for name in GROUPS[group]
)

#: Maximum milliseconds of a statement if the whole check has a time limit: meanwhile no other process checks.
PATIENCE_MS = 30_000

#: Minimum milliseconds left for a group to begin, so that time remains for the steps after the groups.
LEAST_MS = 1_000


def measure(
    app: Celeriac, connection: Connection, rules: Iterable[Rule], ends: float | None = None
) -> dict[str, list[Measured]]:
    """Return, by measure, the values these rules need, without unreadable ones. Within a transaction.

    `ends`: what is not read by then (`time.monotonic()`) counts as unreadable. If the schema is not this code's, no
    such error is logged, because the schema is what is wrong.
    """
    wanted = {measure_of(rule) for rule in rules}
    measured: dict[str, list[Measured]] = {}

    def read(group: Group) -> list[Measured] | None:
        if ends is not None and not _has_time(connection, ends):
            return None
        is_anothers = any(one.value for name in GROUPS[_schema] for one in measured.get(name, ()))
        return _read(app, connection, group, quietly=is_anothers)

    for group, names in GROUPS.items():
        if wanted & {*names} and (values := read(group)) is not None:
            measured |= {name: [one for one in values if one.measure == name] for name in names}
    for rule in rules:
        if not isinstance(rule.measure, str) and (values := read(_of_application(rule))) is not None:
            measured[rule.name] = values
    return measured


def _has_time(connection: Connection, ends: float) -> bool:
    """Return whether there is time left for a group, and let no statement take more of it."""
    left = round((ends - time.monotonic()) * 1000)
    if left >= LEAST_MS:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{min(PATIENCE_MS, left)} ms'")
    return left >= LEAST_MS


def _of_application(rule: Rule) -> Group:
    def read(app: Celeriac, connection: Connection) -> Iterable[Measured]:
        """Read an application's measure. Raises an error for values that could not be judged or written later."""
        assert not isinstance(rule.measure, str)
        values = [Measured(rule.name, subject, float(value)) for subject, value in rule.measure(connection).items()]
        above = evaluate([rule], values, app.settings)
        if not all(_fits_key(one.subject) and math.isfinite(one.value) for one in values):
            raise ValueError(f"the measure of {rule.name!r}: give each subject, a short text, a finite number")
        if not all(_is_text(one.says) for one in above):
            raise ValueError(f"the sentence of {rule.name!r} is no text that Postgres takes")
        return values

    return read


def _fits_key(subject: object) -> bool:
    """Return whether the subject fits into the key of an alert."""
    return isinstance(subject, str) and len(subject) <= 500 and _is_text(subject)


def _is_text(said: str) -> bool:
    return "\0" not in said and not any("\ud800" <= letter <= "\udfff" for letter in said)


def _read(app: Celeriac, connection: Connection, group: Group, *, quietly: bool) -> list[Measured] | None:
    """Return a group's values; None, after a log line unless `quietly`, if it cannot be read.

    Raises if this connection is lost. An application's function may use other databases, whose errors look the same.
    """
    connection.exec_driver_sql("SAVEPOINT measured")
    try:
        values = list(group(app, connection))
    except Exception as error:
        if connection.invalidated:
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT measured")
        if is_locked(error):
            connection.exec_driver_sql(lock_timeout(HURRIED))
        if not quietly:
            log_error(logger, error, "Figures for alerts could not be read")
        return None
    connection.exec_driver_sql("RELEASE SAVEPOINT measured")
    return values
