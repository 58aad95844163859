"""Parts: read a task's place in its workflow from a Celery message, in the form that the task's row keeps.

A member of a chord has a barrier, which holds the chord's body back until the member has finished, and a place, where
its result goes. A chain's link that is not the last has the last link's barrier but no place: it delivers nothing, and
no barrier looks complete between two links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

#: A placeholder among a body's arguments for its members' results, which are read as the body starts.
RESULTS = "celeriac: the results of the members"

#: Marks a chord's body that is a row already: with its whole signature each member would be as large as the body.
STORED = "celeriac_stored"

#: The fields that a row keeps of a message's headers and of its body's `embed`, under Celery's names for a request.
_HEADERS = ("group", "group_index", "root_id", "parent_id", "stamped_headers", "stamps", "replaced_task_nesting")
_LISTS = ("callbacks", "errbacks", "chain")

#: Headers that show that a task belongs to a workflow.
_SIGNS = ("group", "stamped_headers", "replaced_task_nesting")


@dataclass(frozen=True, slots=True)
class Part:
    """A task's part in its workflow. `request`: the fields of `self.request` about the workflow. `barrier`: that of the
    chord whose body waits for the task. `body`: that chord's body, unless it is a row already.
    """

    request: dict[str, Any]
    barrier: str | None = None
    place: int | None = None
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """The chord that a signature's result goes to."""

    body: Mapping[str, Any]
    group: Any
    place: int | None


def part_of(headers: Mapping[str, Any], embedded: Mapping[str, Any]) -> Part | None:
    """Return the task's part in its workflow, as its message describes it; None if it has none."""
    if not any(headers.get(sign) for sign in _SIGNS) and not any(embedded.get(part) for part in (*_LISTS, "chord")):
        return None
    request = {name: headers[name] for name in _HEADERS if headers.get(name) not in (None, [], {}, 0)}
    if headers.get("group_index") is not None:
        request["group_index"] = headers["group_index"]
    request |= {name: [_without_bodies(one) for one in embedded[name]] for name in _LISTS if embedded.get(name)}
    if embedded.get("chord"):
        request["chord"] = {"task": embedded["chord"]["task"], "id": _id_of(embedded["chord"])}
    goal = _goal_of(headers, embedded)
    if goal is None:
        return Part(request)
    is_stored = STORED in goal.body.get("options", {})
    return Part(request, barrier_of(goal.group), goal.place, None if is_stored else goal.body)


@lru_cache(maxsize=256)
def barrier_of(group: object) -> str:
    """Return the barrier of the chord whose header is the group with this id."""
    return str(UUID(str(group))) if is_uuid(group) else str(uuid5(NAMESPACE_OID, str(group)))


def is_uuid(value: object) -> bool:
    try:
        UUID(str(value))
    except ValueError:
        return False
    return True


def _goal_of(headers: Mapping[str, Any], embedded: Mapping[str, Any]) -> Goal | None:
    if embedded.get("chord"):
        return Goal(embedded["chord"], headers.get("group"), headers.get("group_index") or 0)
    chain = embedded.get("chain")
    if not chain or (goal := goal_of(chain[0])) is None:
        return None
    return Goal(goal.body, goal.group, None)


def goal_of(signature: Mapping[str, Any]) -> Goal | None:
    """Return the chord to which the result of this signature, or of the workflow it is, goes. (A chain lists its last
    link first.)
    """
    options = signature.get("options") or {}
    if options.get("chord"):
        return Goal(options["chord"], options.get("group_id"), options.get("group_index"))
    last = _last(signature)
    return None if last is None else goal_of(last)


def _last(signature: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part whose result is that of the whole workflow, or None."""
    kwargs = signature.get("kwargs") or {}
    match signature.get("subtask_type"):
        case "chord":
            return kwargs.get("body")
        case "chain" | "group":
            tasks = kwargs.get("tasks")
            return tasks[-1] if isinstance(tasks, Sequence) and tasks else None
    return None


def _without_bodies(signature: Any) -> Any:
    """Return the signature with short names in place of the bodies that its results go to."""
    if not isinstance(signature, Mapping):
        return signature
    made = dict(signature)
    options = {k: v for k, v in (made.get("options") or {}).items() if k not in ("session", "connection")}
    made["options"] = options | ({"chord": named(options["chord"])} if options.get("chord") else {})
    kwargs = made.get("kwargs") or {}
    match made.get("subtask_type"):
        case "chord" if kwargs.get("body"):
            made["kwargs"] = {**kwargs, "body": _without_bodies(kwargs["body"])}
        case "chain" | "group" if isinstance(kwargs.get("tasks"), Sequence):
            made["kwargs"] = {**kwargs, "tasks": [_without_bodies(task) for task in kwargs["tasks"]]}
    return made


def named(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stand-in for a body that has its row already, with all that Celery needs to know of it."""
    return stored_body(body["task"], _id_of(body))


def stored_body(task: str, id: str | None) -> dict[str, Any]:  # noqa: A002 - what a member's row keeps of it
    """Return the stand-in for a stored body, by task name and id: see `named`."""
    return {
        "task": task, "args": [], "kwargs": {}, "subtask_type": None, "immutable": False,
        "options": {"task_id": id, STORED: True},
    }  # fmt: skip


def _id_of(body: Mapping[str, Any]) -> str | None:
    task_id: str | None = (body.get("options") or {}).get("task_id")
    return task_id


def flattened(chain: Any) -> list[Any]:
    """Return the tasks that a chain's links are made of, each with an id that somebody may wait for.

    No task ever comes under the id of a group or a chord itself:
    a chord's result is its body's, a chain's its last link's.
    """
    tasks: list[Any] = []
    for link in chain or []:
        kwargs = link.get("kwargs") or {}
        match link.get("subtask_type"):
            case "group" | "chain":
                tasks += flattened(kwargs.get("tasks"))
            case "chord":
                header = kwargs.get("header")
                tasks += flattened([header] if isinstance(header, Mapping) else header) + flattened([kwargs["body"]])
            case _:
                tasks.append(link)
    return tasks
