"""Columns of the table of tasks: all of them, and those that an address selects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType

#: Each column with its heading, in the table's order. A task's number stands before them.
COLUMNS = MappingProxyType({
    "role": "Role", "account": "Account", "state": "State", "priority": "Priority", "attempt": "Attempt",
    "lock": "Lock", "unique": "Unique key", "worker": "Worker", "created": "Created", "due": "Due",
    "started": "Started", "progress": "Progress", "took": "Took", "error": "Error",
    "name": "Task id", "by": "Enqueued by",
})  # fmt: skip

#: The columns by default.
USUAL = tuple(name for name in COLUMNS if name not in ("unique", "due", "progress", "name", "by"))

#: Right-aligned columns; and those for which a narrow screen has space.
FIGURES, NARROW = ("priority", "attempt", "took"), ("role", "state", "created")


@cache
def classes(name: str) -> str:
    """Return the classes of the column's cells."""
    words = (("figure", name in FIGURES), ("error", name == "error"), ("more", name not in NARROW))
    return " ".join(word for word, holds in words if holds)


def chosen(asked: str | None) -> tuple[str, ...]:
    """Return the columns of `role,state` in the table's order, or the usual ones. Unknown names are left out."""
    names = () if asked is None else asked.split(",")
    return tuple(name for name in COLUMNS if name in names) or USUAL


def unknown(asked: str | None) -> list[str]:
    return [] if asked is None else sorted(set(asked.split(",")) - COLUMNS.keys())


def switched(shown: Sequence[str], name: str) -> str | None:
    """Return an address's value with this column added or removed; None for the usual ones."""
    names = tuple(one for one in COLUMNS if (one in shown) != (one == name))
    return None if names in (USUAL, ()) else ",".join(names)
