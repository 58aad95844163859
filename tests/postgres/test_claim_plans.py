"""What a claim costs grows with what it claims, and no faster: as the engine's own pass executes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from celeriac.store.patience import UNSAID
from tests.postgres.passes import Passes, Waiting, policy, role
from tests.postgres.plans import Plan
from tests.processes import Rows

N = 400


@contextmanager
def claims_explained() -> Iterator[list[Plan]]:
    """Each claim is explained, and taken back, right before it is executed."""
    found: list[Plan] = []

    def explain(connection: Connection, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if "WITH taken AS" in statement and "FOR UPDATE SKIP LOCKED" in statement:
            cursor.execute(f"{connection.info.pop(UNSAID, '')}SAVEPOINT explained")
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}", parameters)
            found.append(Plan(cursor.fetchone()[0][0]["Plan"], {}))
            cursor.execute("ROLLBACK TO explained")

    event.listen(Engine, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", explain)


@pytest.mark.parametrize("accounts", [1, 20])
def test_a_claim_compares_no_entry_with_each_other(passes: Passes, waiting: Waiting, rows: Rows, accounts: int) -> None:
    waiting(**{f"a{n}": N // accounts * 2 for n in range(accounts)})
    policy(rows, "a0", weight=2)
    with claims_explained() as plans:
        given = passes.given(role(batch_size=N))
    assert sum(given.values()) == N
    (plan,) = plans
    removed = sum(n.get("Rows Removed by Join Filter", 0) * n["Actual Loops"] for n in plan.nodes)
    assert removed <= 5 * N, str(plan)
