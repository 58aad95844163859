"""Operators change a task only where its life allows it; what they change is audited, and the rest stays as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import text

from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue, CeleriacError, IllegalMove, Unknown
from celeriac.operate import audit, policies, steer
from celeriac.operate.audit import Change
from celeriac.operate.edit import edit
from celeriac.operate.move import move
from celeriac.operate.steer import Steered
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.store import states
from celeriac.store.connections import Database
from tests import life
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.processes import Rows, until

Put = Callable[..., Receipt]

AUDIT = "SELECT by, action, kind, target, before, after, why FROM celeriac.audit ORDER BY id"


def steered(database: Database, move: Callable[..., Steered], ids: list[int], *given: object) -> Steered:
    with database.transaction() as connection:
        return move(connection, ids, *given, by="ann", why="asked to")


def one(database: Database, move: Callable[..., Steered], task: int, *given: object) -> Change:
    return steered(database, move, [task], *given).one()


def in_state(database: Database, status: str, **options: object) -> int:
    """A task that came to this status by the engine's own verbs."""
    if status == "pending":
        return stages.enqueued(database, new_task(**options))[0].id
    if status == "cancelled":
        task = in_state(database, "pending", **options)
        one(database, steer.cancel, task)
        return task
    if status == "claimed":
        stages.enqueued(database, new_task(**options))
        return stages.claimed(database)[0][0]
    (started,) = stages.running(database, new_task(**options))
    if status != "running":
        stages.settled(database, stages.outcome(started, status, error="boom" if status == "failed" else None))
    return started.id


ALLOWED = [(move, status) for move, statuses in states.MOVES.items() for status in statuses]
DO = {
    "retry": lambda database, task: one(database, steer.retry, task),
    "cancel": lambda database, task: one(database, steer.cancel, task),
    "prioritise": lambda database, task: one(database, steer.set_priority, task, 7),
    "hasten": lambda database, task: one(database, steer.hasten, task),
    "edit": lambda database, task: one(database, edit, task, {}, '{"n": 7}'),
    "move": lambda database, task: one(database, move, task, "other", Signature([], role="other")),
}


@pytest.mark.parametrize("status", states.ALL)
@pytest.mark.parametrize("move", states.MOVES)
def test_a_move_is_made_where_the_life_of_a_task_allows_it_and_refused_elsewhere(
    database: Database, rows: Rows, move: str, status: str
) -> None:
    task = in_state(database, status, **({"delay": 3_600.0} if (move, status) == ("hasten", "pending") else {}))
    rows("TRUNCATE audit, task_events")
    before = rows("SELECT * FROM worker_tasks")
    if (move, status) in ALLOWED:
        DO[move](database, task)
        assert rows("SELECT count(*), min(by), min(target) FROM celeriac.audit") == [(1, "ann", str(task))]
        assert rows("SELECT count(*), min(by) FROM celeriac.task_events WHERE from_status = :s", s=status) == [
            (1, "ann")
        ]
        assert rows.one("SELECT status FROM worker_tasks") in {*life.NEXT[status], status}
        return
    with pytest.raises(IllegalMove, match=f"the task is {status}"):
        DO[move](database, task)
    assert rows("SELECT * FROM worker_tasks") == before
    assert rows("SELECT FROM celeriac.audit") == []


def test_only_what_waits_for_its_time_is_due_now(database: Database, rows: Rows) -> None:
    planned, ready = in_state(database, "pending", delay=3_600.0), in_state(database, "pending")
    done = steered(database, steer.hasten, [planned, ready])
    assert [change.target for change in done.changed] == [str(planned)]
    assert done.refused == {ready: "the task does not wait for its time"}
    assert rows("SELECT id FROM worker_tasks WHERE scheduled_for > now()") == []


def test_retry_starts_from_the_beginning(database: Database, rows: Rows, put: Put) -> None:
    task = in_state(database, "failed", max_rounds=3)
    rows("UPDATE worker_tasks SET retry_count = 4, tries = 3, losses = 2, expires_at = now() - interval '1 hour'")
    change = one(database, steer.retry, task)
    assert change.before == {
        "status": "failed", "retry_count": 4, "tries": 3, "losses": 2, "error_message": "boom"
    }  # fmt: skip
    assert rows("""SELECT status, waits_for, retry_count, tries, losses, expires_at, error_message,
        scheduled_for <= now() FROM worker_tasks""") == [("pending", None, 0, 0, 0, None, None, True)]
    assert stages.claimed(database)[0] == [task]
    assert rows(AUDIT) == [
        ("ann", "retry", "task", str(task), change.before, change.after, "asked to")
    ]  # fmt: skip


def test_a_retry_may_go_on_from_where_it_stopped(database: Database, rows: Rows) -> None:
    task = in_state(database, "failed")
    rows("""UPDATE celeriac.history SET retry_count = 4, tries = 3, losses = 2, progress = '{"page": 7}'""")
    with database.transaction() as connection:
        change = steer.retry(connection, [task], by="ann", goes_on=True).one()
    assert change.after == {"status": "pending"}
    assert rows("SELECT status, retry_count, tries, losses, progress FROM worker_tasks") == [
        ("pending", 4, 3, 2, {"page": 7})
    ]


