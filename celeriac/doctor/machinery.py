"""Check what work depends on: Postgres and its schema, Redis, clocks, workers, beat, tickets."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.doctor.findings import LATE, Seen, Trouble, age, error_text, named
from celeriac.errors import ConfigurationError
from celeriac.insights.fleet import condition
from celeriac.insights.fleet.condition import FEW_DEAD
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.drift import MIGRATE, drift
from celeriac.store.failures import is_full
from celeriac.store.messages import marked
from celeriac.store.migrate import LEFT, refuse_old_postgres, refuse_single_statements, standing_of
from celeriac.store.states import GONE

#: The age (seconds) from which an unstarted ticket has to be in Redis, unless a worker has taken it.
YOUNG = 5.0

#: Seconds by which the clocks may differ.
SKEW = 5.0


def postgres(app: Celeriac) -> Seen:
    try:
        with app.database.statement() as connection:
            insights.clock(connection)
            refuse_single_statements(connection)
    except SQLAlchemyError as error:
        if is_full(error):
            full = "end what is idle, put PgBouncer between, run fewer processes, or raise max_connections"
            return Seen("", [Trouble(f"lets no new connection in: {error_text(error)}", full)])
        return Seen("", [Trouble(f"does not answer: {error_text(error)}", "start it, or mend DATABASE_URL")])
    return Seen("answers")


def revision(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        refuse_old_postgres(connection)
        standing = standing_of(connection, app.migrations)
    if standing.newer:
        raise ConfigurationError(standing.newer)
    missing = standing.lacks
    lacks = [Trouble(f"the database lacks {named(missing)}", f"run `{MIGRATE}`")] if missing else []
    return Seen("the database is at the code's", lacks)


def schema(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        parts = drift(connection)
        is_there = "afterwards" not in {part.name for part in parts}
        left = connection.execute(LEFT).first() if is_there else None
    cure = f"run `{MIGRATE}`"
    undone = [Trouble(f"what {left.revision} has to do afterwards is not done", cure)] if left else []
    missing = [Trouble(f"the {part.kind} {part.name} is missing", cure) for part in parts]
    return Seen("nothing of it is missing", undone + missing)


def transactions(app: Celeriac) -> Seen:
    return Seen(f"none is older than {age(app.settings.alert_transaction)}")


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
    whose = "" if there.kind == "server" else f" of the {there.kind} {there.of}"
    return Seen(f"{there.used} of {there.most}{whose} are in use")


def redis(app: Celeriac) -> Seen:
    _ = app.redis_url
    if not app.settings.has_redis:
        return Seen("there is none (REDIS_URL=none): workers look in SQL")
    if not app.publisher.answers():
        slowly = "does not answer: work goes on more slowly, as workers look for it in SQL"
        return Seen("", [Trouble(slowly, "start it, or mend REDIS_URL")])
    memory = app.publisher.questions.memory()
    if memory is None:
        return Seen("answers; its policy may not be read")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    sentence = f"answers; maxmemory-policy is {policy}"
    cure = "CONFIG SET maxmemory-policy noeviction, and in its configuration; share it with no cache"
    return Seen(
        sentence, [] if policy == "noeviction" else [Trouble(f"{sentence}: it drops tickets when it is full", cure)]
    )


def clock(app: Celeriac) -> Seen:
    with app.database.statement() as connection:
        before = datetime.now(UTC)
        theirs = insights.clock(connection)
        after = datetime.now(UTC)
    behind = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    sentence = f"this host's and the database's differ by {behind:.1f} s"
    return Seen(sentence, [Trouble(sentence, "let both follow NTP")] if behind > SKEW else [])


def workers(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        alive = _alive(insights.workers(connection))
    return Seen(f"{len(alive)} report, none that holds tasks is silent")


def roles(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        depths = insights.depth(connection)
    waiting = [depth for depth in depths if depth.ready.n + depth.claimed > 0 and not depth.paused]
    return Seen(f"{len(waiting)} have work, and a worker")


def beat(app: Celeriac) -> Seen:
    with app.database.reading() as connection:
        ages = [beat["age"] for beat in condition.beats(connection)]
        scheduled = [job for job in insights.schedules(connection) if job["enabled"]]
    last = f"the last tick was {age(max(0.0, ages[0]))} ago" if ages else "none has ever ticked"
    return Seen(
        last if scheduled else f"{last}, and nothing is scheduled",
        [
            Trouble(
                f"the schedule {job['name']} cannot run: {marked(job['quarantined'])}", "change it; that tries it again"
            )
            for job in scheduled
            if job["quarantined"]
        ],
    )


def tickets(app: Celeriac) -> Seen:
    """Check for lost tickets. A busy worker may have taken from Redis as many tickets as it has slots, unstarted.
    Missing ones beyond those are lost, and so are those that no sweep has handed out anew since `ticket_grace`.
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
    old = missing & {ticket.token for ticket in _unstarted(app.database, app.settings.ticket_grace + LATE)}
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
    return [w for w in workers if w["status"] != "stopped" and w["heartbeat_age"] < GONE]
