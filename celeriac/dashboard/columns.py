"""The columns of the table of tasks, and the choice of them in an address."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType

#: Each column with its heading, in the table's order. The task's id precedes them.
COLUMNS = MappingProxyType({
    "role": "Role", "account": "Account", "state": "State", "priority": "Priority", "attempt": "Attempt",
    "lock": "Lock", "unique": "Unique key", "worker": "Worker", "created": "Created", "due": "Due",
    "started": "Started", "progress": "Progress", "took": "Took", "error": "Error",
    "name": "Task id", "by": "Enqueued by",
})  # fmt: skip

#: The columns by default.
USUAL = tuple(name for name in COLUMNS if name not in ("unique", "due", "progress", "name", "by"))

#: The right-aligned columns; and those that a narrow screen shows.
FIGURES, NARROW = ("priority", "attempt", "took"), ("role", "state", "created")


@cache
def classes(name: str) -> str:
    """Return the classes of the column's cells."""
    words = (("figure", name in FIGURES), ("error", name == "error"), ("more", name not in NARROW))
    return " ".join(word for word, holds in words if holds)


def chosen(asked: str | None) -> tuple[str, ...]:
    """Return the columns in a text like `role,state`, in the table's order; the usual ones if it names none."""
    names = () if asked is None else asked.split(",")
    return tuple(name for name in COLUMNS if name in names) or USUAL


def unknown(asked: str | None) -> list[str]:
    return [] if asked is None else sorted(set(asked.split(",")) - COLUMNS.keys())


def switched(shown: Sequence[str], name: str) -> str | None:
    """Return the columns as text, with this one added or removed; None for the usual ones."""
    names = tuple(one for one in COLUMNS if (one in shown) != (one == name))
    return None if names in (USUAL, ()) else ",".join(names)
