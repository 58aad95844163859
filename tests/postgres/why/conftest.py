"""A role with a worker that lives, and what is said of its tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.enqueue.rows import Receipt
from celeriac.insights import Check, Why
from celeriac.roles.role import Role
from tests.processes import Rows

REGISTER = "INSERT INTO roles (role, definition) VALUES (:role, CAST(:definition AS jsonb))"
WORKER = """INSERT INTO workers (worker_id, hostname, pid, queues, concurrency, status, resources, last_heartbeat_at)
    VALUES (:id, 'h', 1, '["work"]', :n, :status, CAST(:resources AS jsonb), now() - :age * interval '1 second')"""


class World:
    """A role, whoever serves it, and what is said of its tasks."""

    def __init__(self, app: Celeriac, rows: Rows) -> None:
        self.app, self.rows = app, rows
        self.role = Role(name="work")

    def declare(self, **options: Any) -> None:
        self.role = Role(name="work", **options)
        self.rows("DELETE FROM roles WHERE role = 'work'")
        self.rows(REGISTER, role="work", definition=json.dumps(self.role.definition()))

    def serve(self, name: str = "w-1", n: int = 2, status: str = "active", age: float = 1, **resources: Any) -> None:
        self.rows(WORKER, id=name, n=n, status=status, age=age, resources=json.dumps(resources))

    def why(self, task: Receipt) -> Why:
        return self.app.why(task.id)

    def reason(self, task: Receipt) -> str:
        told = self.why(task)
        no = [check for check in told.checks if check.outcome == "no"]
        assert [check.reason for check in no] in ([], [told.reason]), "one no, and it is the reason"
        if no:
            (first,) = no
            assert told.headline == first.sentence
            later = told.checks[told.checks.index(first) + 1 :]
            assert {check.outcome for check in later} <= {"not asked"}
        return told.reason

    def check(self, task: Receipt, name: str) -> Check:
        (found,) = [check for check in self.why(task).checks if check.name == name]
        return found

    def claims(self, task: Receipt) -> bool:
        """Whether the next pass of the role takes it."""
        self.app.dispatcher.publish(self.app.dispatcher.run_pass(self.role).tickets)
        return self.rows("SELECT status FROM worker_tasks WHERE id = :id", id=task.id) == [("claimed",)]

    def do(self, act: Callable[..., Any], *given: Any) -> None:
        with self.app.database.transaction() as connection:
            act(connection, *given, by="ann")


@pytest.fixture
def world(app: Celeriac, rows: Rows) -> World:
    """A role with a worker that lives."""
    world = World(app, rows)
    world.declare()
    world.serve()
    return world