def test_a_retried_task_lines_up_behind_its_locks_leader(database: Database, rows: Rows, put: Put) -> None:
    task = in_state(database, "failed", lock_key="site")
    put(lock_key="site")
    one(database, steer.retry, task)
    assert rows("SELECT waits_for FROM worker_tasks ORDER BY id") == [("lock",), (None,)]


def test_a_retried_task_leads_its_lock_where_nobody_does(database: Database, rows: Rows) -> None:
    one(database, steer.retry, in_state(database, "failed", lock_key="site"))
    assert rows("SELECT status, waits_for FROM worker_tasks") == [("pending", None)]


def test_a_retry_whose_unique_key_another_has_is_refused(database: Database, rows: Rows, put: Put) -> None:
    task = in_state(database, "failed", unique_key="once")
    holder = put(unique_key="once").id
    with pytest.raises(IllegalMove, match=f"task {holder} has its unique key 'once' by now"):
        one(database, steer.retry, task)
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("failed",), ("pending",)]


def test_of_several_with_one_unique_key_the_newest_is_retried(database: Database, rows: Rows) -> None:
    ids = [in_state(database, "failed", unique_key="once") for _ in range(3)]
    done = steered(database, steer.retry, ids)
    assert [c.target for c in done.changed] == [str(ids[-1])]
    assert set(done.refused) == set(ids[:-1])


def test_a_unique_key_taken_between_look_and_retry_refuses_only_that_one(database: Database, rows: Rows) -> None:
    """An enqueue that has not committed yet is not seen by the look, but waited for by the write."""
    taken = in_state(database, "failed", unique_key="once")
    free = in_state(database, "failed", unique_key="twice")
    done: list[Steered] = []
    with database.engine.connect() as other:
        insert = "INSERT INTO worker_tasks (task_id, role, unique_key) VALUES ('new', 'work', 'once')"
        other.execute(text(insert))
        thread = threading.Thread(target=lambda: done.append(steered(database, steer.retry, [taken, free])))
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%again AS%'"
        until(lambda: rows.one(waiting), "the retry to wait for the enqueue")
        other.commit()
    thread.join()
    assert list(done[0].refused) == [taken]
    assert [c.target for c in done[0].changed] == [str(free)]
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("failed",), ("pending",), ("pending",)]


def test_priority_keeps_to_the_roles_range_and_a_boost_to_100(database: Database, rows: Rows, put: Put) -> None:
    rows("""INSERT INTO celeriac.roles (role, definition) VALUES ('crawl', '{"priority_range": [0, 60]}')""")
    plain, high, ranged = put().id, put(priority=300).id, put("crawl", priority=10).id
    with pytest.raises(IllegalMove, match="priorities of crawl go from 0 to 60"):
        one(database, steer.set_priority, ranged, 61)
    for bad in (2_000_000, True, 1.5):
        with pytest.raises(BadValue, match="give a whole number"):
            one(database, steer.set_priority, plain, bad)
    with pytest.raises(BadValue, match="give a whole number from 1"):
        one(database, steer.boost, plain, -1)
    assert [one(database, steer.boost, task, 70).after for task in (plain, plain, high, ranged)] == [
        {"priority": 70}, {"priority": 100}, {"priority": 300}, {"priority": 60},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "word", "becomes"),
    [
        ("failed", "pending", "pending"),
        ("pending", "failed", "cancelled"),
        ("claimed", "cancelled", "cancelled"),
        ("running", "failed", "running"),
        ("running", "pending", None),
        ("pending", "running", None),
        ("failed", "completed", None),
        ("completed", "pending", None),
    ],
)
def test_a_status_is_set_by_the_move_that_leads_there_or_not_at_all(
    database: Database, rows: Rows, status: str, word: str, becomes: str | None
) -> None:
    task = in_state(database, status)
    if becomes is None:
        with pytest.raises(IllegalMove):
            one(database, steer.set_status, task, word)
    else:
        assert one(database, steer.set_status, task, word).after["status"] == becomes  # type: ignore[index]
    assert rows.one("SELECT status FROM worker_tasks") == (becomes or status)


def test_cancelling_what_runs_asks_its_worker(database: Database, rows: Rows) -> None:
    task = in_state(database, "running")
    assert one(database, steer.cancel, task).after == {"status": "running", "asked": True}
    assert rows.one("SELECT cancel_requested_at IS NOT NULL FROM worker_tasks") is True


def test_what_is_not_there_is_told(database: Database) -> None:
    for task in (4711, -1, 2**70):
        with pytest.raises(Unknown, match=f"there is no task {task}"):
            one(database, steer.retry, task)


