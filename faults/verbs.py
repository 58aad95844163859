"""Verbs, by what their statements say: a transaction whose answer is lost is known by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The first that is found in a statement is its verb.
VERBS: Mapping[str, re.Pattern[bytes]] = {
    name: re.compile(pattern.encode(), re.IGNORECASE | re.DOTALL)
    for name, pattern in {
        "retry by hand": r"celeriac\.forget\(.*INSERT INTO celeriac\.tasks",
        "settle, mixed": r"INSERT INTO celeriac\.history.*INSERT INTO celeriac\.later",
        "settle": r"INSERT INTO celeriac\.history",
        "start without a pass": r"DELETE FROM celeriac\.ready.*INSERT INTO celeriac\.tickets",
        "claim": r"INSERT INTO celeriac\.tickets",
        "start": r"UPDATE celeriac\.tickets\s+SET worker_id",
        "renew": r"UPDATE celeriac\.tickets SET heartbeat_at",
        "release": r"celeriac\.release\(",
        "hand over": r"celeriac\.hand_over\(",
        "let through": r"celeriac\.let_through\(",
        "cancel": r"celeriac\.cancel\(",
        "prioritise": r"UPDATE celeriac\.parked",
        "pause": r"UPDATE celeriac\.roles SET paused",
        "enqueue": r"INSERT INTO celeriac\.tasks|celeriac\.enqueue\(",
        "promote": r"DELETE FROM celeriac\.later",
        "tick": r"INSERT INTO celeriac\.ticks",
        "adopt": r"INSERT INTO celeriac\.adopted",
    }.items()
}

_PREPARE = re.compile(rb"PREPARE (celeriac_\w+) ")
_EXECUTE = re.compile(rb"EXECUTE (celeriac_\w+) ")


class Spoken:
    """What a server's sessions say: which name stands for which verb."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str | None] = {}

    def verb(self, statement: bytes) -> str | None:
        """Its verb, None for a statement of none. A name that was prepared is learned here."""
        if (name := _PREPARE.match(statement)) is not None:
            self._prepared[name[1]] = _verb(statement)
            return None
        if (name := _EXECUTE.search(statement)) is not None:
            return self._prepared.get(name[1])
        return _verb(statement)


def _verb(statement: bytes) -> str | None:
    return next((verb for verb, pattern in VERBS.items() if pattern.search(statement)), None)


class Session:
    """One connection: the verbs of its transaction, which end with its COMMIT, or at once outside of one."""

    def __init__(self, spoken: Spoken) -> None:
        self._spoken = spoken
        self._verbs: set[str] | None = None

    def committed(self, statement: bytes) -> set[str]:
        """The verbs that this statement commits."""
        if statement.startswith(b"BEGIN"):
            self._verbs = set()  # and what comes with it belongs to it
        if (commits := b"COMMIT\0" in statement) or statement.startswith(b"ROLLBACK\0"):
            verbs, self._verbs = self._verbs or set(), None
            return verbs if commits else set()
        if (verb := self._spoken.verb(statement)) is not None:
            if self._verbs is None:
                return {verb}
            self._verbs.add(verb)
        return set()
