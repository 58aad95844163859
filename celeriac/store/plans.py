"""Plans by look-ups: statements that name what they want by keys find it through an index, one key at a time.

Without statistics, or with those of an idle queue, Postgres may believe that reading a whole room and joining it is
cheaper. Every midnight's new day of history has no statistics, and a backlog arrives before they are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

#: Up to Postgres 17 a plan that cannot do without one of these seems so dear that it is compiled, for seconds: no jit.
OTHERWISE = ("jit", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")

BY_LOOKUPS = "; ".join(f"SET LOCAL {setting} = off" for setting in OTHERWISE)

#: And by an index's order: a LIMIT's first entries, not all of them sorted, however few they are believed to be.
IN_ORDER = f"{BY_LOOKUPS}; SET LOCAL enable_sort = off"

#: For a plan that is kept and joins parts of its own, a thousand rows each: those by hashes, tables by look-ups. Kept
#: even where statistics make one for these very values look cheaper: to plan START_FEW takes longer than to run it.
KEPT_PLAN = "; ".join(
    ["SET LOCAL plan_cache_mode = force_generic_plan"]
    + [f"SET LOCAL {setting} = off" for setting in OTHERWISE if setting != "enable_hashjoin"]
)

# What was is read before anything is set: a caller, or a plan around this one, may have set some himself.
_WAS = ", ".join(f"current_setting('{setting}') AS {setting}" for setting in OTHERWISE)
_OFF = ", ".join(f"set_config('{setting}', 'off', true)" for setting in OTHERWISE)
_TURN_OFF = f"WITH was AS MATERIALIZED (SELECT {_WAS}) SELECT was.*, {_OFF} FROM was"

_AS_IT_WAS = "SELECT " + ", ".join(f"set_config('{setting}', %({setting})s, true)" for setting in OTHERWISE)


@contextmanager
def lookups(connection: Connection) -> Iterator[None]:
    """What is executed here, within a transaction, is planned so; what follows in it is planned as before."""
    was = connection.exec_driver_sql(_TURN_OFF).one()
    yield
    connection.exec_driver_sql(_AS_IT_WAS, dict(zip(OTHERWISE, was, strict=False)))


BY_HASHES = "SET LOCAL enable_hashjoin = on"


@contextmanager
def hashes(connection: Connection) -> Iterator[None]:
    """In a pass: what joins a part of its own with as many entries, each of which would be compared with each."""
    connection.exec_driver_sql(BY_HASHES)
    yield
    in_order(connection)


def in_order(connection: Connection) -> None:
    """What follows in the transaction is planned so."""
    connection.exec_driver_sql(IN_ORDER)
