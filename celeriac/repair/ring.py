"""The ring: where dead entries of `ready` pile up that vacuum may not remove, a fresh segment takes over.

An old transaction keeps every dead entry in place, and each claim would walk over them. So the current segment is
sealed, what lives in it moves to the next one, and the sealed one is truncated: that needs no vacuum. A turn without
need would only move entries about: it takes many dead entries, more than there are live ones, and an empty next
segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac.store.connections import Database

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: A segment is sealed when it has more dead entries than this, and more of them than live ones.
MANY = 5_000

SEGMENTS = 3

#: Entries a transaction moves, and how long (milliseconds) a truncation waits for whoever reads or writes the segment.
BATCH, PATIENCE_MS = 500, 50

LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac ring', 0))")

# What the statistics say, which every process reports at its own pace.
STATE = text("""
SELECT ring.seg, coalesce(s.n_dead_tup, 0) AS dead, coalesce(s.n_live_tup, 0) AS live
FROM celeriac.ring LEFT JOIN pg_stat_user_tables s ON s.schemaname = 'celeriac' AND s.relname = 'ready_' || ring.seg
""")

SEAL = text("UPDATE celeriac.ring SET seg = :next WHERE seg = :seg")

# INVARIANT: an entry is in one segment at a time; one that somebody claims just now is passed over.
MOVE = """
WITH taken AS MATERIALIZED (
    SELECT ctid FROM celeriac.ready_{seg} LIMIT {batch} FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM celeriac.ready_{seg} WHERE ctid = ANY (ARRAY(SELECT ctid FROM taken)) RETURNING *
), moved AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, due_at, id, losses FROM gone RETURNING role
)
SELECT count(*) AS n, array_agg(DISTINCT role) AS roles FROM moved
"""


def turn(app: Celeriac) -> int:
    """Where dead entries pile up in the current segment, the next one takes over; entries moved."""
    with app.database.transaction() as connection:
        if not connection.execute(LOCK).scalar_one():
            return 0
        state = connection.execute(STATE).one()
        following = (state.seg + 1) % SEGMENTS
        if state.dead > MANY and state.dead > state.live and _is_empty(connection, following):
            connection.execute(SEAL, {"seg": state.seg, "next": following})
            state = connection.execute(STATE).one()
    sealed = [seg for seg in range(SEGMENTS) if seg != state.seg]
    return sum(_empty(app, seg) for seg in sealed)


def _is_empty(connection: Connection, seg: int) -> bool:
    """Truncated, or never used: its file has no page."""
    return int(connection.exec_driver_sql(f"SELECT pg_relation_size('celeriac.ready_{seg}')").scalar_one()) == 0


def _empty(app: Celeriac, seg: int) -> int:
    """Moves what lives in a sealed segment and truncates it; what is locked stays for the next sweep."""
    with app.database.statement() as connection:
        if _is_empty(connection, seg):
            return 0
    moved = 0
    while some := _move(app, seg):
        moved += some
    _truncate(app.database, seg)
    return moved


def _move(app: Celeriac, seg: int) -> int:
    with app.database.transaction() as connection:
        done = connection.exec_driver_sql(MOVE.format(seg=seg, batch=BATCH)).one()
    if done.n:
        app.kick(done.roles)  # a pass that looked meanwhile may have found nothing
    return int(done.n)


def _truncate(database: Database, seg: int) -> bool:
    """INVARIANT: looked at again under the lock, with a new snapshot: who read the ring before may have inserted."""
    try:
        with database.transaction() as connection:
            connection.exec_driver_sql(
                f"SET LOCAL lock_timeout = '{PATIENCE_MS} ms';"
                f" LOCK TABLE ONLY celeriac.ready_{seg} IN ACCESS EXCLUSIVE MODE"
            )
            if connection.exec_driver_sql(f"SELECT true FROM celeriac.ready_{seg} LIMIT 1").scalar_one_or_none():
                return False
            connection.exec_driver_sql(f"TRUNCATE ONLY celeriac.ready_{seg}")
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return False
    return True
