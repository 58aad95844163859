"""Assertions on enqueued tasks, and rows in any state."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import Connection, text

from celeriac.dispatch.claim import fresh_token
from celeriac.enqueue.intake import new_task
from celeriac.errors import BadValue, CeleriacError
from celeriac.insights.tasks import tasks
from celeriac.roles.signature import Signature
from celeriac.run.shared import worker_id
from celeriac.seam.task import Task
from celeriac.store.encoding import encoded, revived
from celeriac.store.ids import fresh_id
from celeriac.store.invariants import violations
from celeriac.store.states import (
    CANCELLED,
    CLAIMED,
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    WAITS_FOR_MEMBERS,
    WAITS_FOR_TIME,
)
from celeriac.testing.here import the_app
from celeriac.testing.within import within

if TYPE_CHECKING:
    from celeriac.app import Celeriac

Row = dict[str, Any]

#: Seconds between two checks of `assert_enqueued(within=…)`.
LOOK_EVERY = 0.02

#: Maximum number of rows that a failed assertion lists.
LISTED = 20

ENQUEUED = text("""
SELECT * FROM celeriac.unfinished
WHERE (CAST(:role AS text) IS NULL OR role = :role) AND (CAST(:account AS text) IS NULL OR account = :account)
ORDER BY id
""")


def enqueued(
    role: str | Task[..., Any] | None = None, *, account: str | None = None, app: Celeriac | None = None
) -> list[Row]:
    """Return the unfinished tasks, as rows of `worker_tasks`, the oldest first. Raises UnknownRole."""
    app = the_app(app)
    name = None if role is None else app.role_named(getattr(role, "name", role))[0].name
    with within(app), app.database.reading() as connection:
        rows = connection.execute(ENQUEUED, {"role": name, "account": account}).mappings().all()
    return [{**row, "args": revived(row["args"]), "kwargs": revived(row["kwargs"])} for row in rows]


def assert_enqueued(
    role: str | Task[..., Any], *, account: str | None = None, args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None, count: int | None = None, within: float = 0.0,
    app: Celeriac | None = None,
) -> list[Row]:  # fmt: skip
    """Assert that the role has unfinished tasks with these arguments, among others; with `count`, exactly so many.

    Arguments are compared by parameter name, whether a call gave them by position or by name. `within`: seconds to wait
    for the tasks.
    """
    until = time.monotonic() + within
    while True:
        rows = _matching(the_app(app), role, account, args, kwargs)
        if len(rows) == count or (count is None and rows):
            return rows
        if time.monotonic() >= until:
            wanted = "none" if count is None else f"{len(rows)} instead of {count}"
            raise AssertionError(
                f"{wanted} enqueued of {_asked(role, account, args, kwargs)}; {_unfinished(the_app(app))}"
            )
        time.sleep(LOOK_EVERY)


def refute_enqueued(
    role: str | Task[..., Any], *, account: str | None = None, args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None, app: Celeriac | None = None,
) -> None:  # fmt: skip
    """Assert that the role has no unfinished task with these arguments."""
    if rows := _matching(the_app(app), role, account, args, kwargs):
        raise AssertionError(
            f"{len(rows)} enqueued of {_asked(role, account, args, kwargs)}; {_unfinished(the_app(app))}"
        )


def _matching(app: Celeriac, role: Any, account: str | None, args: Any, kwargs: Any) -> list[Row]:
    rows = enqueued(role, account=account, app=app)
    signature = app.role_named(getattr(role, "name", role))[1]
    wanted = _by_name(signature, args, kwargs or {}, partial=True)
    return [row for row in rows if wanted.items() <= _by_name(signature, row["args"], row["kwargs"]).items()]


def _by_name(signature: Signature, args: Any, kwargs: Mapping[str, Any], *, partial: bool = False) -> dict[str, str]:
    """Return each argument's JSON by parameter name.

    Raises TypeError for an argument that the handler does not take.
    """
    bound = signature.inner.bind_partial(*args, **kwargs)
    if not partial:
        bound.apply_defaults()
    named = dict(bound.arguments)
    for parameter in signature.inner.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
    return {name: json.dumps(encoded(value, inf), sort_keys=True) for name, value in named.items()}


def _asked(role: Any, account: str | None, args: Any, kwargs: Any) -> str:
    parts = [f"args {tuple(args)!r}"] * bool(args) + [f"kwargs {kwargs!r}"] * bool(kwargs)
    parts += [f"account {account!r}"] * (account is not None)
    return f"{getattr(role, 'name', role)!r}" + (f" with {', '.join(parts)}" if parts else "")


def _unfinished(app: Celeriac) -> str:
    rows = enqueued(app=app)
    lines = [f"\n  {row['role']} {row['args']} {row['kwargs']} ({row['status']})" for row in rows[:LISTED]]
    return f"{len(rows)} are unfinished:{''.join(lines)}" if rows else "nothing is unfinished"


# -- rows in any state -------------------------------------------------------------------------------------------------


def task_row(
    task: Task[..., Any], args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, *, state: str = PENDING,
    waits_for: str | None = None, **columns: Any,
) -> Row:  # fmt: skip
    """Insert a row in this state (pending, claimed, running, completed, failed or cancelled) without running the task.

    `waits_for`: the reason a pending row waits (time, lock, account or members). `columns`: further columns of
    `worker_tasks`, as in `task_row(sync, (7,), state="running", worker_id="gone", losses=2)`. Raises EnqueueRefused;
    CeleriacError for a row that breaks an invariant; Postgres' error for an impossible one.
    """
    app = task.app
    new = new_task(
        task.role, app.role_named(task.name)[1], columns.pop("task_id", fresh_id()), tuple(args), kwargs or {},
        limit=app.settings.max_argument_bytes,
    )  # fmt: skip
    arguments = dict(zip(("args", "kwargs"), new.arguments, strict=True))
    called = {name: getattr(new, name) for name in OF_CALL} | arguments
    with app.database.transaction() as connection:
        now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        said = {"status": state, "waits_for": waits_for}
        row = _insert(connection, called | usual(state, waits_for, now) | said | columns)
        if broken := violations(connection):
            raise CeleriacError(f"task_row: {'; '.join(broken)}")
    with app.database.reading() as connection:
        return tasks.get(connection, row)


def usual(state: str, waits_for: str | None, now: datetime) -> dict[str, Any]:
    """Return the usual columns of a row in this state, except its call's. Raises BadValue for an unknown state."""
    ticket = {"token": fresh_token(), "claimed_at": now}
    worker = {"claimed_at": now, "started_at": now, "worker_id": worker_id(), "worker_pid": os.getpid()}
    states: dict[str, dict[str, Any]] = {
        PENDING: _waiting(waits_for, now),
        CLAIMED: ticket,
        RUNNING: ticket | worker | {"last_heartbeat_at": now},
        COMPLETED: worker | {"completed_at": now},
        FAILED: worker | {"completed_at": now, "error_message": "made by task_row"},
        CANCELLED: {"completed_at": now, "error_message": "made by task_row"},
    }
    if state not in states:
        raise BadValue(f"task_row(state={state!r}): give one of {', '.join(states)}")
    return states[state]


def _waiting(waits_for: str | None, now: datetime) -> dict[str, Any]:
    if waits_for == WAITS_FOR_TIME:
        return {"scheduled_for": now + timedelta(hours=1)}
    return {"headers": {"canvas": {"awaits": str(uuid4())}}} if waits_for == WAITS_FOR_MEMBERS else {}


def _insert(connection: Connection, row: Mapping[str, Any]) -> int:
    columns = {name: json.dumps(encoded(value, inf)) if name in JSON else value for name, value in row.items()}
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    written = text(f"INSERT INTO celeriac.worker_tasks ({names}) VALUES ({values}) RETURNING id")
    return int(connection.execute(written, columns).scalar_one())


#: Columns that the call sets.
OF_CALL = (
    "task_id", "role", "account", "lock_key", "unique_key", "priority", "max_retries", "max_rounds",
)  # fmt: skip

JSON = ("args", "kwargs", "headers", "progress", "result")
