"""Allow-lists of what a token or a login of Postgres may enqueue: roles, accounts, keys and priorities.

An entry is a name, or with `*` at its end a prefix of names. Keys are lock keys, unique keys and task ids that the
caller chooses. `celeriac.enqueue` decides in the same way for logins, in SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

from celeriac.roles.bounds import ANY_PRIORITY, NAME, SOME_TEXT, TEXT

#: Most entries of a list.
MOST = 1_000

#: The rule for entries of each list; the empty account is that of tasks without one.
_ENTRIES = {"roles": NAME, "accounts": TEXT, "keys": SOME_TEXT}


class Call(Protocol):
    """The parts of a task to be enqueued that are checked."""

    role: str
    account: str
    lock_key: str | None
    unique_key: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class Allowed:
    """The calls that are allowed; each field is None where nothing is limited. `priorities`: lowest and highest."""

    roles: list[str] | None = None
    accounts: list[str] | None = None
    keys: list[str] | None = None
    priorities: list[int] | None = None

    @classmethod
    def of(
        cls, roles: Collection[str] = (), accounts: Collection[str] = (), keys: Collection[str] = (),
        priorities: tuple[int | None, int | None] | None = None,
    ) -> Allowed:  # fmt: skip
        """Build it from options; an empty list and an open end limit nothing."""
        names = [sorted(set(one)) or None for one in (roles, accounts, keys)]
        if priorities is None:
            return cls(names[0], names[1], names[2])
        ends = zip(priorities, ANY_PRIORITY, strict=True)
        return cls(names[0], names[1], names[2], [end if wanted is None else wanted for wanted, end in ends])

    def limits(self) -> dict[str, Any]:
        """Return the fields that limit something, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def wrong(self) -> str | None:
        """Return what is wrong with the lists or priorities, None if nothing is."""
        for name, rule in _ENTRIES.items():
            entries = getattr(self, name)
            if entries and (len(entries) > MOST or not all(map(rule.fits, entries))):
                return f"{name}={entries!r:.120}: give at most {MOST:,} {name}, each {rule.right}"
        if self.priorities and not ANY_PRIORITY[0] <= self.priorities[0] <= self.priorities[1] <= ANY_PRIORITY[1]:
            return f"priorities={self.priorities}: give the lowest and the highest, within a million of 0"
        return None

    def refusal(self, call: Call, task_id: str | None = None) -> str | None:
        """Return which part of the call is not allowed, and what would be allowed; None if all is. `task_id`: given if
        the caller chose it.
        """
        return self.of_role(call.role) or next(self._beyond(call, task_id), None)

    def of_role(self, role: str) -> str | None:
        if self.roles is None or role in self.roles:
            return None
        return f"may not enqueue the role {role!r}, only {', '.join(self.roles)}: use one made with `--role {role}`"

    def _beyond(self, call: Call, task_id: str | None) -> Iterator[str]:
        keys = {"lock_key": call.lock_key, "unique_key": call.unique_key, "task_id": task_id}
        if self.accounts is not None and not _is_among(call.account, self.accounts):
            yield _not_that("account", call.account, self.accounts, "--account")
        for name, key in keys.items():
            if self.keys is not None and key is not None and not _is_among(key, self.keys):
                yield _not_that(name, key, self.keys, "--key")
        if self.priorities is not None and not self.priorities[0] <= call.priority <= self.priorities[1]:
            low, high = self.priorities
            yield f"may not enqueue with the priority {call.priority}, only with {low} to {high}: see `--priority`"


def _is_among(value: str, entries: list[str]) -> bool:
    return any(value == entry or (entry.endswith("*") and value.startswith(entry[:-1])) for entry in entries)


def _not_that(name: str, value: str, entries: list[str], option: str) -> str:
    allowed = ", ".join(map(repr, entries[:10])) + (", …" if len(entries) > 10 else "")
    return f"may not enqueue with the {name} {value!r:.120}, only with {allowed}: see `{option}`"


#: Anything that the roles accept.
ANYTHING = Allowed()
