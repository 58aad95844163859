"""Passes of one role, and what each account got of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from celeriac.dispatch.passes import Dispatcher, Pass
from celeriac.roles.role import Role
from tests.processes import Rows

Waiting = Callable[..., None]
Given = dict[str, int]

ROLE = Role(name="work", batch_size=60, window=10_000, chunk=1, prompt=False)


def role(**options: Any) -> Role:
    return Role(**({"name": "work", "batch_size": 60, "window": 10_000, "chunk": 1, "prompt": False} | options))


def policy(rows: Rows, account: str, **columns: Any) -> None:
    row = {"weight": 1, "cap": None, "paused": False} | columns
    rows(
        "INSERT INTO celeriac.account_policies (account, weight, cap, paused)"
        " VALUES (:account, :weight, :cap, :paused)",
        account=account,
        **row,
    )


def ids_of(done: Pass) -> list[int]:
    return [i for ticket in done.tickets for i in ticket.ids]


def by_account(rows: Rows, ids: Iterable[int]) -> Given:
    found = rows("SELECT account, count(*) FROM worker_tasks WHERE id = ANY(:ids) GROUP BY account", ids=list(ids))
    return dict(found)  # type: ignore[arg-type]


#: Written directly: the view moves one task at a time.
FINISH = """
WITH tickets AS (DELETE FROM celeriac.tickets RETURNING ids, worker_id, claimed_at, started_at),
    ended AS (
        DELETE FROM celeriac.tasks USING tickets WHERE id = ANY(ids)
        RETURNING tasks.*, tickets.worker_id, tickets.claimed_at, tickets.started_at AS began)
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, aged, worker_id, created_at, scheduled_for,
    claimed_at, started_at, completed_at, retry_count, max_retries, tries, max_rounds, losses, args, kwargs)
SELECT id, task_id, role, account, 'completed', priority, aged, worker_id, created_at, scheduled_for, claimed_at, began,
    now(), retry_count, max_retries, tries, max_rounds, losses, args, kwargs
FROM ended
"""


def finish(rows: Rows) -> None:
    """Complete whatever is active. It has neither keys nor a place in a workflow."""
    rows(FINISH)


class Passes:
    """Passes of one role, and what each account got of them."""

    def __init__(self, dispatcher: Dispatcher, rows: Rows) -> None:
        self.dispatcher = dispatcher
        self.rows = rows

    def given(self, of: Role = ROLE) -> Given:
        return by_account(self.rows, ids_of(self.dispatcher.run_pass(of)))

    def finished(self, of: Role = ROLE) -> Given:
        given = self.given(of)
        finish(self.rows)
        return given

    def why_nothing(self, of: Role = ROLE) -> str | None:
        done = self.dispatcher.run_pass(of)
        assert not done.tickets
        return done.why_nothing

    def written(self, columns: str) -> Sequence[tuple[Any, ...]]:
        return self.rows(f"SELECT {columns} FROM celeriac.passes ORDER BY id")
