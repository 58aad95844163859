"""Prune: delete rows that nobody needs any longer, a bounded batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from celeriac.canvas.join import NEEDED
from celeriac.repair import days
from celeriac.repair.app import RepairApp
from celeriac.repair.batch import BATCH, Walk
from celeriac.repair.brief import briefly
from celeriac.settings import Settings
from celeriac.store.connections import Database
from celeriac.store.plans import in_order
from celeriac.store.role_names import is_built_in
from celeriac.store.states import STRIP

#: Chains whose rests are checked in a batch, and in a sweep; and how old (seconds) a rest is at least before it goes.
CHAINS, MOST_CHAINS, REST_AGE = 100, 5_000, 300.0

#: How many days of a role a sweep prunes at most.
MOST_DAYS = 1_000

#: A place after those of all members.
NO_PLACE = 2**31 - 1

# INVARIANT: a role whose definition is unknown or says "forever" loses nothing. A success that is not to be kept left
# no history, unless a body waits for it. What failed or was cancelled in such a role stays for :days; so do tasks of
# Celery's or the engine's own that have no role (`UNDECLARED`), as nobody could declare a period.
# A role that keeps rows for a day or longer keeps whole days, so that they are dropped with the day instead of row by
# row. Rows are deleted one by one on days that another role keeps longer.
KEPT = text("""
WITH kept AS (
    SELECT role, coalesce(CASE WHEN definition ->> 'keep' <> 'forever'
            THEN CAST(definition ->> 'keep' AS double precision) * interval '1 second' END,
        :days * interval '1 day') AS for_, definition ->> 'keep' IS NULL AS forgets
    FROM celeriac.roles WHERE definition ->> 'keep' IS DISTINCT FROM 'forever'
    UNION ALL
    SELECT name, :days * interval '1 day', false FROM unnest(CAST(:undeclared AS text[])) AS name
)
SELECT role, CASE WHEN for_ < interval '1 day' THEN statement_timestamp() - for_
    ELSE date_trunc('day', statement_timestamp() - for_, 'UTC') END AS since, forgets
