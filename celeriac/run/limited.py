"""The limits of roles as this process knows them: it reads them again when the worker's parent saw a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from celeriac.roles import limits
from celeriac.roles.limits import Limits
from celeriac.roles.rates import per_second
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database

#: A run takes tokens at once for all tasks that begin within this time (seconds).
AT_ONCE = 0.1

_NONE = Limits()


class Limited:
    """The limits of all roles. Outside of a worker nobody watches for changes, so they are read from SQL each time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: tuple[int, Mapping[str, Limits]] = (0, {})
        self._heeded: dict[str, Heeded] = {}

    def of(self, role: str) -> Limits:
        as_of = shared.limits_as_of()
        seen, known = self._seen
        if not as_of or as_of != seen:
            with self._database.reading() as connection:
                known = limits.known(connection)
            self._seen = as_of, known
        return known.get(role, _NONE)

    def heeded(self, declared: Role, grace: float) -> Heeded:
        """Return the limits for a run of the role: one object for all runs of this process until a limit changes."""
        known, as_of = self._heeded.get(declared.name), shared.limits_as_of()
        if known is None or not as_of or known.as_of != as_of or known.tokens or known.declared is not declared:
            known = self._heeded[declared.name] = Heeded(self, self._database, declared, grace)
        return known


class Tokens:
    """The tokens with which one run begins tasks of a role with this rate."""

    def __init__(self, database: Database, role: Role, rate: str) -> None:
        self.rate = rate
        self._database = database
        self._role = role.name
        self._most = max(1, int(per_second(rate) * AT_ONCE))
        self._left = 0

    def take(self, waiting: int) -> bool:
        """Take a token; return whether one of `waiting` tasks may begin now."""
        if not self._left:
            with self._database.transaction() as connection:
                self._left = limits.take(connection, self._role, min(waiting, self._most))
        if not self._left:
            return False
        self._left -= 1
        return True


class Heeded:
    """A role's limits while a ticket of it runs: a change applies from the next task on.

    If nothing has changed, and the role has no rate, each task only compares one number. `allowed`: seconds from the
    start of a task without a limit of its own until its process is stopped; `grace`: how many of those come after the
    time limit, unless the role sets that.
    """

    def __init__(self, limited: Limited, database: Database, declared: Role, grace: float) -> None:
        self._limited = limited
        self._database = database
        self.declared = declared
        self._grace = grace
        self.tokens: Tokens | None = None
        self._heed()

    def let_all(self) -> bool:
        """Return whether nothing has changed, and the role has no rate."""
        return self.tokens is None and shared.limits_as_of() == self.as_of

    def lets(self, waiting: Sequence[Started]) -> bool:
        """Return whether the first of these tasks may begin now. One whose handler will not run needs no token."""
        if shared.limits_as_of() != self.as_of:
            self._heed()
        if self.tokens is None or _falls_out(waiting[0]):
            return True
        return self.tokens.take(sum(not _falls_out(task) for task in waiting))

    def _heed(self) -> None:
        as_of = shared.limits_as_of()
        current = self._limited.of(self.declared.name)
        self.role = current.applied(self.declared)
        limit = self.role.time_limit
        self.allowed = None if limit is None else limit + self.role.grace(None, self._grace)
        if current.rate_limit is None:
            self.tokens = None
        elif self.tokens is None or self.tokens.rate != current.rate_limit:
            self.tokens = Tokens(self._database, self.declared, current.rate_limit)
        self.as_of = as_of


def _falls_out(task: Started) -> bool:
    """Return whether `celeriac.fall_out` left this task."""
    return "fall_out" in ((task.headers or {}).get("canvas") or {})
