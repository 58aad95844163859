"""Bulk actions: one move of all tasks that a filter selected at one instant, a bounded transaction at a time.

A bulk is a row. Its tasks are gathered page by page, then moved batch by batch. Each step is one transaction that also
updates the row: if a process is killed, its step is done or undone as a whole, and no task is moved twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from celeriac.errors import BadValue, IllegalMove, Unknown
from celeriac.operate import audit, steer
from celeriac.operate.audit import AuditedTogether, Change
from celeriac.operate.steer import Move, Steered
from celeriac.roles.bounds import PRIORITY
from celeriac.store.messages import pattern_of
from celeriac.store.plans import lookups

GATHERING: Final = "gathering"
MOVING: Final = "moving"
OPEN: Final = (GATHERING, MOVING)

#: Maximum number of refusals kept with their reasons; the others are counted.
KEPT_REFUSALS = 100

#: Maximum number of reasons that are counted separately; the others are counted together under this name.
REASONS, OTHERS = 50, "another reason"

ASK = text("""
INSERT INTO celeriac.bulk_actions (move, priority, filter, upto, until, by, why)
VALUES (:move, :priority, CAST(:filter AS jsonb), :upto, :until, :by, nullif(:why, '')) RETURNING id
""")

# INVARIANT: the process that has locked the row does the step; nobody waits for it.
HOLD = text("""
SELECT * FROM celeriac.bulk_actions WHERE state IN ('gathering', 'moving') AND id > :after
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

# INVARIANT: a task that moved from one walk's status to the next meanwhile is gathered once.
GATHER = text("""
WITH gathered AS (
    INSERT INTO celeriac.bulk_tasks (bulk, id) SELECT :bulk, unnest(CAST(:ids AS bigint[]))
    ON CONFLICT (bulk, id) DO NOTHING RETURNING id
)
UPDATE celeriac.bulk_actions SET asked = asked + (SELECT count(*) FROM gathered), place = :place,
    state = CASE WHEN CAST(:place AS text) IS NULL THEN 'moving' ELSE state END,
    moving_since = CASE WHEN CAST(:place AS text) IS NULL THEN clock_timestamp() END, trouble = NULL
WHERE id = :bulk
""")

# INVARIANT: begins after the last batch, so that dead entries of earlier batches are not walked over.
TAKE = text("""
DELETE FROM celeriac.bulk_tasks WHERE bulk = :bulk AND id = ANY (ARRAY(
    SELECT id FROM celeriac.bulk_tasks WHERE bulk = :bulk AND id > :after ORDER BY id LIMIT :batch))
RETURNING id
""")

MOVED = text("""
UPDATE celeriac.bulk_actions SET done = done + :done, skipped = skipped + :skipped, place = :place, trouble = NULL,
    skips = skips || CAST(:skips AS jsonb), reasons = CAST(:reasons AS jsonb)
WHERE id = :bulk
""")

END = text("""
UPDATE celeriac.bulk_actions SET state = :state, ended_at = clock_timestamp(), trouble = NULL WHERE id = :bulk
RETURNING asked, done, skipped
""")

TROUBLE = text("UPDATE celeriac.bulk_actions SET trouble = :trouble WHERE id = :bulk")

STATE = text("SELECT state, asked, done, skipped FROM celeriac.bulk_actions WHERE id = :bulk FOR UPDATE")


def ask(
    connection: Connection, move: str, wanted: Mapping[str, Any], *, upto: int, until: datetime, by: str, why: str = "",
    priority: int | None = None,
) -> int:  # fmt: skip
    """Create a bulk, to be worked on later; return its number. `wanted`: the filter's conditions. Raises BadValue."""
    if move not in MOVES:
        raise BadValue(f"move={move!r:.50}: give one of {', '.join(MOVES)}")
    if not wanted:
        raise BadValue("filter: give at least one condition: a bulk of everything is a slip")
    if (move == "prioritise") != (priority is not None) or (priority is not None and not PRIORITY.fits(priority)):
        raise BadValue(f"priority={priority!r}: give {PRIORITY.right} where the move is prioritise, and only there")
    asked = {"move": move, "priority": priority, "upto": upto, "until": until, "by": by, "why": why}
    bulk = int(connection.execute(ASK, asked | {"filter": json.dumps(wanted)}).scalar_one())
    after = {"filter": dict(wanted), "upto": upto, "until": until.isoformat()}
    after |= {} if priority is None else {"priority": priority}
    audit.write(connection, f"bulk {move}", "bulk", [Change(str(bulk), None, after)], by=by, why=why)
    return bulk