def test_many_are_steered_in_bounded_transactions_and_each_is_told(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steer, "BATCH", 4)
    ids = [in_state(database, "failed" if n % 3 else "completed") for n in range(10)]
    parts = list(steer.in_batches(database, [*ids, 999], lambda c, some: steer.retry(c, some, by="ann")))
    assert [len(p.changed) + len(p.refused) + len(p.missing) for p in parts] == [4, 4, 3]
    whole = sum(parts, Steered())
    assert ([int(c.target) for c in whole.changed], list(whole.refused), whole.missing) == (
        [i for n, i in enumerate(ids) if n % 3], [i for n, i in enumerate(ids) if not n % 3], [999],
    )  # fmt: skip
    assert rows.one("SELECT count(DISTINCT xmin::text) FROM celeriac.audit") == 3


def test_the_target_of_many_names_the_conditions_and_the_log_no_value(
    database: Database, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors and arguments stand in the filter alone, where they are hidden from whoever may not see calls."""
    condition = {"statuses": ["pending"], "error": "KeyError: s3cret", "arguments": {"email": "s3cret", "n": 1}}
    many = audit.AuditedTogether(condition, 1)
    with caplog.at_level("INFO", "celeriac.operate.audit"):
        list(steer.in_batches(database, [in_state(database, "pending")], partial(steer.cancel, by="ann"), many=many))
    ((target, filtered),) = rows("SELECT target, after -> 'filter' FROM celeriac.audit WHERE kind = 'tasks'")
    assert (target, filtered) == ("statuses, error, arg.email, arg.n", condition)
    assert "ann: cancel tasks statuses, error" in caplog.text
    assert "s3cret" not in caplog.text


def test_what_a_filter_means_shares_a_row_of_the_audit_trail(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each task of ten thousand. What became of each is among its events."""
    monkeypatch.setattr(steer, "BATCH", 4)
    ids = [in_state(database, state) for state in ["completed"] * 4 + ["pending"] * 9]
    many = audit.AuditedTogether({"role": "work"}, len(ids))
    list(steer.in_batches(database, ids, partial(steer.cancel, by="ann", why="sold"), many=many))
    shared = ("ann", "cancel", "tasks", "role", None, {"filter": {"role": "work"}, "tasks": 13}, "sold")
    assert rows(AUDIT) == [shared]
    assert rows("SELECT count(*) FROM celeriac.task_events WHERE by = 'ann' AND why = 'sold'") == [(9,)]
    list(steer.in_batches(database, ids, partial(steer.retry, by="ann"), many=audit.AuditedTogether({"account": ""})))
    assert [row[5] for row in rows(AUDIT)] == [shared[5], {"filter": {"account": ""}}]


def test_a_change_that_is_rolled_back_leaves_no_audit(database: Database, rows: Rows) -> None:
    task = in_state(database, "failed")
    rows("TRUNCATE audit")
    with database.engine.connect() as connection:
        assert steer.retry(connection, [task], by="ann").one()
        connection.rollback()
    assert rows("SELECT status FROM worker_tasks") == [("failed",)]
    assert rows(AUDIT) == []


def test_a_paused_role_claims_nothing_until_it_is_resumed(
    database: Database, rows: Rows, dispatcher: Dispatcher, put: Put
) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')")
    put()
    with database.transaction() as connection:
        policies.pause_role(connection, "work", by="ann", why="flood")
    assert dispatcher.dispatch(Role(name="work")) == 0
    with database.transaction() as connection:
        policies.resume_role(connection, "work", by="bob")
    assert dispatcher.dispatch(Role(name="work")) == 1
    assert rows(AUDIT) == [
        ("ann", "pause", "role", "work", {"paused": False}, {"paused": True}, "flood"),
        ("bob", "resume", "role", "work", {"paused": True}, {"paused": False}, None),
    ]
    with pytest.raises(Unknown, match="no role 'nonesuch'"), database.transaction() as connection:
        policies.pause_role(connection, "nonesuch", by="ann")


def test_an_accounts_policy_changes_only_in_what_is_given(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        policies.set_account(connection, "acme", by="ann", weight=2.5, cap=3)
        policies.pause_account(connection, "acme", by="ann")
        policies.set_account(connection, "acme", by="ann", cap=None)
        policies.resume_account(connection, "acme", by="ann")
    assert rows("SELECT weight, cap, paused FROM celeriac.account_policies") == [(2.5, None, False)]
    assert [row[4:6] for row in rows(AUDIT)][1] == (
        {"weight": 2.5, "cap": 3, "paused": False}, {"weight": 2.5, "cap": 3, "paused": True},
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{"weight": 0}, {"weight": float("nan")}, {"cap": -1}, {"cap": True}, {"paused": 1}, {"colour": "red"}]
)
def test_a_policy_out_of_bounds_is_refused(database: Database, rows: Rows, changes: dict[str, object]) -> None:
    with pytest.raises(CeleriacError, match="give"), database.transaction() as connection:
        policies.set_account(connection, "acme", by="ann", **changes)  # type: ignore[arg-type]
    assert rows("SELECT FROM celeriac.account_policies") == []
