"""The post-commit check: a statement of its own, after a commit, that moves whatever the new state allows to move.

Whoever frees a lock key, or commits a task behind its holder, requests a check of that key within its transaction.
`Database` runs the check as soon as the transaction is committed. It is decided by state and idempotent: it may run
twice, and if a process died in between, or the transaction is a caller's own, a worker's next poll or the sweep makes
up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac import logged

logger = logging.getLogger(__name__)

LET_THROUGH = text("SELECT role, lock_key FROM celeriac.let_through(CAST(:barriers AS uuid[]))")

HAND_OVER = text("SELECT DISTINCT role FROM celeriac.hand_over(CAST(:keys AS text[]))")

# Only reads the lists: `hand_over` and `let_through` delete from them. `seconds`: how long Postgres took, without the
# network; columns are computed in their order.
LISTED = text("""
SELECT ARRAY(SELECT lock_key FROM celeriac.looks ORDER BY lock_key LIMIT :batch) AS keys,
    ARRAY(SELECT CAST(barrier AS text) FROM celeriac.joins ORDER BY barrier LIMIT :batch) AS barriers,
    CAST(extract(epoch FROM clock_timestamp() - statement_timestamp()) AS double precision) AS seconds
""")

# INVARIANT: in each period only one of all workers reads the lists, because each reading begins at the front and walks
# over all dead entries there. While both tables are empty (they have no page), nobody writes.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT 'looks', clock_timestamp()
WHERE pg_relation_size('celeriac.looks') + pg_relation_size('celeriac.joins') > 0 AND NOT EXISTS (
        SELECT FROM celeriac.repairs
        WHERE name = 'looks' AND at > clock_timestamp() - :seconds * interval '1 second')
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE repairs.at <= excluded.at - :seconds * interval '1 second'
RETURNING true
""")

# Puts the beginning of the next period off; until then no worker checks.
REST = text("""
UPDATE celeriac.repairs SET at = clock_timestamp() + CAST(:seconds AS double precision) * interval '1 second'
WHERE name = 'looks'
""")

#: After a check that found nothing and took longer than `SLOW` (seconds), no worker checks for `RESTS` times as long,
#: `LONGEST` seconds at most: under an old transaction the list begins with dead entries, which nobody may remove.
SLOW, RESTS, LONGEST = 0.01, 50, 5.0

#: Among the keys to check are barriers, and roles with a new lock holder: by these prefixes, which no lock key has.
_BARRIER, _READIED = "\0", "\0\0"

#: The key in a connection's `info` for the keys to check.
KEYS = "celeriac keys to look at"


def ask(connection: Connection, keys: Iterable[str | None]) -> None:
    """Request a check of these lock keys once this transaction, one of the engine's own, is committed."""
    wanted = [key for key in keys if key is not None]
    if wanted:
        connection.info.setdefault(KEYS, set()).update(wanted)


def ask_joins(connection: Connection, barriers: Iterable[str | None]) -> None:
    """Request a check of barriers, members of which have finished in this transaction."""
    ask(connection, [_BARRIER + barrier for barrier in barriers if barrier is not None])


def tell(connection: Connection, roles: Iterable[str]) -> None:
    """Note that these roles have something to do once this transaction is committed."""
    ask(connection, [_READIED + role for role in roles])


def begin(connection: Connection) -> None:
    """Drop what an earlier transaction of the connection has left, which was not committed."""
    info = connection.info
    info.pop(KEYS, None)
    info.pop(logged.ACTS, None)


def asked(connection: Connection) -> set[str]:
    """Return and clear the keys that this transaction has requested a check of."""
    return connection.info.pop(KEYS, set())


def hand_over(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Give each of these keys its next holder, if it has none and a task waits; return those tasks' roles."""
    wanted = sorted(set(keys))
    return set(connection.execute(HAND_OVER, {"keys": wanted}).scalars()) if wanted else set()


def let_through(connection: Connection, barriers: Iterable[str]) -> set[str]:
    """Release the tasks that wait at barriers without an unfinished member; return the roles of those tasks."""
    wanted = sorted(set(barriers))
    through = connection.execute(LET_THROUGH, {"barriers": wanted}).all() if wanted else []
    return {row.role for row in through} | hand_over(connection, {r.lock_key for r in through if r.lock_key})


def _move_on(connection: Connection, keys: set[str]) -> set[str]:
    """Check both kinds of keys, lock keys and barriers, and return the roles of what was moved."""
    barriers = {key for key in keys if key.startswith(_BARRIER)}
    through = let_through(connection, [key.removeprefix(_BARRIER) for key in barriers])
    return through | hand_over(connection, keys - barriers)


def after(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Run the check and return roles with something to do.
    The commit is done, so an error leaves the keys to the sweep.
    """
    asked_for = set(keys)
    readied = {key for key in asked_for if key.startswith(_READIED)}
    roles = {role.removeprefix(_READIED) for role in readied}
    try:
        return roles | _move_on(connection, asked_for - readied)
    except DBAPIError as error:
        logger.warning("The sweep hands over what could not be handed over at once: %s", error)
        return roles


def has_turn(connection: Connection, seconds: float) -> bool:
    """Return whether it is this worker's turn to check, for so many seconds. Call it in a transaction of its own, so
    that others do not wait.
    """
    return connection.execute(TAKE, {"seconds": seconds}).scalar_one_or_none() is not None


def look(connection: Connection, batch: int = 200) -> Sequence[str]:
    """Check at most `batch` keys that others have left, and return the roles that have something to do."""
    keys, barriers, seconds = connection.execute(LISTED, {"batch": batch}).one()
    if seconds > SLOW and not keys and not barriers:
        connection.execute(REST, {"seconds": min(RESTS * seconds, LONGEST)})
    return sorted(let_through(connection, barriers) | hand_over(connection, keys))
