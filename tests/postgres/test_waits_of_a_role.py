"""What a role's tasks wait for, counted by reason, is what `why` says of each of them."""

from __future__ import annotations

from collections import Counter

import pytest

from celeriac import insights
from celeriac.errors import Unknown
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.passes import policy
from tests.postgres.test_why_and_passes import ALIVE, BY_DAY, BY_NIGHT, MORE, drawn, set_up
from tests.processes import Rows


def counted(database: Database) -> dict[str, int]:
    with database.reading() as connection:
        found = insights.waits_of(connection, "work")
    assert all(one.n.exact for one in found)
    counted = Counter[str]()
    for one in found:
        counted[one.reason] += one.n.n
    return dict(counted)


@pytest.mark.parametrize("seeds", [BY_DAY, pytest.param(BY_NIGHT, marks=MORE)])
def test_so_many_wait_for_each_reason_as_why_says_so_of(seeds: range, database: Database, rows: Rows) -> None:
    seen = set()
    for seed in seeds:
        set_up(drawn(seed), database, rows)
        ready = [t for (t,) in rows("SELECT id FROM worker_tasks WHERE status = 'pending' AND waits_for IS NULL")]
        with database.reading() as connection:
            why = Counter(insights.why(connection, task).reason for task in ready)
            told = Counter[str]()
            for one in insights.waits_of(connection, "work"):
                if one.room == "nothing":
                    told[one.reason] += one.n.n
        assert told == why, f"seed {seed}: {drawn(seed)}"
        seen |= set(told)
    assert {"runnable", "not_its_turn", "window_full", "account_cap", "account_paused", "rate", "role_paused"} <= seen


def test_what_is_not_ready_waits_for_what_its_room_says(database: Database, rows: Rows) -> None:
    for statement in ALIVE:
        rows(statement)
    stages.enqueued(database, new_task(delay=60), new_task(lock_key="k"), new_task(lock_key="k"))
    stages.looked(database)
    assert counted(database) == {"later": 1, "lock": 1, "role_unknown": 1}
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    with database.reading() as connection:
        (first, *_) = insights.waits_of(connection, "work")
    assert (first.reason, first.until is not None, first.says) == ("runnable", True, "next in line: a pass")
    rows("DELETE FROM workers")
    rows("DELETE FROM beats")
    assert counted(database) == {"later": 1, "lock": 1, "no_worker": 1}


def test_who_has_a_fair_share_is_told_from_who_has_not(database: Database, rows: Rows) -> None:
    for statement in ALIVE:
        rows(statement)
    rows("""INSERT INTO roles (role, definition) VALUES ('work', '{"window": 4}')""")
    stages.enqueued(database, *[new_task(account="many") for _ in range(9)])
    stages.claimed(database, n=4, account="many")
    stages.enqueued(database, new_task(account="few"), new_task(account="capped"))
    policy(rows, "capped", cap=0)
    with database.reading() as connection:
        told = {one.says.partition("; ")[2] or one.says: one.n.n for one in insights.waits_of(connection, "work")}
    assert told == {
        "their account may have nothing": 1,
        "their account holds less than its fair share": 1,
        "their account holds its fair share": 5,
    }


def test_of_a_role_nobody_knows_nothing_is_told(database: Database) -> None:
    with database.reading() as connection, pytest.raises(Unknown, match="no role"):
        insights.waits_of(connection, "work")
