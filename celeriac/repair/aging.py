"""Aging: tasks that have waited long gain priority, a step at a time, up to a ceiling.

A task's gain is a function of how long it has waited since it was due (`scheduled_for`): however often the sweep runs,
no task is raised twice for the same wait. `aged` is the part of its priority gained in this way. Within each account
and priority the longest waiting are raised first, some at a time, and the same levels are read again until none of them
has more: all that have waited long enough gain, and no new task passes them. A transaction and a sweep are bounded; the
next sweep goes on where the last one had to stop.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.repair.app import RepairApp
from celeriac.repair.batch import Walk

#: Number of levels (account and priority) that a transaction reads, of tasks of each, and of levels that a sweep reads.
LEVELS, FEW, MOST_LEVELS = 25, 60, 20_000


@dataclass(frozen=True, slots=True)
class Aging:
    """The rule: `step` points after `after` seconds and again every `every` seconds, below `ceiling` and the role's."""

    after: float
    every: float
    step: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class Level:
    """A position in a walk over the levels."""

    role: str
    account: str
    priority: int


#: A position before all levels: no role has an empty name.
FIRST = Level("", "", 0)

_NEXT = """
    SELECT next.* FROM {here}, LATERAL (
        (SELECT role, account, priority FROM celeriac.ready
            WHERE role = {here}.role AND account = {here}.account AND priority < {here}.priority
            ORDER BY priority DESC LIMIT 1)
        UNION ALL
        (SELECT role, account, priority FROM celeriac.ready WHERE role = {here}.role AND account > {here}.account
            ORDER BY account, priority DESC LIMIT 1)
        UNION ALL
        (SELECT role, account, priority FROM celeriac.ready WHERE role > {here}.role
            ORDER BY role, account, priority DESC LIMIT 1)
        LIMIT 1
    ) AS next
"""

# INVARIANT of `raised`: cast to an integer only once bounded; the steps since the year 1 would not fit.
# INVARIANT of `levels`: at most three descents into `ready_in_order` for each; its oldest entries are read.
# `has_more`: the last entry that was read of a level gained, so those behind it may as well.
AGE = text(f"""
WITH RECURSIVE start (role, account, priority) AS (
    SELECT CAST(:role AS text), CAST(:account AS text), CAST(:priority AS integer)
), levels AS (
    ({_NEXT.format(here="start")})
    UNION ALL
    ({_NEXT.format(here="levels")})
), walked AS MATERIALIZED (
    SELECT * FROM levels LIMIT :levels
), due AS MATERIALIZED (
    SELECT entry.* FROM walked w, LATERAL (
        SELECT oldest.*, row_number() OVER () = :few AS is_last FROM (
            SELECT r.tableoid, r.ctid, r.id FROM celeriac.ready r
            WHERE r.role = w.role AND r.account = w.account AND r.priority = w.priority
                AND r.due_at <= statement_timestamp() - :after * interval '1 second'
            ORDER BY r.due_at, r.id LIMIT :few FOR UPDATE SKIP LOCKED) AS oldest) AS entry
    WHERE w.priority < :ceiling
), bounded AS MATERIALIZED (
    SELECT due.tableoid AS part, due.ctid AS place, due.is_last, t.id, t.aged, t.priority - t.aged AS own,
        t.scheduled_for,
        least(CAST(:ceiling AS integer), (r.definition #>> '{{priority_range,1}}')::integer) AS ceiling
    FROM due JOIN celeriac.tasks t ON t.id = due.id LEFT JOIN celeriac.roles r ON r.role = t.role
    WHERE t.id = ANY (ARRAY(SELECT id FROM due))
), raised AS MATERIALIZED (
    SELECT part, place, is_last, id, own, aged, greatest(0, least(
        ceiling - own,
        :step * (1 + floor((extract(epoch FROM statement_timestamp() - scheduled_for) - :after) / :every))
    ))::integer AS points
    FROM bounded
), gain AS MATERIALIZED (
    SELECT * FROM raised WHERE points > aged
), entries AS (
    UPDATE celeriac.ready r SET priority = g.own + g.points FROM gain g
    WHERE r.ctid = g.place AND r.tableoid = g.part AND r.ctid = ANY (ARRAY(SELECT place FROM gain))
), rows AS (
    UPDATE celeriac.tasks t SET aged = g.points, priority = g.own + g.points, updated_at = clock_timestamp()
    FROM gain g WHERE t.id = g.id AND t.id = ANY (ARRAY(SELECT id FROM gain))
), ends AS (
    SELECT role, account, priority, row_number() OVER () AS n FROM walked
)
SELECT (SELECT count(*) FROM gain) AS raised, (SELECT coalesce(bool_or(is_last), false) FROM gain) AS has_more,
    e.role, e.account, e.priority
FROM (SELECT 1) AS once LEFT JOIN (SELECT * FROM ends WHERE n = :levels) AS e ON true
""")


def age(connection: Connection, aging: Aging, after: Level = FIRST, levels: int = LEVELS) -> tuple[int, Level | None]:
    """Raise the longest waiting of the `levels` levels after that one; return how many, and where to go on.

    That is `after` again if one of these levels may have more.
    """
    wanted = {"after": aging.after, "every": aging.every, "step": aging.step, "ceiling": aging.ceiling, "few": FEW}
    place = {"role": after.role, "account": after.account, "priority": after.priority, "levels": levels}
    done = connection.execute(AGE, wanted | place).one()
    if done.has_more:
        return done.raised, after
    return done.raised, None if done.role is None else Level(done.role, done.account, done.priority)


_walk = Walk(FIRST, MOST_LEVELS // LEVELS)


def raise_old(app: RepairApp) -> int:
    """Raise the priority of tasks that have waited long: see `celeriac.repair.aging`."""
    s = app.settings
    aging = Aging(s.aging_after, s.aging_interval, int(s.aging_step), int(s.aging_ceiling))

    def batch(after: Level) -> tuple[int, Level | None]:
        with app.database.transaction() as connection:
            return age(connection, aging, after)

    return _walk.sweep(batch)
