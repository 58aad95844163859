"""Plans by look-ups: statements that name rows by keys find them through an index, one key at a time.

Without statistics, or with those of an idle queue, Postgres may believe that reading a whole state table and joining
it is cheaper. Every midnight's new day of history has no statistics, and a backlog arrives before they are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from celeriac.store.patience import UNSAID

#: Settings to turn off. Up to Postgres 17 a plan that still needs one of these seems so expensive that compiling it
#: would take seconds, so jit is off as well.
OTHERWISE = ("jit", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")

BY_LOOKUPS = "; ".join(f"SET LOCAL {setting} = off" for setting in OTHERWISE)

#: Also makes a LIMIT read its first entries in an index's order, instead of sorting all, however few the planner
#: believes there are.
IN_ORDER = f"{BY_LOOKUPS}; SET LOCAL enable_sort = off"

#: Settings for a generic plan that joins its own CTEs, of a thousand rows each, by hashes, and tables by look-ups. It
#: is kept even if a plan for the actual values looks cheaper, because planning START_FEW takes longer than running it.
KEPT_PLAN = "; ".join(
    ["SET LOCAL plan_cache_mode = force_generic_plan"]
    + [f"SET LOCAL {setting} = off" for setting in OTHERWISE if setting != "enable_hashjoin"]
)

# The old settings are read before anything is set: a caller, or an outer plan, may have set some.
_WAS = ", ".join(f"current_setting('{setting}') AS {setting}" for setting in OTHERWISE)
_OFF = ", ".join(f"set_config('{setting}', 'off', true)" for setting in OTHERWISE)
_TURN_OFF = f"WITH was AS MATERIALIZED (SELECT {_WAS}) SELECT was.*, {_OFF} FROM was"

_AS_IT_WAS = "SELECT " + ", ".join(f"set_config('{setting}', %({setting})s, true)" for setting in OTHERWISE)


@contextmanager
def lookups(connection: Connection) -> Iterator[None]:
    """Plan the statements executed within by look-ups, in a transaction; restore the settings after them."""
    was = connection.exec_driver_sql(_TURN_OFF).one()
    yield
    connection.exec_driver_sql(_AS_IT_WAS, dict(zip(OTHERWISE, was, strict=False)))


BY_HASHES = "SET LOCAL enable_hashjoin = on"


@contextmanager
def hashes(connection: Connection) -> Iterator[None]:
    """Allow hash joins within, in a pass: a CTE is joined with as many entries, and without hashing each row would be
    compared with each entry.
    """
    with_next(connection, BY_HASHES)
    yield
    in_order(connection)


def in_order(connection: Connection) -> None:
    """Plan what follows in the transaction by look-ups and in index order."""
    with_next(connection, IN_ORDER)


#: The commit does not wait for its flush, nor for a standby. A crash of Postgres may undo the transaction.
NOT_FLUSHED = "SET LOCAL synchronous_commit = off"


def with_next(connection: Connection, settings: str) -> None:
    """Send settings of this transaction with its next statement, in one round trip."""
    connection.info[UNSAID] = f"{connection.info.get(UNSAID, '')}{settings}; "
