"""The limits of roles as this process knows them: it reads them again when the worker's parent saw that one changed."""

from __future__ import annotations

from collections.abc import Mapping

from celeriac.roles import limits
from celeriac.roles.limits import Limits
from celeriac.roles.rates import per_second
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.store.connections import Database

#: Tasks that a run takes tokens for at once begin within so long (seconds).
AT_ONCE = 0.1

_NONE = Limits()


class Limited:
    """Of all roles. Outside of a worker nobody watches for changes: there every question is asked of SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: tuple[int, Mapping[str, Limits]] = (0, {})

    def of(self, role: str) -> Limits:
        as_of = shared.limits_as_of()
        seen, known = self._seen
        if not as_of or as_of != seen:
            with self._database.reading() as connection:
                known = limits.known(connection)
            self._seen = as_of, known
        return known.get(role, _NONE)


class Tokens:
    """What a run may begin, of a role with this rate."""

    def __init__(self, database: Database, role: Role, rate: str) -> None:
        self._database = database
        self._role = role.name
        self._most = max(1, int(per_second(rate) * AT_ONCE))
        self._left = 0

    def take(self, waiting: int) -> bool:
        """Whether one of so many tasks may begin now."""
        if not self._left:
            with self._database.transaction() as connection:
                self._left = limits.take(connection, self._role, min(waiting, self._most))
        if not self._left:
            return False
        self._left -= 1
        return True
