"""What a task cannot read fails that task, or waits for Postgres; the others of its ticket never notice."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest
from celery import chain, chord
from celery.exceptions import ChordError
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac
from celeriac.canvas import join
from celeriac.run.arrive import run_ticket
from celeriac.store import failures
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

#: A type that this process has not registered with kombu, and an error that is no exception.
UNKNOWN = '{"__type__": "unheard of", "__value__": 1}'
NO_ERROR = '{"exc_type": "getcwd", "exc_message": [], "exc_module": "os"}'

STATUS = "SELECT role, status FROM worker_tasks ORDER BY id"


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    return declare(app)


def test_a_body_whose_members_results_cannot_be_read_fails_alone(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add, total = tasks["add"], tasks["total"]
    bad = chord([add.s(1, 1)], chain(total.s().on_error(tasks["told"].s()), add.s(1)))()
    good = chord([add.s(2, 2)], total.s())()
    run_ticket(app, "add", [], "")
    rows(f"UPDATE celeriac.history SET result = '{UNKNOWN}' WHERE result = '2'")
    run_all(app)
    assert good.get(timeout=1) == 4
    with pytest.raises(ChordError, match="cannot be read"):
        bad.get(timeout=1, follow_parents=False)
    failed = rows.one("SELECT task_id FROM worker_tasks WHERE role = 'total' AND status = 'failed'")
    assert tasks["ran"][2:] == [("total", 4), ("told", failed)]


@pytest.mark.parametrize("error", [UNKNOWN, NO_ERROR])
def test_a_body_whose_members_error_cannot_be_read_says_its_words(
    app: Celeriac, tasks: Any, rows: Rows, error: str
) -> None:
    add, total = tasks["add"], tasks["total"]
    bad, good = chord([tasks["fail"].s()], total.s())(), chord([add.s(2, 2)], total.s())()
    run_ticket(app, "fail", [], "")
    rows(f"UPDATE celeriac.history SET result = '{error}' WHERE role = 'fail'")
    run_all(app)
    assert good.get(timeout=1) == 4
    with pytest.raises(ChordError, match="ValueError: on purpose"):
        bad.get(timeout=1, follow_parents=False)


def test_a_task_whose_arguments_cannot_be_read_fails_alone(app: Celeriac, tasks: Any, rows: Rows) -> None:
    bad, _ = tasks["add"].bulk([(1, 1), (2, 2)])
    rows(f"UPDATE celeriac.tasks SET kwargs = jsonb_set(kwargs, '{{x}}', '{UNKNOWN}') WHERE kwargs ->> 'x' = '1'")
    run_all(app)
    assert rows(STATUS) == [("add", "failed"), ("add", "completed")]
    assert bad.state == "FAILURE"
    assert bad.kwargs["y"] == 1


def test_links_that_cannot_be_read_fail_their_task_alone(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add = tasks["add"]
    for n in (1, 2):
        chain(add.s(n, n), add.s(n))()
    links = "headers #- '{canvas,chain,0,args}'"
    rows(f"""UPDATE celeriac.tasks SET headers = jsonb_set({links}, '{{canvas,chain,0,args}}', '[{UNKNOWN}]')
        WHERE kwargs ->> 'x' = '1'""")
    run_all(app)
    assert sorted(rows("SELECT status FROM worker_tasks")) == [
        ("completed",), ("completed",), ("failed",), ("failed",)
    ]  # fmt: skip


@pytest.mark.parametrize("patience", [120.0, -1.0], ids=["for a moment", "for long"])
def test_a_body_outlasts_postgres_being_away(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    result = chord([tasks["add"].s(1, 1)], tasks["total"].s())()
    reads, read = 0, join.results

    def away(*given: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise OperationalError("", {}, psycopg2.OperationalError("server closed the connection"))
        return read(*given)

    monkeypatch.setattr(join, "results", away)
    monkeypatch.setattr(failures, "PATIENCE", patience)
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    assert result.get(timeout=1) == 2
    assert rows.one("SELECT losses FROM worker_tasks WHERE role = 'total'") == (1 if patience < 0 else 0)


def test_what_falls_out_and_cannot_tell_holds_nothing_up(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = tasks["add"]
    result = chord([chain(add.s(1, 1), add.s(1)), add.s(2, 2)], tasks["total"].s())()
    app.cancel(result.parent.results[0].parent.id)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(app.backend, "spread", broken)
        run_ticket(app, "add", [], "")
    run_all(app)
    with pytest.raises(ChordError):
        result.get(timeout=1, follow_parents=False)
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'pending'") == 0


def test_a_body_whose_member_failed_is_not_tried_again(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, max_rounds=3, round_delay=0.0)
    result = chord([tasks["fail"].s()], tasks["total"].s().on_error(tasks["told"].s()))()
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    assert tasks["ran"] == [("fail",)] * 3 + [("told", result.id)]
    assert rows("SELECT role, count(*) FROM celeriac.task_events WHERE kind = 'retry_round' GROUP BY 1") == [
        ("fail", 2)
    ]
