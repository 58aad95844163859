"""The look after the commit: what a new state allows to move, moved by a statement of its own once it is committed.

Whoever frees a lock key, or commits a task behind its head, asks for a look at that key within its transaction.
`Database` looks as soon as the transaction is committed. The look is decided by state and idempotent: it may come
twice, and where a process died in between, or the transaction is a caller's own, a worker's next look
or the sweep makes up for it.
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

# Not taken from here: handing over does.
ASKED = text("SELECT lock_key FROM celeriac.looks ORDER BY lock_key LIMIT :batch")

JOINS = text("SELECT CAST(barrier AS text) FROM celeriac.joins ORDER BY barrier LIMIT :batch")

# INVARIANT: of all workers one looks in a period, since the list is read from its beginning, over whatever is dead
# there. A list that has no page costs each of them no write.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT 'looks', clock_timestamp()
WHERE pg_relation_size('celeriac.looks') + pg_relation_size('celeriac.joins') > 0 AND NOT EXISTS (
        SELECT FROM celeriac.repairs
        WHERE name = 'looks' AND at > clock_timestamp() - :seconds * interval '1 second')
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE repairs.at <= excluded.at - :seconds * interval '1 second'
RETURNING true
""")

#: Stand before a barrier, and before a role with a new head, among the keys to look at: no lock key has them.
_BARRIER, _READIED = "\0", "\0\0"

_KEYS = "celeriac keys to look at"


def ask(connection: Connection, keys: Iterable[str | None]) -> None:
    """Has these lock keys looked at once this transaction, one of the engine's own, is committed."""
    wanted = [key for key in keys if key is not None]
    if wanted:
        connection.info.setdefault(_KEYS, set()).update(wanted)


def ask_joins(connection: Connection, barriers: Iterable[str | None]) -> None:
    """The same for barriers, members of which have finished in this transaction."""
    ask(connection, [_BARRIER + barrier for barrier in barriers if barrier is not None])


def tell(connection: Connection, roles: Iterable[str]) -> None:
    """These roles have something to do once this transaction is committed."""
    ask(connection, [_READIED + role for role in roles])


def begin(connection: Connection) -> None:
    """What an earlier transaction of the connection has left is not the next one's."""
    connection.info.pop(_KEYS, None)
    logged.forget(connection)


def asked(connection: Connection) -> set[str]:
    """The keys this transaction has asked a look for, asked no longer."""
    return connection.info.pop(_KEYS, set())


def hand_over(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Gives each of these keys its next head, where it has none and somebody waits; the roles of those."""
    wanted = sorted(set(keys))
    return set(connection.execute(HAND_OVER, {"keys": wanted}).scalars()) if wanted else set()


def let_through(connection: Connection, barriers: Iterable[str]) -> set[str]:
    """What waits at those of the barriers that have no unfinished member goes on; the roles of that."""
    wanted = sorted(set(barriers))
    through = connection.execute(LET_THROUGH, {"barriers": wanted}).all() if wanted else []
    return {row.role for row in through} | hand_over(connection, {r.lock_key for r in through if r.lock_key})


def _move_on(connection: Connection, keys: set[str]) -> set[str]:
    """Both of them: what is to be looked at, lock keys and barriers."""
    barriers = {key for key in keys if key.startswith(_BARRIER)}
    through = let_through(connection, [key.removeprefix(_BARRIER) for key in barriers])
    return through | hand_over(connection, keys - barriers)


def after(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Roles with something to do after a commit that is done: an error leaves the keys to the sweep."""
    asked_for = set(keys)
    readied = {key for key in asked_for if key.startswith(_READIED)}
    roles = {role.removeprefix(_READIED) for role in readied}
    try:
        return roles | _move_on(connection, asked_for - readied)
    except DBAPIError as error:
        logger.warning("The sweep hands over what could not be handed over at once: %s", error)
        return roles


def has_turn(connection: Connection, seconds: float) -> bool:
    """Whether it is this worker that looks, for so many seconds. In a transaction of its own: others do not wait."""
    return connection.execute(TAKE, {"seconds": seconds}).scalar_one_or_none() is not None


def look(connection: Connection, batch: int = 200) -> Sequence[str]:
    """What others have left to look at, at most `batch` keys; the roles that have something to do."""
    keys = connection.execute(ASKED, {"batch": batch}).scalars().all()
    barriers = connection.execute(JOINS, {"batch": batch}).scalars().all()
    return sorted(let_through(connection, barriers) | hand_over(connection, keys))
