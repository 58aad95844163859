"""Whether what work rests on is sound: Postgres and its schema, Redis, clocks, workers, beat, tickets."""

from __future__ import annotations

import shlex
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.doctor.findings import LATE, SILENT, Seen, Trouble, age, counted, error_text, named
from celeriac.insights import condition, watched
from celeriac.insights.blockers import blockers
from celeriac.insights.condition import FEW_DEAD, OLD
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.drift import MIGRATE, drift
from celeriac.store.migrate import LEFT, unapplied

#: Part of the connections that may be in use.
FULL = 0.8

#: A ticket that nobody has begun is in Redis after so many seconds, or somebody has taken it.
YOUNG = 5.0

#: Seconds the clocks may differ.
SKEW = 5.0


def postgres(app: Celeriac) -> Seen:
    try:
        with app.database.statement() as connection:
            condition.now(connection)
    except SQLAlchemyError as error:
        return Seen("", [Trouble(f"does not answer: {error_text(error)}", "start it, or mend DATABASE_URL")])
    return Seen("answers")


def revision(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        missing = unapplied(connection, app.migrations)
    lacks = [Trouble(f"the database lacks {named(missing)}", f"run `{MIGRATE}`")] if missing else []
    return Seen("the database is at the code's", lacks)


def schema(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        parts = drift(connection)
        is_there = "afterwards" not in {part.name for part in parts}
        left = connection.execute(LEFT).first() if is_there else None
    cures = [f"run `{MIGRATE}`" if part.mend == MIGRATE else " ".join(part.mend.split()) for part in parts]
    undone = [Trouble(f"what {left.revision} has to do afterwards is not done", f"run `{MIGRATE}`")] if left else []
    missing = [Trouble(f"the {p.kind} {p.name} is missing", cure) for p, cure in zip(parts, cures, strict=True)]
    return Seen("nothing of it is missing", undone + missing)


def transactions(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        old = condition.old_transactions(connection, OLD)
    return Seen(
        f"none is older than {age(OLD)}",
        [
            Trouble(
                f"{one.id} ({one.name or one.login}, {one.state}) is open for {age(one.seconds)}: nothing that "
                "died since can be removed",
                _cure(one),
            )
            for one in old
        ],
    )


def _cure(one: condition.Transaction) -> str:
    cures = {
        "prepared": f"ROLLBACK PREPARED '{one.id}';",
        "slot": f"bring back the standby that has it, or SELECT pg_drop_replication_slot('{one.id}');",
        "standby": "end the query that runs there, or turn its hot_standby_feedback off",
    }
    return cures.get(one.state, f"end its process, or SELECT pg_terminate_backend({one.id});")


def locks(app: Celeriac) -> Seen:
    """Whose open transaction, or slow statement, holds rows or tables that the engine needs."""
    with app.database.statement() as connection:
        met = blockers(connection)
    return Seen("nobody holds what the engine needs", [Trouble(one.sentence, one.cure) for one in met])


def dead_rows(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        tables = condition.dead_rows(connection, FEW_DEAD)
    return Seen(
        "every table has more living than dead rows",
        [
            Trouble(
                f"{t.name} has {t.dead:,} dead rows beside {t.live:,} ({t.bytes // 2**20:,} MiB)",
                f"VACUUM (ANALYZE) celeriac.{t.name}; if they stay, an old transaction keeps them",
            )
            for t in tables
        ],
    )


def connections(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        there = condition.connections(connection)
    sentence = f"{there.used} of {there.most} are in use"
    cure = "raise max_connections, put PgBouncer between, or run fewer processes"
    return Seen(sentence, [Trouble(sentence, cure)] if there.used > FULL * there.most else [])


def redis(app: Celeriac) -> Seen:
    _ = app.redis_url
    if not app.settings.has_redis:
        return Seen("there is none (REDIS_URL=none): workers look in SQL")
    memory = app.publisher.ask(lambda client: client.info("memory"))
    if memory is None:
        return Seen("", [Trouble("does not answer: nothing starts", "start it, or mend REDIS_URL")])
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    sentence = f"answers; maxmemory-policy is {policy}"
    cure = "CONFIG SET maxmemory-policy noeviction, and in its configuration; share it with no cache"
    return Seen(
        sentence, [] if policy == "noeviction" else [Trouble(f"{sentence}: it drops tickets when it is full", cure)]
    )


def clock(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        before = datetime.now(UTC)
        theirs = condition.now(connection)
        after = datetime.now(UTC)
    behind = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    sentence = f"this host's and the database's differ by {behind:.1f} s"
    return Seen(sentence, [Trouble(sentence, "let both follow NTP")] if behind > SKEW else [])


def workers(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        silent = condition.silent_workers(connection, SILENT)
        draining_on = watched.draining_on(connection)
        alive = _alive(insights.workers(connection))
    return Seen(
        f"{len(alive)} report, none that holds tasks is silent",
        [
            Trouble(
                f"{w.worker_id} holds {w.tasks:,} tasks and is silent for {age(w.seconds)}",
                f"if it is dead, run `celeriac recover {shlex.quote(w.worker_id)}`; the sweep does by itself, later",
            )
            for w in silent
        ]
        + [
            Trouble(
                f"{w.worker_id} takes nothing more and should have ended {age(w.overdue)} ago",
                "end its process (`kill -9`) and start it again; what it held waits again already, or will",
            )
            for w in draining_on
        ],
    )


def roles(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        depths = insights.depth(connection)
        active = [w for w in _alive(insights.workers(connection)) if w["status"] == "active"]
    served = {queue for worker in active for queue in worker["queues"]}
    waiting = [d for d in depths if d.ready.n + d.claimed > 0 and not d.paused]
    return Seen(
        f"{len(waiting)} have work, and a worker",
        [
            Trouble(
                f"{d.role} has {counted(d.ready, d.claimed)} tasks that may start, "
                f"and no worker takes its queue {d.queue}",
                f"run `celery -A {app.main or 'tasks'} worker -Q {d.queue}`",
            )
            for d in waiting
            if d.queue not in served
        ],
    )


def beat(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        ages = [beat["age"] for beat in condition.beats(connection)]
        scheduled = [job for job in insights.schedules(connection) if job["enabled"]]
    last = f"the last tick was {age(max(0.0, ages[0]))} ago" if ages else "none has ever ticked"
    if not scheduled:
        return Seen(f"{last}, and nothing is scheduled")
    names = {job["name"] for job in scheduled if not job["quarantined"]}
    if ages and ages[0] <= LATE:  # of whichever app: another's beat leaves this one's schedules alone
        names = {job["name"] for job in scheduled if not job["quarantined"] and job["late_seconds"] > LATE}
    run = f"run `celery -A {app.main or 'tasks'} beat`"
    waiting = [Trouble(f"{last}, and schedules wait for one: {named(names)}", run)] if names else []
    cannot = [
        Trouble(f"the schedule {job['name']} cannot run: {job['quarantined']}", "change it; that tries it again")
        for job in scheduled
        if job["quarantined"]
    ]
    return Seen(last, waiting + cannot)


def tickets(app: Celeriac) -> Seen:
    """A busy worker has taken tickets from Redis that it has not begun, no more than it has slots. What is missing
    beyond those is lost, and so is what nobody has begun for `ticket_grace`.
    """
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for ticket in _unstarted(app.database, YOUNG):
        tokens[ticket.queue].append(ticket.token)
    queued = {queue: app.publisher.queued(queue, some) for queue, some in tokens.items()}
    if any(present is None for present in queued.values()):
        return Seen("not known, as Redis does not answer")
    missing = {token for queue, some in tokens.items() for token in set(some) - (queued[queue] or set())}
    if not missing:
        return Seen("none is lost")
    missing &= {ticket.token for ticket in _unstarted(app.database, YOUNG)}
    old = missing & {ticket.token for ticket in _unstarted(app.database, app.settings.ticket_grace)}
    with app.database.reading() as connection:
        slots = sum(worker["concurrency"] for worker in _alive(insights.workers(connection)))
    lost = len(missing) if len(missing) > slots else len(old)
    if not lost:
        return Seen(f"none is known to be lost; busy workers may have {len(missing):,} that are not in Redis")
    sentence = f"{lost:,} are neither started nor in Redis; a busy worker may have some"
    cure = "run `celeriac sweep lost_tickets`; beat, or else a worker, does so by itself"
    return Seen("", [Trouble(sentence, cure)])


def _unstarted(database: Database, grace: float) -> list[release.Unstarted]:
    with database.statement() as connection:
        return release.unstarted(connection, grace)


def _alive(workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [w for w in workers if w["status"] != "stopped" and w["heartbeat_age"] < SILENT]
