"""The limits of roles as this process knows them: it reads them again when the worker's parent saw that one changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from celeriac.roles import limits
from celeriac.roles.limits import Limits
from celeriac.roles.rates import per_second
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.store.connections import Database
from celeriac.store.started import Started

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
        self.rate = rate
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


class Heeded:
    """A role's limits while a ticket of it runs: what is changed meanwhile holds from the next task on.

    Where nothing has changed, and the role has no rate, a task costs a look at one number. `allowed`: seconds from the
    start of a task that says nothing of its own until its process is stopped; `grace`: how many of them, where the role
    does not say.
    """

    def __init__(self, limited: Limited, database: Database, declared: Role, grace: float) -> None:
        self._limited = limited
        self._database = database
        self._declared = declared
        self._grace = grace
        self._tokens: Tokens | None = None
        self._heed()

    def let_all(self) -> bool:
        """Whether nothing has changed, and the role has no rate."""
        return self._tokens is None and shared.limits_as_of() == self._as_of

    def lets(self, waiting: Sequence[Started]) -> bool:
        """Whether the first of them may begin now. What runs no handler needs no token."""
        if shared.limits_as_of() != self._as_of:
            self._heed()
        if self._tokens is None or _falls_out(waiting[0]):
            return True
        return self._tokens.take(sum(not _falls_out(task) for task in waiting))

    def _heed(self) -> None:
        as_of = shared.limits_as_of()
        current = self._limited.of(self._declared.name)
        self.role = current.applied(self._declared)
        limit = self.role.time_limit
        self.allowed = None if limit is None else limit + self.role.grace(None, self._grace)
        if current.rate_limit is None:
            self._tokens = None
        elif self._tokens is None or self._tokens.rate != current.rate_limit:
            self._tokens = Tokens(self._database, self._declared, current.rate_limit)
        self._as_of = as_of


def _falls_out(task: Started) -> bool:
    """Whether it is what `celeriac.fall_out` left."""
    return "fall_out" in ((task.headers or {}).get("canvas") or {})
