"""Prune: rows nobody needs any longer, a bounded batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from celeriac.canvas.join import NEEDED
from celeriac.repair.app import RepairApp
from celeriac.repair.batch import BATCH
from celeriac.repair.brief import briefly
from celeriac.store.built_in import is_built_in
from celeriac.store.connections import Database
from celeriac.store.plans import lookups

# INVARIANT: a role whose definition is unknown or says "forever" loses nothing. A success that is not to be kept
# left no history, unless a body waits for it; what failed or was cancelled of such a role stays for :days, as does
# what is Celery's own or the engine's and no role (`UNDECLARED`): nobody could declare for how long.
KEPT = text("""
SELECT role, statement_timestamp() - coalesce(
    CASE WHEN definition ->> 'keep' <> 'forever'
        THEN CAST(definition ->> 'keep' AS double precision) * interval '1 second' END,
    :days * interval '1 day') AS since, definition ->> 'keep' IS NULL AS forgets
FROM celeriac.roles WHERE definition ->> 'keep' IS DISTINCT FROM 'forever'
UNION ALL
SELECT name, statement_timestamp() - :days * interval '1 day', false
FROM unnest(CAST(:undeclared AS text[])) AS name
ORDER BY role
""")

# The names that history has, one descent each.
NAMES = """names AS (
    (SELECT role FROM celeriac.history ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.history WHERE role > names.role ORDER BY role LIMIT 1) AS next
)"""

# Those of them that are no roles.
UNDECLARED = text(f"""
WITH RECURSIVE {NAMES}
SELECT role FROM names WHERE NOT EXISTS (SELECT FROM celeriac.roles r WHERE r.role = names.role)
""")

# INVARIANT: begins where the last batch ended, so that nobody walks over the dead entries of the batches before.
TASKS = text(f"""
WITH taken AS MATERIALIZED (
    SELECT tableoid AS part, ctid AS place, completed_at FROM celeriac.history h
    WHERE role = :role AND completed_at >= coalesce(CAST(:after AS timestamptz), '-infinity') AND completed_at < :since
        AND NOT (barrier IS NOT NULL AND {NEEDED})
    ORDER BY completed_at LIMIT :batch
), gone AS (
    DELETE FROM celeriac.history h USING taken t
    WHERE h.ctid = t.place AND h.tableoid = t.part AND h.ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING h.id
)
SELECT (SELECT count(*) FROM gone) AS n, (SELECT max(completed_at) FROM taken) AS until
""")

# INVARIANT of `barriers`: a loose walk over those a role that keeps no success has members of, one descent each.
DELIVERED = text(f"""
WITH RECURSIVE barriers AS (
    (SELECT barrier FROM celeriac.history
        WHERE role = :role AND barrier IS NOT NULL AND status = 'completed' ORDER BY barrier LIMIT 1)
    UNION ALL
    SELECT next.barrier FROM barriers, LATERAL (
        SELECT barrier FROM celeriac.history
        WHERE role = :role AND barrier > barriers.barrier AND status = 'completed' ORDER BY barrier LIMIT 1) AS next
), taken AS MATERIALIZED (
    SELECT member.* FROM barriers h, LATERAL (
        SELECT tableoid AS part, ctid AS place FROM celeriac.history
        WHERE role = :role AND barrier = h.barrier AND status = 'completed' LIMIT :batch) AS member
    WHERE NOT {NEEDED} LIMIT :batch
)
DELETE FROM celeriac.history h USING taken t
WHERE h.ctid = t.place AND h.tableoid = t.part AND h.ctid = ANY (ARRAY(SELECT place FROM taken))
""")

# The days of history that are over, with when each began and ended.
DAYS = text("""
SELECT day, day::timestamp AT TIME ZONE 'UTC' AS began, (day + 1)::timestamp AT TIME ZONE 'UTC' AS ended
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid, LATERAL to_date(substr(c.relname, 9), 'YYYYMMDD') AS day
WHERE i.inhparent = CAST('celeriac.history' AS regclass) AND c.relname ~ '^history_[0-9]{8}$'
    AND (day + 1)::timestamp AT TIME ZONE 'UTC' < statement_timestamp()