def stop(connection: Connection, bulk: int, *, by: str, why: str = "") -> Change:
    """Stop a bulk after its current batch; tasks that were moved stay so. Raises Unknown, or IllegalMove if it has
    ended.
    """
    row = connection.execute(STATE, {"bulk": bulk}).one_or_none()
    if row is None:
        raise Unknown(f"there is no bulk {bulk}")
    if row.state not in OPEN:
        raise IllegalMove(f"the bulk {bulk} is {row.state}; nothing was changed")
    change = Change(str(bulk), {"state": row.state}, {"state": "stopped", **_end(connection, bulk, "stopped")})
    audit.write(connection, "stop", "bulk", [change], by=by, why=why)
    return change


def hold(connection: Connection, after: int) -> Row[Any] | None:
    """Lock the next open bulk that nobody else works on, until the end of this transaction."""
    return connection.execute(HOLD, {"after": after}).one_or_none()


def gather(connection: Connection, bulk: int, ids: Sequence[int], place: str | None) -> None:
    """Record these tasks as selected. `place`: where to go on; None: these were the last."""
    with lookups(connection):
        connection.execute(GATHER, {"bulk": bulk, "ids": list(ids), "place": place})


def move_some(connection: Connection, bulk: Row[Any]) -> int:
    """Move the next batch of a locked bulk and return how many tasks were taken; with the last batch the bulk ends."""
    taken = {"bulk": bulk.id, "after": int(bulk.place or 0), "batch": steer.BATCH}
    with lookups(connection):
        ids = sorted(connection.execute(TAKE, taken).scalars())
    if ids:
        with audit.as_one(AuditedTogether(bulk.filter, is_written=True)):  # the bulk has its own row
            moved = _move(bulk)(connection, ids)
        _note(connection, bulk, moved, ids[-1])
    if len(ids) < steer.BATCH:
        after = _end(connection, bulk.id, "done")
        audit.write(connection, "end", "bulk", [Change(str(bulk.id), None, after)], by=bulk.by, why=bulk.why)
    return len(ids)


def say_trouble(connection: Connection, bulk: int, trouble: str) -> None:
    """Record why its last step failed; the next successful step clears it."""
    connection.execute(TROUBLE, {"bulk": bulk, "trouble": trouble})


def _move(bulk: Row[Any]) -> Move:
    options = {"by": bulk.by, "why": bulk.why or ""}
    return partial(MOVES[bulk.move], **options | ({} if bulk.priority is None else {"priority": bulk.priority}))


def _note(connection: Connection, bulk: Row[Any], moved: Steered, last: int) -> None:
    gone = dict.fromkeys(moved.missing, "it is not here any more")
    skips = [{"id": task, "reason": why} for task, why in (moved.refused | gone).items()]
    connection.execute(MOVED, {
        "bulk": bulk.id, "done": len(moved.changed), "skipped": len(skips), "place": str(last),
        "skips": json.dumps(skips[: max(0, KEPT_REFUSALS - len(bulk.skips))]),
        "reasons": json.dumps(_counted(bulk.reasons, [*moved.refused.values(), *gone.values()])),
    })  # fmt: skip


def _counted(before: Mapping[str, int], reasons: Sequence[str]) -> Counter[str]:
    """Count reasons by their pattern, as `task # has its unique key '' by now`: few enough to fit into a row."""
    counted = Counter(before)
    for reason in map(pattern_of, reasons):
        counted[reason if reason in counted or len(counted) < REASONS else OTHERS] += 1
    return counted


def _end(connection: Connection, bulk: int, state: str) -> dict[str, int]:
    return dict(connection.execute(END, {"bulk": bulk, "state": state}).mappings().one())


#: Moves that can be applied to many tasks.
MOVES: Final[Mapping[str, Callable[..., Steered]]] = {
    "retry": steer.retry, "cancel": steer.cancel, "prioritise": steer.set_priority,
}  # fmt: skip