FROM kept ORDER BY role
""")

# Selects the names among these that are not roles.
UNDECLARED = text("""
SELECT name FROM unnest(CAST(:names AS text[])) AS name
WHERE NOT EXISTS (SELECT FROM celeriac.roles r WHERE r.role = name) ORDER BY name
""")

# Each batch of a deletion returns `n`, the rows deleted, and `until`, which the next batch gets as `after`. INVARIANT
# of all of them: a batch begins where the last one ended, so that it does not walk over the dead entries of earlier
# ones, which an old transaction keeps in the index. INVARIANT: each batch is of one day, whose times the planner knows:
# it locks that partition alone.
_DAY = "completed_at >= CAST(:began AS timestamptz) AND completed_at < CAST(:ended AS timestamptz)"

TASKS = text(f"""
WITH taken AS MATERIALIZED (
    SELECT tableoid AS part, ctid AS place, completed_at AS at FROM celeriac.history h
    WHERE role = :role AND completed_at >= coalesce(CAST(:after AS timestamptz), CAST(:began AS timestamptz))
        AND completed_at < CAST(:since AS timestamptz) AND {_DAY}
        AND NOT (barrier IS NOT NULL AND {NEEDED})
    ORDER BY completed_at LIMIT :batch
), gone AS (
    DELETE FROM celeriac.history h USING taken t
    WHERE h.ctid = t.place AND h.tableoid = t.part AND h.ctid = ANY (ARRAY(SELECT place FROM taken)) AND {_DAY}
    RETURNING h.id
)
SELECT (SELECT count(*) FROM gone) AS n, (SELECT max(at) FROM taken) AS until
""")

# INVARIANT of `barriers`: a loose walk over those with members of a role that keeps no success, one descent each.
# `after`: a barrier, and the place of a member there.
DELIVERED = text(f"""
WITH RECURSIVE since AS MATERIALIZED (
    SELECT CAST((CAST(:after AS text[]))[1] AS uuid) AS barrier, CAST((CAST(:after AS text[]))[2] AS integer) AS place
), barriers AS (
    (SELECT barrier FROM since WHERE barrier IS NOT NULL
    UNION ALL
    (SELECT barrier FROM celeriac.history
        WHERE role = :role AND barrier IS NOT NULL AND status = 'completed' AND {_DAY} ORDER BY barrier LIMIT 1)
    LIMIT 1)
    UNION ALL
    SELECT next.barrier FROM barriers, LATERAL (
        SELECT barrier FROM celeriac.history
        WHERE role = :role AND barrier > barriers.barrier AND status = 'completed' AND {_DAY}
        ORDER BY barrier LIMIT 1) AS next
), taken AS MATERIALIZED (
    SELECT h.barrier, member.* FROM (SELECT barrier FROM barriers h WHERE NOT {NEEDED}) AS h, LATERAL (
        (SELECT tableoid AS part, ctid AS spot, place FROM celeriac.history
            WHERE barrier = h.barrier AND role = :role AND status = 'completed' AND {_DAY}
                AND place >= coalesce((SELECT place FROM since WHERE barrier = h.barrier), 0)
            ORDER BY place LIMIT :batch)
        UNION ALL
        (SELECT tableoid, ctid, {NO_PLACE} FROM celeriac.history
            WHERE barrier = h.barrier AND role = :role AND status = 'completed' AND place IS NULL AND {_DAY}
            ORDER BY place LIMIT :batch)
        LIMIT :batch) AS member
    LIMIT :batch
), gone AS (
    DELETE FROM celeriac.history h USING taken t
    WHERE h.ctid = t.spot AND h.tableoid = t.part AND h.ctid = ANY (ARRAY(SELECT spot FROM taken)) AND {_DAY}
    RETURNING h.id
)
SELECT (SELECT count(*) FROM gone) AS n,
    (SELECT ARRAY[CAST(barrier AS text), CAST(place AS text)] FROM taken
        ORDER BY barrier DESC, place DESC LIMIT 1) AS until
""")

# The days that nothing is told of yet: those not closed, each with its begin and end.
OPEN = text("""
SELECT day, celeriac.begin_of(day) AS began, celeriac.begin_of(day + 1) AS ended, day < celeriac.today() AS is_over
FROM celeriac.open_days() AS day ORDER BY day
""")

NAMES = text("SELECT role FROM celeriac.role_totals ORDER BY role")

# INVARIANT: a descent for each role, to the first of its days that are past; no other day is read. A role's successes
# of groups' members have days of their own.
PAST = text("""
SELECT k.role, d.day, celeriac.begin_of(d.day) AS began, celeriac.begin_of(d.day + 1) AS ended, k.since
FROM unnest(CAST(:roles AS text[]), CAST(:since AS timestamptz[])) AS k (role, since), LATERAL (
    SELECT day FROM celeriac.day_roles
    WHERE role = k.role AND day <= CAST((k.since - interval '1 microsecond') AT TIME ZONE 'UTC' AS date)
    ORDER BY day LIMIT :most) AS d
ORDER BY d.day, k.role
""")
WITH_MEMBERS = text("""
SELECT k.role, d.day, celeriac.begin_of(d.day) AS began, celeriac.begin_of(d.day + 1) AS ended
FROM unnest(CAST(:roles AS text[])) AS k (role), LATERAL (
    SELECT day FROM celeriac.day_roles WHERE role = k.role AND members > 0 ORDER BY day LIMIT :most) AS d
ORDER BY d.day, k.role
""")

# Those of these days, and of those without a row, that have a partition, with their roles.
DROPPABLE = text("""
SELECT d.day, celeriac.begin_of(d.day) AS began, celeriac.begin_of(d.day + 1) AS ended,
    ARRAY(SELECT role FROM celeriac.day_roles r WHERE r.day = d.day) AS roles
