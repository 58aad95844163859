"""Aging: old work gains priority up to a ceiling, never twice for one wait, and never past what a user asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from celeriac import Celeriac, Settings, repair
from celeriac.enqueue.rows import Receipt
from celeriac.operate import prioritise, steer
from celeriac.repair import aging as age
from celeriac.repair.aging import FIRST, Aging, Level
from celeriac.repair.batch import Walk
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.stages import claimed, outcome, settle_in, started
from tests.processes import Rows

_OURS = Settings()

#: As it is without any setting, and with the document's ceiling.
BELOW_USERS = Aging(_OURS.aging_after, _OURS.aging_interval, int(_OURS.aging_step), int(_OURS.aging_ceiling))
SEEDS = replace(BELOW_USERS, ceiling=100)

Put = Callable[..., Receipt]


def wait(rows: Rows, seconds: float) -> None:
    """As if so many seconds had passed."""
    rows("UPDATE worker_tasks SET scheduled_for = scheduled_for - :s * interval '1 second'", s=seconds)


def aged(database: Database, aging: Aging = SEEDS) -> int:
    """How many were raised; there are few levels, so that one walk sees them all."""
    raised, following = aged_from(database, FIRST, aging)
    assert following is None
    return raised


def aged_from(
    database: Database, after: Level, aging: Aging = SEEDS, levels: int = age.LEVELS
) -> tuple[int, Level | None]:
    with database.transaction() as connection:
        return age.age(connection, aging, after, levels)


def priority(rows: Rows, receipt: Receipt) -> int:
    return int(str(rows.one("SELECT priority FROM worker_tasks WHERE id = :id", id=receipt.id)))


def next_claimed(database: Database) -> int:
    (first,), _ = claimed(database)
    return first


def test_what_has_waited_since_the_year_1_keeps_nobody_else_from_aging(
    put: Put, database: Database, rows: Rows
) -> None:
    """Its points were no integer any more: the sweep failed, each time anew."""
    ancient, other = put(), put()
    wait(rows, 3601)
    rows("UPDATE worker_tasks SET scheduled_for = '0001-01-02' WHERE id = :id", id=ancient.id)
    assert aged(database, Aging(after=3600, every=0.001, step=100, ceiling=100)) == 2
    assert (priority(rows, ancient), priority(rows, other)) == (100, 100)


@pytest.mark.parametrize(
    ("waited", "gained"), [(3599, 0), (3601, 10), (3899, 10), (3901, 20), (5401, 70), (6301, 100), (90_000, 100)]
)
def test_points_follow_from_the_wait(put: Put, database: Database, rows: Rows, waited: float, gained: int) -> None:
    task = put()
    wait(rows, waited)
    aged(database)
    assert priority(rows, task) == gained


def test_no_wait_counts_twice(put: Put, database: Database, rows: Rows) -> None:
    task = put(priority=5)
    wait(rows, 3601)
    assert [aged(database) for _ in range(3)] == [1, 0, 0]
    assert priority(rows, task) == 15
    wait(rows, 300)
    assert [aged(database) for _ in range(3)] == [1, 0, 0]
    assert priority(rows, task) == 25


@pytest.mark.parametrize("asked", [49, 50, 70, 100, 500])
def test_what_asked_for_the_ceiling_or_more_stays_as_it_is_and_costs_no_pass(
    put: Put, database: Database, rows: Rows, asked: int
) -> None:
    task = put(priority=asked)
    wait(rows, 90_000)
    assert [aged(database, BELOW_USERS) for _ in range(2)] == [0, 0]
    assert priority(rows, task) == asked


def test_a_role_s_own_range_bounds_it_too(put: Put, database: Database, rows: Rows) -> None:
    rows("""INSERT INTO roles (role, definition) VALUES ('work', '{"priority_range": [0, 15]}')""")
    task = put()
    wait(rows, 90_000)
    assert [aged(database) for _ in range(2)] == [1, 0]
    assert priority(rows, task) == 15


def test_work_that_cannot_run_does_not_age(put: Put, database: Database, rows: Rows) -> None:
    put(lock_key="k")
    behind, later = put(lock_key="k"), put(delay=1e6)
    wait(rows, 3700)
    aged(database)
    assert (priority(rows, behind), priority(rows, later)) == (0, 0)


def test_a_priority_that_is_asked_for_later_starts_anew(
    put: Put, app: Celeriac, database: Database, rows: Rows
) -> None:
    task = put()
    wait(rows, 4000)
    repair.sweep(app, "aging")
    assert priority(rows, task) == 20
    with database.transaction() as connection:
        prioritise.prioritise(connection, {task.id: 3}, by="anna")
    assert repair.sweep(app, "aging") == 1
    assert priority(rows, task) == 23


@pytest.mark.parametrize("ends", ["failed", "cancelled at once", "cancelled by its worker", "lost too often"])
def test_what_is_retried_by_hand_has_its_own_priority_again(
    put: Put, app: Celeriac, database: Database, rows: Rows, ends: str
) -> None:
    task = put(priority=5)
    wait(rows, 4000)
    repair.sweep(app, "aging")
    assert priority(rows, task) == 25
    if ends == "cancelled at once":
        app.cancel(task.task_id)
    else:
        (begun,) = started(database, *claimed(database))
        rows("UPDATE tasks SET losses = 9") if ends == "lost too often" else None
        app.cancel(task.task_id) if ends == "cancelled by its worker" else None
        with database.transaction() as connection:
            if ends == "failed":
                settle_in(connection, outcome(begun, "failed"))
            else:
                release.release(connection, [begun.token], started=True, kind="lost", why="", by="", loss=True)
    assert rows("SELECT priority, aged FROM worker_tasks WHERE completed_at IS NOT NULL") == [(25, 20)]
    with database.transaction() as connection:
        steer.retry(connection, [task.id], by="anna").one()
    assert rows("SELECT status, priority, aged FROM worker_tasks") == [("pending", 5, 0)]


def test_an_hour_in_which_more_important_work_keeps_coming_still_sees_the_old_one_run(
    put: Put, database: Database, rows: Rows
) -> None:
    """A pass every five minutes, that claims one; scheduled work (30) comes faster than it is claimed."""
    old, ran = put(priority=0), []
    wait(rows, 3500)
    for _ in range(12):
        put(priority=30)
        put(priority=30)
        wait(rows, 300)
        aged(database, BELOW_USERS)
        ran.append(next_claimed(database))
    assert old.id in ran
    assert ran.index(old.id) > 1, "not at once: aging takes its steps"


def test_a_users_request_is_not_overtaken_by_work_that_has_aged_fewer_steps(
    put: Put, database: Database, rows: Rows
) -> None:
    put(priority=0)
    wait(rows, 3600 + 6 * 300 - 1)  # six steps
    aged(database)
    user = put(priority=70)
    assert next_claimed(database) == user.id


@pytest.mark.parametrize(("aging", "first"), [(SEEDS, "old"), (BELOW_USERS, "user")])
def test_only_a_ceiling_that_says_so_lets_old_work_outrank_users(
    put: Put, database: Database, rows: Rows, aging: Aging, first: str
) -> None:
    old = put(priority=0)
    wait(rows, 90_000)
    aged(database, aging)
    user = put(priority=70)
    assert next_claimed(database) == {"old": old, "user": user}[first].id


def test_all_who_have_waited_gain_in_one_sweep_and_a_new_one_passes_none_of_them(
    app: Celeriac, put: Put, database: Database, rows: Rows
) -> None:
    old = [put() for _ in range(2 * age.FEW + 5)]
    wait(rows, 3660)
    new = put(priority=5)
    assert repair.sweep(app, "aging") == len(old)
    assert {priority(rows, task) for task in old} == {10}
    taken, _ = claimed(database, n=len(old))
    assert taken == [task.id for task in old]
    assert next_claimed(database) == new.id
    assert repair.sweep(app, "aging") == 0


def test_a_transaction_raises_the_longest_waiting_first(put: Put, database: Database, rows: Rows) -> None:
    tasks = [put() for _ in range(age.FEW + 5)]
    wait(rows, 4000)
    assert aged_from(database, FIRST) == (age.FEW, FIRST), "there may be more"
    assert [priority(rows, task) for task in tasks] == [20] * age.FEW + [0] * 5
    assert aged_from(database, FIRST) == (5, None)


def test_many_levels_are_walked_in_batches_each_of_them_once(put: Put, database: Database, rows: Rows) -> None:
    """Levels of every kind: roles, accounts, priorities; what is raised within the walk is not met again."""
    for n in range(24):
        put(f"role-{n % 2}", account=f"account-{n // 2 % 3}", priority=n // 6 % 4)
    wait(rows, 4000)
    steps, place = [], FIRST
    while place is not None:
        raised, place = aged_from(database, place, levels=10)
        steps.append(raised)
    assert steps == [10, 10, 4]
    assert rows("SELECT priority, count(*) FROM worker_tasks GROUP BY priority ORDER BY priority") == [
        (20, 6), (21, 6), (22, 6), (23, 6)
    ]  # fmt: skip
    assert aged(database) == 0


def test_a_sweep_goes_on_where_the_last_one_had_to_stop(
    app: Celeriac, put: Put, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(age, "_walk", Walk(FIRST, 1))
    rows(
        """INSERT INTO worker_tasks (task_id, role, account, scheduled_for)
        SELECT 't' || i, 'work', 'a' || i, now() - interval '4000 s' FROM generate_series(1, :n) i""",
        n=age.LEVELS + 7,
    )
    assert [repair.sweep(app, "aging") for _ in range(3)] == [age.LEVELS, 7, 0]


def test_the_defaults_are_the_documents_but_for_the_ceiling() -> None:
    s = Settings()
    assert (s.aging_after, s.aging_interval, s.aging_step, s.aging_ceiling) == (3600, 300, 10, 49)
