"""Where dead entries pile up, a pass goes on where the last one stopped, and looks from the front often enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.dispatch import claim, resuming, select
from celeriac.dispatch.passes import Dispatcher
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.passes import Passes, Waiting, policy, role
from tests.postgres.plans import explain
from tests.postgres.stages import enqueued
from tests.processes import Rows, until

#: With no way round by worker_tasks.
FILL = """
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT 0, 'work', '', 0, now(), i FROM generate_series(1, :n) AS i
"""

TEN = role(batch_size=10)

POINTS = "SELECT points FROM batchers WHERE points IS NOT NULL AND rescan_at > now()"


@pytest.fixture
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scan from the front counts as slow, and what it leaves holds for as long as a test may take."""
    monkeypatch.setattr(resuming, "DEAR", 0.0)
    monkeypatch.setattr(resuming, "DEAD", 0)
    monkeypatch.setattr(resuming, "TIMES", 1e9)
    monkeypatch.setattr(resuming, "LONGEST", 1e6)


def rescan(rows: Rows) -> None:
    """The time has come to look from the front."""
    rows("UPDATE celeriac.batchers SET rescan_at = now()")


def points(rows: Rows) -> set[str]:
    """The accounts that have some."""
    return {account for (stored,) in rows(POINTS) for account in stored}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("old_transaction")
@pytest.mark.breaks_invariants
def test_a_pass_behind_resume_points_meets_no_dead_entry(database: Database, rows: Rows) -> None:
    rows(FILL, n=20_000)
    rows("DELETE FROM celeriac.ready WHERE id <= 19900")
    with database.transaction() as connection:
        assert select.lock_pass(connection, "work")
        front = explain(connection, claim.CLAIM, role="work", accounts=[""], slots=[10])
        (point,) = claim.reached(claim.claim(connection, "work", {"": 10})).items()
        wanted: dict[str, Any] = {"role": "work", "accounts": [""], "slots": [10], "points": json.dumps(dict([point]))}
        assert explain(connection, claim.CLAIM_BEHIND, **wanted).pages < front.pages / 5
        wanted = {"role": "work", "cursor": "", "accounts": 10, "depth": 16}
        front = explain(connection, select.CLAIMANTS, **wanted)
        wanted["points"] = json.dumps(dict([point]))
        assert explain(connection, select.CLAIMANTS_BEHIND, **wanted).pages < front.pages / 5


@pytest.mark.usefixtures("dear")
def test_it_takes_what_stands_behind_them_each_once_and_in_turn(
    passes: Passes, database: Database, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=50, b=50, c=50)
    assert passes.given(TEN) == {"a": 4, "b": 3, "c": 3}
    assert points(rows) == {"a", "b", "c"}
    enqueued(database, new_task(account="0"), new_task(account="a", priority=9))
    assert [passes.given(TEN) for _ in range(2)] == [{"a": 2, "b": 4, "c": 4}, {"a": 4, "b": 3, "c": 3}]
    in_order = "SELECT array_agg(id ORDER BY id) FROM worker_tasks WHERE account = 'a' AND status = :status"
    (taken, left) = [rows.one(in_order, status=status) for status in ("claimed", "pending")]
    assert len(taken) == 10  # type: ignore[arg-type]
    assert max(taken) < min(left)  # type: ignore[type-var]
    rescan(rows)
    assert passes.given(TEN)["0"] == 1
    assert rows.one("SELECT status FROM worker_tasks WHERE priority = 9") == "claimed"


@pytest.mark.usefixtures("dear")
def test_where_too_little_stands_behind_them_the_fronts_are_looked_at(
    passes: Passes, database: Database, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=15)
    assert passes.given(TEN) == {"a": 10}
    enqueued(database, new_task(account="a", priority=9), new_task(account="b"))
    assert passes.given(TEN) == {"a": 6, "b": 1}
    assert passes.why_nothing(TEN) == "nothing is ready"
    assert not points(rows)


@pytest.mark.usefixtures("dear")
def test_an_account_that_is_paused_meanwhile_gets_nothing_and_one_with_a_cap_no_more(
    passes: Passes, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=50, b=50, c=50)
    passes.given(TEN)
    policy(rows, "a", paused=True)
    policy(rows, "b", cap=4)
    assert passes.given(TEN) == {"b": 1, "c": 9}