FROM (SELECT unnest(CAST(:days AS date[])) AS day UNION SELECT day FROM celeriac.days WHERE is_empty) AS d
WHERE to_regclass('celeriac.history_' || to_char(d.day, 'YYYYMMDD')) IS NOT NULL ORDER BY d.day
""")

# INVARIANT: loose walks over the roles of a day, and over those with successes of groups' members, one descent each.
# They read `history`, whose grants apply to its partitions.
ROLES_OF_DAY = text("""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.history WHERE completed_at >= :began AND completed_at < :ended ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.history
        WHERE role > names.role AND completed_at >= :began AND completed_at < :ended ORDER BY role LIMIT 1) AS next
)
SELECT role, (
    SELECT true FROM celeriac.history h WHERE h.role = names.role AND barrier IS NOT NULL AND status = 'completed'
        AND completed_at >= :began AND completed_at < :ended ORDER BY barrier LIMIT 1) IS NOT NULL AS has_members
FROM names
""")

# Entries of `ended` for days that are dropped. `after`: the id where the last batch ended.
DROPPED = text("SELECT day FROM celeriac.dropped_days ORDER BY day")
LEFT_BEHIND = text("""
WITH taken AS MATERIALIZED (
    SELECT ctid AS place, id FROM celeriac.ended WHERE day = :day AND id > coalesce(CAST(:after AS bigint), 0)
    ORDER BY day, id LIMIT :batch
), gone AS (
    DELETE FROM celeriac.ended WHERE ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS n, (SELECT max(id) FROM taken) AS until
""")
CLEARED = text("DELETE FROM celeriac.dropped_days WHERE day = :day")

# Few bodies wait or run; their finished members on that day may be many.
NEEDED_OF_DAY = text("""
SELECT EXISTS (
    SELECT FROM celeriac.tasks t WHERE t.headers -> 'canvas' ->> 'awaits' IS NOT NULL AND EXISTS (
        SELECT FROM celeriac.history h WHERE h.barrier = CAST(t.headers -> 'canvas' ->> 'awaits' AS uuid)
            AND h.completed_at >= :began AND h.completed_at < :ended))
""")

DROP_DAY = text("SELECT celeriac.drop_history_day(:day)")


def _past(table: str, at: str) -> TextClause:
    """Return the statement that deletes a table's rows older than `:days`; a row renewed meanwhile stays.

    The deletion compares the age once more in an expression that no index serves: with old statistics the planner would
    rather walk the whole index by age than fetch the rows by their places.
    """
    return text(f"""
WITH taken AS MATERIALIZED (
    SELECT ctid AS place, {at} AS at FROM celeriac.{table}
    WHERE {at} >= coalesce(CAST(:after AS timestamptz), '-infinity')
        AND {at} < statement_timestamp() - :days * interval '1 day'
    ORDER BY {at} LIMIT :batch
), gone AS (
    DELETE FROM celeriac.{table} WHERE ctid = ANY (ARRAY(SELECT place FROM taken))
        AND {at} + interval '0' < statement_timestamp() - :days * interval '1 day' RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS n, (SELECT max(at) FROM taken) AS until
""")


EVENTS = _past("task_events", "at")
LOGS = _past("task_logs", "at")
PASSES = _past("passes", "last_at")
WORKERS = _past("workers", "last_heartbeat_at")
BEATS = _past("beats", "last_tick_at")
# Adopted messages: a message is delivered again within minutes, if at all.
ADOPTED = _past("adopted", "at")
DEAD_LETTERS = _past("dead_letters", "at")
GROUPS = _past("group_results", "saved_at")
OUTCOMES = _past("outcomes", "minute")
MINUTES = _past("minutes", "minute")
BULKS = _past("bulk_actions", "ended_at")

# Tasks left in stopped bulks. `after`: a bulk, and a task there.
LEFT_OF_BULKS = text("""
WITH taken AS MATERIALIZED (
    SELECT left_of.* FROM celeriac.bulk_actions b, LATERAL (
        SELECT ctid AS place, bulk, id FROM celeriac.bulk_tasks
        WHERE bulk = b.id AND id > CASE WHEN b.id = (CAST(:after AS bigint[]))[1]
            THEN (CAST(:after AS bigint[]))[2] ELSE 0 END
        ORDER BY id LIMIT :batch) AS left_of
    WHERE b.state = 'stopped' AND b.id >= coalesce((CAST(:after AS bigint[]))[1], 0)
    ORDER BY b.id, left_of.id LIMIT :batch
), gone AS (
    DELETE FROM celeriac.bulk_tasks WHERE ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS n,
    (SELECT ARRAY[bulk, id] FROM taken ORDER BY bulk DESC, id DESC LIMIT 1) AS until
""")

# INVARIANT: the rest of a chain stays while its workflow has a task, unfinished or in history, whose row may name it (a
# part of a workflow never goes to the outbox): a failed link that is retried goes on to the end. A walk over the
# chains, one descent each, that writes nothing of those that stay. The first block of a chain is the last to go.
RESTS = text(f"""
WITH RECURSIVE chains AS (
    (SELECT chain, workflow, created_at FROM celeriac.chain_rests WHERE chain > CAST(:after AS uuid)
        ORDER BY chain, place LIMIT 1)
    UNION ALL
    SELECT next.* FROM chains, LATERAL (
        SELECT chain, workflow, created_at FROM celeriac.chain_rests WHERE chain > chains.chain
        ORDER BY chain, place LIMIT 1) AS next
), due AS MATERIALIZED (
    SELECT * FROM chains LIMIT {CHAINS}
), unneeded AS MATERIALIZED (
    SELECT chain FROM due WHERE created_at < statement_timestamp() - :seconds * interval '1 second'
        AND NOT EXISTS (SELECT FROM celeriac.unlisted)
        AND (SELECT true FROM celeriac.tasks t WHERE t.workflow BETWEEN due.workflow AND due.workflow
            ORDER BY t.workflow LIMIT 1) IS NULL
        AND (SELECT true FROM celeriac.ended e WHERE e.workflow BETWEEN due.workflow AND due.workflow
            ORDER BY e.workflow LIMIT 1) IS NULL
), gone AS (
    DELETE FROM celeriac.chain_rests WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM unneeded u, LATERAL (
            SELECT ctid FROM celeriac.chain_rests WHERE chain = u.chain ORDER BY chain DESC, place DESC LIMIT :batch
            ) AS r
        LIMIT :batch)) RETURNING 1
)
SELECT n, CASE WHEN n = :batch THEN CAST(:after AS uuid)
    WHEN (SELECT count(*) FROM due) = {CHAINS} THEN (SELECT chain FROM due ORDER BY chain DESC LIMIT 1) END AS until
FROM (SELECT count(*) AS n FROM gone) AS done
""")

# INVARIANT: the newest :kept ticks of each schedule stay, however old. A deleted schedule's ticks go with it.
TICKS = text("""
WITH taken AS MATERIALIZED (
    SELECT old.* FROM celeriac.scheduled_jobs s, LATERAL (
        SELECT ctid AS place, schedule, due_at FROM celeriac.ticks
        WHERE schedule = s.id AND due_at >= CASE WHEN s.id = CAST((CAST(:after AS text[]))[1] AS bigint)
                THEN CAST((CAST(:after AS text[]))[2] AS timestamptz) ELSE '-infinity' END
            AND due_at < statement_timestamp() - :days * interval '1 day' AND due_at < (
            SELECT due_at FROM celeriac.ticks WHERE schedule = s.id ORDER BY due_at DESC OFFSET :kept - 1 LIMIT 1)
        ORDER BY due_at LIMIT :batch) AS old
    WHERE s.id >= coalesce(CAST((CAST(:after AS text[]))[1] AS bigint), 0) ORDER BY s.id, old.due_at LIMIT :batch
), gone AS (
    DELETE FROM celeriac.ticks WHERE ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS n, (
    SELECT ARRAY[CAST(schedule AS text), CAST(due_at AS text)] FROM taken ORDER BY schedule DESC, due_at DESC LIMIT 1
) AS until
""")

#: Days that ticks are kept beyond those of a strip: lateness is shown over 24 h.
TICKS_KEPT = 1.0

SAMPLES, TICKET_SAMPLES = _past("worker_samples", "minute"), _past("ticket_samples", "minute")

#: Days that samples of workers and of tickets are kept: charts go back an hour.
SAMPLES_KEPT = 2 / 24

#: Days that counts by the minute are kept: charts go back seven.
MINUTES_KEPT = 8.0

#: Days that an adopted message is remembered.
KNOWN = 7.0


#: Tables pruned by age, and after how many days; None: never. To prune another table, add a line.
AGED: tuple[tuple[TextClause, Callable[[RepairApp], float | None]], ...] = (
    (EVENTS, lambda app: app.settings.event_days),
    (LOGS, lambda app: app.settings.event_days),
    (PASSES, lambda app: app.settings.pass_hours / 24),
    (WORKERS, lambda app: app.settings.event_days),
    (BEATS, lambda app: app.settings.pass_hours / 24),
    (ADOPTED, lambda _: KNOWN),
    (OUTCOMES, lambda app: app.settings.event_days),
    (BULKS, lambda app: app.settings.event_days),
    (DEAD_LETTERS, lambda app: app.settings.dead_letter_days),
    (MINUTES, lambda _: MINUTES_KEPT),
    (SAMPLES, lambda _: SAMPLES_KEPT),
    (TICKET_SAMPLES, lambda _: SAMPLES_KEPT),
    (GROUPS, lambda app: (app.backend.prepare_expires(None) or 0) / 86_400 or None),
)


def prune_finished(app: RepairApp) -> int:
    """Delete finished tasks older than their role's `keep`, and events, passes, dead letters and the like past their
    periods.

    What `GroupResult.save` keeps stays for Celery's `result_expires`, which may be never.
    """
    left = _prune(app.database, LEFT_OF_BULKS) + _rests.sweep(partial(_prune_rests, app.database))
    left += _prune(app.database, TICKS, days=TICKS_KEPT, kept=STRIP)
    aged = ((delete, days(app)) for delete, days in AGED)
    return (
        prune_tasks(app.database, app.settings)
        + left
        + sum(_prune(app.database, delete, days=days) for delete, days in aged if days is not None)
    )


_rests = Walk("00000000-0000-0000-0000-000000000000", MOST_CHAINS // CHAINS)


def _prune_rests(database: Database, first: str) -> tuple[int, str | None]:
    """Delete rests of chains that nobody needs, from `first` on; return how many blocks, and where to go on."""
    with database.transaction() as connection:
        in_order(connection)
        done = connection.execute(RESTS, {"after": first, "batch": BATCH, "seconds": REST_AGE}).one()
    return int(done.n), None if done.until is None else str(done.until)


def prune_tasks(database: Database, settings: Settings) -> int:
    """Delete finished tasks older than their role's `keep`; drop a whole day of history if no role keeps any of it."""
    dropped, removed = prune_by_role(database, settings)
    return dropped + removed.total()


def prune_by_role(database: Database, settings: Settings) -> tuple[int, Counter[str]]:
    """Prune tasks; return how many days were dropped, and how many tasks of each role were deleted besides."""
    days.tell(database)
    open_days = _open_days(database)
    with database.transaction() as connection:
        in_order(connection)
        names = {*connection.execute(NAMES).scalars()}.union(*(day.roles for day in open_days))
        undeclared = [n for n in connection.execute(UNDECLARED, {"names": sorted(names)}).scalars() if is_built_in(n)]
        roles = connection.execute(KEPT, {"days": settings.event_days, "undeclared": undeclared}).all()
        kept = {row.role: row.since for row in roles}
        forgets = {row.role for row in roles if row.forgets}
        past = connection.execute(PAST, {"roles": [*kept], "since": [*kept.values()], "most": MOST_DAYS}).all()
        members = connection.execute(WITH_MEMBERS, {"roles": sorted(forgets), "most": MOST_DAYS}).all()
        droppable = connection.execute(DROPPABLE, {"days": sorted({row.day for row in past})}).all()
    candidates: list[Any] = [*droppable, *(day for day in open_days if day.is_over)]
    dropped = {day.day for day in candidates if _drop(database, day, kept)}
    removed: Counter[str] = Counter()
    for row in members:
        if row.day not in dropped:
            removed[row.role] += _prune(database, DELIVERED, role=row.role, began=row.began, ended=row.ended)
    for row in past:
        if row.day not in dropped:
            span = {"began": row.began, "ended": row.ended}
            removed[row.role] += _prune(database, TASKS, role=row.role, since=row.since, **span)
    for day in open_days:
        if day.day not in dropped:
            removed.update(_prune_day(database, day, kept, forgets))
    _clear(database)
    days.fold(database)
    return len(dropped), removed


@dataclass(frozen=True, slots=True)
class HistoryDay:
    """A day of history that is not closed. `members`: the roles with successes of groups' members on it."""

    day: date
    began: datetime
    ended: datetime
    is_over: bool
    roles: frozenset[str]
    members: frozenset[str]


def _open_days(database: Database) -> list[HistoryDay]:
    with database.transaction() as connection:
        in_order(connection)
        there = connection.execute(OPEN).all()
    return [_day(database, row) for row in there]


def _day(database: Database, row: Row[Any]) -> HistoryDay:
    with database.transaction() as connection:
        in_order(connection)
        there = connection.execute(ROLES_OF_DAY, {"began": row.began, "ended": row.ended}).all()
    members = frozenset(r.role for r in there if r.has_members)
    return HistoryDay(row.day, row.began, row.ended, row.is_over, frozenset(r.role for r in there), members)


def _drop(database: Database, day: Any, kept: Mapping[str, datetime]) -> int:
    if any(role not in kept or kept[role] < day.ended for role in day.roles):
        return 0
    return briefly(database, partial(_drop_day, day=day, kept=kept))


def _drop_day(connection: Connection, day: Any, kept: Mapping[str, datetime]) -> bool:
    roles = connection.execute(ROLES_OF_DAY, {"began": day.began, "ended": day.ended}).scalars().all()
    if any(role not in kept or kept[role] < day.ended for role in roles):
        return False
    if connection.execute(NEEDED_OF_DAY, {"began": day.began, "ended": day.ended}).scalar_one():
        return False
    connection.execute(DROP_DAY, {"day": day.day})
    return True


def _prune_day(database: Database, day: HistoryDay, kept: Mapping[str, datetime], forgets: Set[str]) -> Counter[str]:
    """Delete row by row on a day that is not closed."""
    span = {"began": day.began, "ended": day.ended}
    delivered = {role: _prune(database, DELIVERED, role=role, **span) for role in day.members & forgets}
    past = {role: kept[role] for role in day.roles & kept.keys() if kept[role] > day.began}
    removed = Counter(delivered)
    removed.update({role: _prune(database, TASKS, role=role, since=since, **span) for role, since in past.items()})
    return removed


def _clear(database: Database) -> None:
    """Delete the directory's entries of dropped days."""
    with database.statement() as connection:
        days = connection.execute(DROPPED).scalars().all()
    for day in days:
        _prune(database, LEFT_BEHIND, day=day)
        with database.statement() as connection:
            connection.execute(CLEARED, {"day": day})


def _prune(database: Database, delete: TextClause, **wanted: Any) -> int:
    """Delete in batches until one is short; return how many rows are gone."""
    gone, after = 0, None
    while True:
        with database.transaction() as connection:
            in_order(connection)
            done = connection.execute(delete, wanted | {"after": after, "batch": BATCH}).one()
        gone, after = gone + int(done.n), done.until
        if done.n < BATCH:
            return gone