ORDER BY day
""")

# INVARIANT: a loose walk over the roles that a day has, one descent each. By way of `history`, whose rights are its
# partitions', too.
ROLES_OF_DAY = text("""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.history WHERE completed_at >= :began AND completed_at < :ended ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.history
        WHERE role > names.role AND completed_at >= :began AND completed_at < :ended ORDER BY role LIMIT 1) AS next
)
SELECT role FROM names
""")

# Bodies that wait, or run, are few; what finished for them on that day may be many.
NEEDED_OF_DAY = text("""
SELECT EXISTS (
    SELECT FROM celeriac.tasks t WHERE t.headers -> 'canvas' ->> 'awaits' IS NOT NULL AND EXISTS (
        SELECT FROM celeriac.history h WHERE h.barrier = CAST(t.headers -> 'canvas' ->> 'awaits' AS uuid)
            AND h.completed_at >= :began AND h.completed_at < :ended))
""")

DROP_DAY = text("SELECT celeriac.drop_history_day(:day)")

EVENTS = text("""
DELETE FROM celeriac.task_events WHERE id IN (
    SELECT id FROM celeriac.task_events WHERE at < statement_timestamp() - :days * interval '1 day'
    ORDER BY at LIMIT :batch)
""")

LOGS = text("""
DELETE FROM celeriac.task_logs WHERE id IN (
    SELECT id FROM celeriac.task_logs WHERE at < statement_timestamp() - :days * interval '1 day'
    ORDER BY at LIMIT :batch)
""")

PASSES = text("""
DELETE FROM celeriac.passes WHERE id IN (
    SELECT id FROM celeriac.passes WHERE last_at < statement_timestamp() - :days * interval '1 day'
    ORDER BY last_at LIMIT :batch)
""")

WORKERS = text("""
DELETE FROM celeriac.workers WHERE worker_id IN (
    SELECT worker_id FROM celeriac.workers WHERE last_heartbeat_at < statement_timestamp() - :days * interval '1 day'
    LIMIT :batch)
""")

BEATS = text("""
DELETE FROM celeriac.beats WHERE beat_id IN (
    SELECT beat_id FROM celeriac.beats WHERE last_tick_at < statement_timestamp() - :days * interval '1 day'
    LIMIT :batch)
""")

# The ledger: a message comes again within minutes, if at all.
ADOPTED = text("""
DELETE FROM celeriac.adopted WHERE task_id IN (
    SELECT task_id FROM celeriac.adopted WHERE at < statement_timestamp() - :days * interval '1 day'
    ORDER BY at LIMIT :batch)
""")

DEAD_LETTERS = text("""
DELETE FROM celeriac.dead_letters WHERE id IN (
    SELECT id FROM celeriac.dead_letters WHERE at < statement_timestamp() - :days * interval '1 day'
    ORDER BY at LIMIT :batch)
""")

GROUPS = text("""
DELETE FROM celeriac.group_results WHERE id IN (
    SELECT id FROM celeriac.group_results WHERE saved_at < statement_timestamp() - :days * interval '1 day'
    ORDER BY saved_at LIMIT :batch)
""")

OUTCOMES = text("""
DELETE FROM celeriac.outcomes WHERE (role, minute) IN (
    SELECT role, minute FROM celeriac.outcomes WHERE minute < statement_timestamp() - :days * interval '1 day'
    ORDER BY minute LIMIT :batch)
""")

# What bulks that were stopped had left.
LEFT_OF_BULKS = text("""
DELETE FROM celeriac.bulk_tasks WHERE (bulk, id) IN (
    SELECT t.bulk, t.id FROM celeriac.bulk_actions b, LATERAL (
        SELECT bulk, id FROM celeriac.bulk_tasks WHERE bulk = b.id ORDER BY id LIMIT :batch) AS t
    WHERE b.state = 'stopped' LIMIT :batch)
