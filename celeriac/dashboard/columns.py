"""Columns of the table of tasks: which there are, and which an address asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType

#: Each with its heading, in the order of the table. A task's number stands before them.
COLUMNS = MappingProxyType({
    "role": "Role", "account": "Account", "state": "State", "priority": "Priority", "attempt": "Attempt",
    "lock": "Lock", "unique": "Unique key", "worker": "Worker", "created": "Created", "due": "Due",
    "started": "Started", "progress": "Progress", "took": "Took", "error": "Error",
    "name": "Task id", "by": "Enqueued by",
})  # fmt: skip

#: What a table has where nobody asks for others.
USUAL = tuple(name for name in COLUMNS if name not in ("unique", "due", "progress", "name", "by"))

#: Right-aligned; and those a narrow screen has room for.
FIGURES, NARROW = ("priority", "attempt", "took"), ("role", "state", "created")


@cache
def classes(name: str) -> str:
    """Of its cells."""
    words = (("figure", name in FIGURES), ("error", name == "error"), ("more", name not in NARROW))
    return " ".join(word for word, holds in words if holds)


def chosen(asked: str | None) -> tuple[str, ...]:
    """In the table's order: those of `role,state`, or the usual ones. What is none is left out."""
    names = () if asked is None else asked.split(",")
    return tuple(name for name in COLUMNS if name in names) or USUAL


def unknown(asked: str | None) -> list[str]:
    return [] if asked is None else sorted(set(asked.split(",")) - COLUMNS.keys())


def switched(shown: Sequence[str], name: str) -> str | None:
    """What an address says that has this column as well, or not any more; None: that are the usual ones."""
    names = tuple(one for one in COLUMNS if (one in shown) != (one == name))
    return None if names in (USUAL, ()) else ",".join(names)