@pytest.mark.usefixtures("dear")
def test_what_others_have_locked_is_looked_for_again(passes: Passes, database: Database, waiting: Waiting) -> None:
    waiting(a=30)
    assert passes.given(TEN) == {"a": 10}
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.ready ORDER BY priority DESC, due_at, id LIMIT 15 FOR UPDATE")
        assert passes.given(TEN) == {"a": 5}
    assert passes.given(TEN) == {"a": 10}
    assert passes.given(TEN) == {"a": 5}


@pytest.mark.usefixtures("dear")
def test_whoever_asks_for_work_is_sent_to_the_pass_while_points_hold(
    passes: Passes, dispatcher: Dispatcher, waiting: Waiting
) -> None:
    waiting(a=20)
    passes.finished(TEN)
    assert dispatcher.has_work_and_room(TEN)
    passes.finished(TEN)
    assert dispatcher.has_work_and_room(TEN), "nobody has looked yet"
    assert passes.why_nothing(TEN) == "nothing is ready"
    assert not dispatcher.has_work_and_room(TEN)


@pytest.mark.usefixtures("dear")
def test_an_account_with_lower_priorities_is_not_left_behind_one_with_a_flood(
    passes: Passes, database: Database, rows: Rows
) -> None:
    """Behind its point it has little, elsewhere much: the fronts are looked at, and its share is whole."""
    enqueued(database, *(new_task(account="a", priority=i % 3) for i in range(60)))
    enqueued(database, *(new_task(account="b", priority=5) for _ in range(200)))
    given = [passes.finished(TEN) for _ in range(8)]
    assert {account: sum(one.get(account, 0) for one in given) for account in "ab"} == {"a": 40, "b": 40}
    assert points(rows) == {"a", "b"}


@pytest.mark.usefixtures("dear")
def test_who_got_nothing_in_the_scan_has_a_point_before_its_first_entry(
    passes: Passes, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=50, b=50, c=50)
    policy(rows, "b", cap=2)
    assert passes.given(role(batch_size=6)) == {"a": 2, "b": 2, "c": 2}
    rescan(rows)
    assert passes.given(role(batch_size=2)) == {"a": 1, "c": 1}
    assert points(rows) == {"a", "b", "c"}
    rows("UPDATE celeriac.account_policies SET cap = NULL")
    assert passes.given(role(batch_size=1)) == {"b": 1}
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE account = 'b' AND status = 'claimed'") == 3


def test_a_quick_scan_leaves_none_nor_one_of_many_accounts() -> None:
    points: dict[str, resuming.Point] = {"a": [0, "2026-01-01T00:00:00+00:00", 1]}

    def left(looked: float, accounts: int = 1, dead: int = resuming.DEAD) -> resuming.Resume | None:
        return resuming.after_scan(looked, accounts, lambda: points, lambda: dead)

    slow = resuming.DEAR + resuming.EACH
    assert left(slow) == resuming.Resume(points, resuming.TIMES * slow)
    assert left(60) == resuming.Resume(points, resuming.LONGEST)
    assert left(resuming.DEAR) is None
    assert left(slow, accounts=2) is None, "more accounts take longer to look at"
    assert left(60, accounts=resuming.MOST + 1) is None
    assert left(60, dead=resuming.DEAD - 1) is None, "slow for another reason"


@pytest.mark.usefixtures("old_transaction")
@pytest.mark.breaks_invariants
def test_dead_entries_are_counted_by_the_statistics(database: Database, rows: Rows) -> None:
    rows(FILL, n=1_000)
    rows("DELETE FROM celeriac.ready WHERE id <= 900")

    def dead() -> int:
        with database.statement() as connection:
            return select.dead_entries(connection)

    rows("SELECT pg_stat_force_next_flush()")  # an idle connection tells after ten seconds
    until(lambda: dead() == 900, "the statistics to be told")


@pytest.mark.usefixtures("dear")
def test_time_that_passes_in_a_test_ends_them(passes: Passes, app: Celeriac, waiting: Waiting, rows: Rows) -> None:
    from celeriac.testing import advance

    waiting(a=30)
    passes.given(TEN)
    advance(2e6, app=app)
    assert not points(rows)
