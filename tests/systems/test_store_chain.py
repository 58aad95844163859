"""A finished store_discovery has all its follow-ups, an unfinished one has none: wherever its worker is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.app import app
from tasks.stores import store_discovery
from tests.processes import Rows, until
from tests.systems.chain_killer import ARMED
from tests.systems.stack import Stack, on_servers

STORES = 3

#: More than the completing transaction has; the last ones come to no harm, which shows that there are no others.
BOUNDARIES = 18

BROKEN = """
SELECT p.kwargs ->> 'state_code', p.status, count(c.id)
FROM worker_tasks p LEFT JOIN worker_tasks c ON c.parent_id = p.id
WHERE p.role = 'store_discovery' GROUP BY p.id, p.kwargs, p.status
HAVING count(c.id) <> CASE p.status WHEN 'completed' THEN :stores ELSE 0 END
"""

UNFINISHED = "SELECT count(*) FROM worker_tasks WHERE role = 'store_discovery' AND status <> 'completed'"


@pytest.fixture
def kills(stack: Stack, tmp_path: Path) -> Iterator[Path]:
    """A worker that dies as told; the file in which it notes each death."""
    notes = tmp_path / "kills"
    stack.worker("store_discovery", include="tests.systems.chain_killer", KILLS=str(notes))
    with on_servers(app, stack.environ):
        yield notes


def intact_and_done(rows: Rows) -> bool:
    assert rows(BROKEN, stores=STORES) == []
    return rows.one(UNFINISHED) == 0


def test_a_worker_killed_at_any_boundary_of_the_completion_leaves_all_or_nothing(stack: Stack, kills: Path) -> None:
    states = [f"{ARMED}{n}" for n in range(1, BOUNDARIES + 1)]
    for state in states:
        stack.outside.menus.open_stores(STORES, state=state)
        store_discovery.delay("dutchie", state)
    until(lambda: intact_and_done(stack.rows), "all discoveries")
    noted = kills.read_text().splitlines()
    losses = "SELECT losses FROM worker_tasks WHERE role = 'store_discovery' ORDER BY id"
    survived = [1] * (len(noted) - 1) + [0] * (BOUNDARIES - len(noted) + 1)  # after COMMIT there is nothing to lose
    assert [loss for (loss,) in stack.rows(losses)] == survived
    statements = (
        "INSERT INTO dispensaries", "SELECT id FROM", "SET LOCAL idle_in_transaction_session_timeout",
        "WITH held AS", "SAVEPOINT briefly; WITH", "WITH given AS", "SET LOCAL lock_timeout",
        "RELEASE SAVEPOINT celeriac_settle;", "COMMIT",
    )  # fmt: skip
    assert sorted(noted) == sorted(f"{when} {statement}" for statement in statements for when in ("before", "after"))
