"""The header of a chord may be a slow generator: members begin as they come, the body waits for the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import chord
from celery.exceptions import ChordError
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.store import look
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.seam.stream.PATIENCE", 0.0)


def test_members_of_a_slow_generator_begin_as_they_come(app: Celeriac, rows: Rows, slow: None) -> None:
    tasks = declare(app, keep="forever")
    seen: list[int] = []

    def members() -> Iterator[Any]:
        for n in range(6):
            run_all(app)
            look_for_bodies(app)
            seen.append(len(tasks["ran"]))
            yield tasks["add"].s(n, 1)

    result = chord(members(), tasks["total"].s())()
    assert seen[2] > 0, "the first one ran before the third one was there"
    assert ("total",) not in [done[:1] for done in tasks["ran"]]
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 21
    assert [done for done in tasks["ran"] if done[0] == "total"] == [("total", 1, 2, 3, 4, 5, 6)]
    assert rows("SELECT count(*), count(DISTINCT workflow) FROM worker_tasks") == [(7, 1)]
    assert rows("SELECT headers -> 'canvas' -> 'places' FROM worker_tasks WHERE role = 'total'") == [(6,)]


def look_for_bodies(app: Celeriac) -> None:
    with app.database.transaction() as connection:
        look.look(connection)


def test_a_generator_that_breaks_off_fails_the_body(app: Celeriac, rows: Rows, slow: None) -> None:
    tasks = declare(app, keep="forever")

    def members() -> Iterator[Any]:
        for n in range(4):
            yield tasks["add"].s(n, 1)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        chord(members(), tasks["total"].s())()
    run_all(app)
    assert rows("SELECT status, error_message FROM worker_tasks WHERE role = 'total'")[0][0] == "failed"
    assert not [done for done in tasks["ran"] if done[0] == "total"]
    assert rows("SELECT count(*) FROM celeriac.tasks") == [(0,)]


def test_whoever_dies_while_members_come_leaves_a_body_that_fails(app: Celeriac, rows: Rows, slow: None) -> None:
    tasks = declare(app, keep="forever")

    class Killed(BaseException): ...

    def members() -> Iterator[Any]:
        for n in range(4):
            yield tasks["add"].s(n, 1)
        rows("UPDATE celeriac.tasks SET task_id = 'out of reach' WHERE headers -> 'canvas' ? 'gate'")
        raise Killed

    with pytest.raises(Killed):
        chord(members(), tasks["total"].s())()
    run_all(app)
    assert rows("SELECT waits_for FROM worker_tasks WHERE role = 'total'") == [("members",)]
    rows("""UPDATE worker_tasks SET scheduled_for = now(), expires_at = now()
        WHERE task_id = 'out of reach'""")
    run_all(app)
    assert rows("SELECT status FROM worker_tasks WHERE role = 'total'") == [("failed",)]


def test_a_quick_generator_comes_as_one(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep="forever")
    seen: list[Any] = []

    def members() -> Iterator[Any]:
        for n in range(5):
            seen.append(rows.one("SELECT count(*) FROM celeriac.tasks"))
            yield tasks["add"].s(n, 1)

    result = chord(members(), tasks["total"].s())()
    run_all(app)
    assert (set(seen), result.get(timeout=1, disable_sync_subtasks=False)) == ({0}, 15)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_in_a_callers_transaction_it_comes_as_one(app: Celeriac, rows: Rows, slow: None, ends: str) -> None:
    tasks = declare(app, keep="forever")
    with Session(app.database.engine) as session:
        chord((tasks["add"].s(n, 1) for n in range(5)), tasks["total"].s()).apply_async(session=session)
        assert rows.one("SELECT count(*) FROM celeriac.tasks") == 0
        getattr(session, ends)()
    assert rows.one("SELECT count(*) FROM celeriac.tasks") == {"commit": 6, "rollback": 0}[ends]
    run_all(app)
    assert (("total", 1, 2, 3, 4, 5) in tasks["ran"]) == (ends == "commit")


def test_a_member_that_fails_before_the_last_one_is_there_fails_the_body(app: Celeriac, slow: None) -> None:
    tasks = declare(app, keep="forever")

    def members() -> Iterator[Any]:
        for n in range(4):
            run_all(app)
            yield tasks["fail"].s() if n == 0 else tasks["add"].s(n, 1)

    result = chord(members(), tasks["total"].s())()
    run_all(app)
    with pytest.raises(ChordError, match="on purpose"):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
