"""New rows before they are inserted, and the receipts of their insert."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from celeriac.store.role_names import lane_of


@dataclass(frozen=True, slots=True)
class Rest:
    """The links of a long chain behind those that its next task's row carries, as JSON in blocks, the next block first.

    `chain`: its id (UUID), which the last entry that the row carries names.
    """

    chain: str
    workflow: str
    blocks: list[list[Any]]


@dataclass(slots=True, kw_only=True)
class NewTask:
    """A row before it is inserted. Nobody changes one; it is not frozen only because that costs each a microsecond.

    `args`, `kwargs`: JSON, an array and an object. `queue` None: the role's first. `delay` (seconds from the database's
    now) or `at` (ISO 8601), or neither: due at once. `retry_count`: retries it had before it became a row. `is_named`
    False: its id was made for it just now, so nobody else can have it. `workflow`: the id of the workflow's first task.
    `barrier`: the id of the barrier that this task holds shut until it has finished; its result goes to `place`, if
    there is one. `awaits`: the barrier this task waits at. `is_part`: another task of its workflow waits for this very
    one. `again`: a finished task with its id is deleted, because its workflow begins anew. `rest`: the
    links of its chain that its row does not carry.
    """

    task_id: str
    role: str
    queue: str | None = None
    account: str = ""
    lock_key: str | None = None
    unique_key: str | None = None
    priority: int = 0
    args: str
    kwargs: str
    headers: dict[str, Any] | None = None
    delay: float | None = None
    at: str | None = None
    expires_in: float | None = None
    expires_at: str | None = None
    max_retries: int | None = 0
    max_rounds: int = 1
    timeout: float | None = None
    parent_id: int | None = None
    enqueued_by: str | None = None
    is_named: bool = True
    retry_count: int | None = None
    workflow: str | None = None
    barrier: str | None = None
    place: int | None = None
    awaits: str | None = None
    is_part: bool = False
    again: bool = False
    rest: Rest | None = None

    @property
    def lane(self) -> str:
        return self.role if self.queue is None else lane_of(self.role, self.queue)

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments as JSON values."""
        return json.loads(self.args), json.loads(self.kwargs)


@dataclass(slots=True)
class Receipt:
    """The result of an enqueue: the new row, or the one that has its key or id. Nobody changes it, as with NewTask.

    `waits_for`: time or lock; None if it may start now, or has. `due_at`: when an existing row is due, if it waits for
    a time. `differs`: that row has the id, but another role or other arguments.
    """

    id: int
    task_id: str
    is_new: bool
    waits_for: str | None = None
    due_at: datetime | None = None
    differs: bool = False


#: The fields of a row except its arguments.
FIELDS = tuple(name for name in NewTask.__slots__ if name not in ("args", "kwargs", "is_part", "again", "rest"))

_fields = attrgetter(*FIELDS)


def as_json(tasks: Sequence[NewTask]) -> str:
    return f"[{', '.join(map(_as_json, tasks))}]"


def _as_json(task: NewTask) -> str:
    said = {name: value for name, value in zip(FIELDS, _fields(task), strict=True) if value is not None}
    return _object(task, said)


def keys_as_json(tasks: Sequence[NewTask]) -> str:
    """Return as JSON what the search for tasks with their ids and unique keys needs."""
    known = ("task_id", "role", "unique_key")
    return f"[{', '.join(_object(task, {name: getattr(task, name) for name in known}) for task in tasks)}]"


def _object(task: NewTask, said: dict[str, Any]) -> str:
    return f'{{"args": {task.args}, "kwargs": {task.kwargs}, {json.dumps(said)[1:]}'


def same_call(task: NewTask, other: NewTask) -> bool:
    """Return whether both would run the same handler with the same arguments."""
    return task.role == other.role and task.arguments == other.arguments
