"""The ring: a fresh segment takes over where dead entries of `ready` pile up that vacuum may not remove.

An old transaction keeps every dead entry in place, and each claim would walk over them. So the current segment is
sealed, its live entries move to the next one, and the sealed one is truncated, which needs no vacuum. A needless turn
would only move entries, so a turn requires many dead entries (more if there are more live ones) and an empty next
segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.dispatch.glance import MANY_DEAD
from celeriac.repair.app import Kick
from celeriac.repair.brief import briefly
from celeriac.store.connections import Database

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: A segment is sealed when it has more dead entries than this, and the square of their number is more than `WORTH`
#: times that of live ones. By then walking over the dead ones has taken about as long as moving the live ones does, 4.6
#: us each: a pass from the front walks over them three times, at 0.1 us an entry, and every tenth pass does that
#: (`dispatch/resuming.py`). With many accounts every pass starts at the front, for which 12,000 would be right: the
#: value lies between the two.
MANY = MANY_DEAD
WORTH = 100_000

SEGMENTS = 3

#: Number of pages that a transaction moves, and milliseconds that a truncation waits for readers and writers of the
#: segment.
PAGES, PATIENCE_MS = 32, 50

# The figures: statistics, which every process reports at its own pace; each segment's bytes; and for how long (seconds)
# dead entries have been held by a transaction, a prepared one or a replica's slot. Without autovacuum that is for ever.
STATE = text(f"""
SELECT ring.seg, pg_stat_get_dead_tuples(current) AS dead, pg_stat_get_live_tuples(current) AS live,
    ARRAY(SELECT pg_relation_size(to_regclass('celeriac.ready_' || n)) FROM generate_series(0, 2) AS n ORDER BY n)
        AS sizes,
    CASE WHEN pg_stat_get_dead_tuples(current) > {MANY} THEN CAST((
        SELECT CASE WHEN NOT CAST(current_setting('autovacuum') AS boolean) OR EXISTS (
                SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL) THEN 'infinity'
            ELSE greatest(
                (SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
                    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'),
                (SELECT max(extract(epoch FROM clock_timestamp() - prepared)) FROM pg_prepared_xacts), 0) END
    ) AS double precision) ELSE 0 END AS kept
FROM celeriac.ring, to_regclass('celeriac.ready_' || ring.seg) AS current
""")

#: Moving so many live entries costs little. With more, the ring turns only if vacuum cannot do its work: if the dead
#: ones have been held for so long (seconds), a few times what vacuum takes to come.
FEW_LIVE, KEPT = 100_000, 180.0

# INVARIANT: if several processes read the same state, one of them seals.
SEAL = text("UPDATE celeriac.ring SET seg = :next WHERE seg = :seg")

# INVARIANT: an entry is in one segment at a time; one that is being claimed is skipped. If the segment is the current
# one again, nothing is moved. Each page is read once, or the dead entries before it would be read again.
MOVE = """
WITH taken AS MATERIALIZED (
    SELECT ctid FROM celeriac.ready_{seg}
    WHERE ctid >= '({page},0)' AND ctid < '({end},0)' AND {seg} <> (SELECT seg FROM celeriac.ring)
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM celeriac.ready_{seg} WHERE ctid = ANY (ARRAY(SELECT ctid FROM taken)) RETURNING *
), moved AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, due_at, id, losses FROM gone RETURNING role
)
SELECT count(*) AS n, array_agg(DISTINCT role) AS roles FROM moved
"""

SIZE = """
SELECT pg_relation_size('celeriac.ready_{seg}') / CAST(current_setting('block_size') AS bigint)
"""

# INVARIANT: read under the lock, with a new snapshot: a transaction that read the ring before may have inserted here.
IN_USE = """
SELECT {seg} = (SELECT seg FROM celeriac.ring) OR EXISTS (SELECT FROM celeriac.ready_{seg})
"""

# INVARIANT: the worker that writes the row has the turn, for a second. The row is read first, because a conflict locks
# it even if nothing is changed.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT 'ring', clock_timestamp()
WHERE NOT EXISTS (
        SELECT FROM celeriac.repairs WHERE name = 'ring' AND at > clock_timestamp() - interval '1 second')
    AND NOT EXISTS (SELECT FROM celeriac.scheduled_jobs WHERE kind = 'sweep' AND target = 'ring' AND NOT enabled)
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE repairs.at <= excluded.at - interval '1 second'
RETURNING true
""")


@dataclass(frozen=True, slots=True)
class State:
    """The ring's state: its current segment, that one's entries by the statistics, and each segment's bytes.

    `kept`: for how many seconds its dead entries could not be removed.
    """

    seg: int
    dead: int
    live: int
    sizes: list[int]
    kept: float

    @property
    def next(self) -> int:
        return (self.seg + 1) % SEGMENTS

    @property
    def is_worn(self) -> bool:
        """Return whether the segment is to be sealed; the next one has to be empty: truncated, or never used."""
        many = self.dead > MANY and self.dead**2 > WORTH * self.live
        return many and (self.live <= FEW_LIVE or self.kept > KEPT) and not self.sizes[self.next]

    @property
    def sealed(self) -> list[int]:
        """The segments that are still to be emptied."""
        return [seg for seg, size in enumerate(self.sizes) if size and seg != self.seg]


def turn(app: Celeriac) -> int:
    """Let the ring's next segment take over if dead entries pile up in the current one."""
    return _turn(app.database, app.kick, _state(app.database))


def turn_by_worker(database: Database, kick: Kick) -> int:
    """Turn the ring, as the one worker that does in this second. A ring at rest costs each worker one statement."""
    state = _state(database)
    return _turn(database, kick, state) if (state.is_worn or state.sealed) and _has_turn(database) else 0


def _state(database: Database) -> State:
    with database.statement() as connection:
        return State(*connection.execute(STATE).one())


def _has_turn(database: Database) -> bool:
    with database.statement() as connection:
        return connection.execute(TAKE).scalar_one_or_none() is not None


def _turn(database: Database, kick: Kick, state: State) -> int:
    sealed = state.sealed
    if state.is_worn:
        with database.statement() as connection:
            connection.execute(SEAL, {"seg": state.seg, "next": state.next})
        sealed.append(state.seg)
    return sum(empty(database, kick, seg) for seg in sealed)


def empty(database: Database, kick: Kick, seg: int) -> int:
    """Move the live entries of a sealed segment and truncate it; locked ones stay for the next sweep."""
    with database.statement() as connection:
        pages = connection.exec_driver_sql(SIZE.format(seg=seg)).scalar_one()
    # The last page comes first: each moved entry leaves a dead one, and passes walk over all dead entries before the
    # first live one.
    moved = sum(_move(database, kick, seg, page) for page in reversed(range(0, pages, PAGES)))
    briefly(database, lambda connection: _truncate(connection, seg), patience_ms=PATIENCE_MS)
    return moved


def _move(database: Database, kick: Kick, seg: int, page: int) -> int:
    with database.transaction() as connection:
        done = connection.exec_driver_sql(MOVE.format(seg=seg, page=page, end=page + PAGES)).one()
    if done.n:
        kick(done.roles)  # a pass may have found nothing meanwhile
    return int(done.n)


def _truncate(connection: Connection, seg: int) -> bool:
    connection.exec_driver_sql(f"LOCK TABLE ONLY celeriac.ready_{seg} IN ACCESS EXCLUSIVE MODE")
    if connection.exec_driver_sql(IN_USE.format(seg=seg)).scalar_one():
        return False
    connection.exec_driver_sql(f"TRUNCATE ONLY celeriac.ready_{seg}")
    return True
