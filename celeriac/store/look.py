"""The look after the commit: what a new state allows to move, moved by a statement of its own once it is committed.

Whoever ends the head of a lock key, or commits a task behind one, asks for a look at that key within its transaction.
`Database` looks as soon as the transaction is committed. The look is decided by state and idempotent: it may come
twice, and where a process died in between, or the transaction is a caller's own, a worker's next look
or the sweep makes up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

logger = logging.getLogger(__name__)

HAND_OVER = text("SELECT DISTINCT role FROM celeriac.hand_over(CAST(:keys AS text[]))")

# Not taken from here: handing over does.
ASKED = text("SELECT lock_key FROM celeriac.looks ORDER BY lock_key LIMIT :batch")

_KEYS = "celeriac keys to look at"


def ask(connection: Connection, keys: Iterable[str | None]) -> None:
    """Has these lock keys looked at once this transaction, one of the engine's own, is committed."""
    wanted = [key for key in keys if key is not None]
    if wanted:
        connection.info.setdefault(_KEYS, set()).update(wanted)


def asked(connection: Connection) -> set[str]:
    """The keys this transaction has asked a look for, asked no longer."""
    return connection.info.pop(_KEYS, set())


def hand_over(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Gives each of these keys its next head, where it has none and somebody waits; the roles of those."""
    wanted = sorted(set(keys))
    return set(connection.execute(HAND_OVER, {"keys": wanted}).scalars()) if wanted else set()


def after(connection: Connection, keys: Iterable[str]) -> set[str]:
    """`hand_over` for a commit that is done: an error leaves the keys to the sweep."""
    try:
        return hand_over(connection, keys)
    except DBAPIError as error:
        logger.warning("The sweep hands over what could not be handed over at once: %s", error)
        return set()


def look(connection: Connection, batch: int = 200) -> Sequence[str]:
    """What others have left to look at, at most `batch` keys; the roles that have something to do."""
    keys = connection.execute(ASKED, {"batch": batch}).scalars().all()
    return sorted(hand_over(connection, keys))