""")

BULKS = text("""
DELETE FROM celeriac.bulk_actions WHERE id IN (
    SELECT id FROM celeriac.bulk_actions WHERE ended_at < statement_timestamp() - :days * interval '1 day'
    ORDER BY id LIMIT :batch)
""")

MINUTES = text("""
DELETE FROM celeriac.minutes WHERE (role, minute) IN (
    SELECT role, minute FROM celeriac.minutes WHERE minute < statement_timestamp() - :days * interval '1 day'
    ORDER BY minute LIMIT :batch)
""")

#: How long (days) a minute is kept: charts go back seven.
MINUTES_KEPT = 8.0

#: How long (days) a message that was adopted is known.
KNOWN = 7.0


def prune_finished(app: RepairApp) -> int:
    """Finished tasks older than their role's `keep`; events, passes, dead letters and the like past their periods.

    What `GroupResult.save` keeps stays for Celery's `result_expires`, which may be never.
    """
    events, passes = app.settings.event_days, app.settings.pass_hours / 24
    rest: tuple[tuple[TextClause, float], ...] = (
        (EVENTS, events), (LOGS, events), (PASSES, passes), (WORKERS, events), (BEATS, passes), (ADOPTED, KNOWN),
        (OUTCOMES, events), (BULKS, events), (DEAD_LETTERS, app.settings.dead_letter_days), (MINUTES, MINUTES_KEPT),
    )  # fmt: skip
    if expires := app.backend.prepare_expires(None):
        rest += ((GROUPS, expires / 86_400),)
    left = _prune(app.database, LEFT_OF_BULKS)
    return prune_tasks(app) + left + sum(_prune(app.database, delete, days=days) for delete, days in rest)


def prune_tasks(app: RepairApp) -> int:
    """Finished tasks older than their role's `keep`; whole days of history where nobody keeps one of theirs."""
    dropped, removed = prune_by_role(app)
    return dropped + removed.total()


def prune_by_role(app: RepairApp) -> tuple[int, Counter[str]]:
    """The same: how many days went as a whole, and how many tasks of each role beside them."""
    with app.database.statement() as connection:
        undeclared = [name for name in connection.execute(UNDECLARED).scalars() if is_built_in(name)]
        roles = connection.execute(KEPT, {"days": app.settings.event_days, "undeclared": undeclared}).all()
        days = connection.execute(DAYS).all()
    kept = {row.role: row.since for row in roles}
    dropped = sum(briefly(app.database, partial(_drop_day, day=day, kept=kept)) for day in days)
    removed = Counter({row.role: _prune(app.database, DELIVERED, role=row.role) for row in roles if row.forgets})
    removed.update({role: _prune_role(app.database, role, since) for role, since in kept.items()})
    return dropped, removed


def _drop_day(connection: Connection, day: Row[Any], kept: Mapping[str, datetime]) -> bool:
    roles = connection.execute(ROLES_OF_DAY, {"began": day.began, "ended": day.ended}).scalars().all()
    if any(role not in kept or kept[role] < day.ended for role in roles):
        return False
    if connection.execute(NEEDED_OF_DAY, {"began": day.began, "ended": day.ended}).scalar_one():
        return False
    connection.execute(DROP_DAY, {"day": day.day})
    return True


def _prune_role(database: Database, role: str, since: datetime) -> int:
    gone, after = 0, None
    while True:
        with database.transaction() as connection, lookups(connection):
            wanted = {"role": role, "since": since, "after": after, "batch": BATCH}
            done = connection.execute(TASKS, wanted).one()
        gone, after = gone + int(done.n), done.until
        if done.n < BATCH:
            return gone


def _prune(database: Database, delete: TextClause, **wanted: Any) -> int:
    gone = 0
    while True:
        with database.transaction() as connection, lookups(connection):
            deleted = connection.execute(delete, wanted | {"batch": BATCH}).rowcount
        gone += deleted
        if deleted < BATCH:
            return gone
