"""`AsyncResult` reads the row: whatever Celery's own results tell, and what a task says of itself while it runs."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from celery import chain, chord, group
from celery.contrib.abortable import AbortableAsyncResult, AbortableTask
from celery.exceptions import Ignore, Reject, TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import AsyncResult, GroupResult, allow_join_result, result_from_tuple
from sqlalchemy import event

from celeriac import Celeriac
from celeriac.errors import BadValue, CeleriacError
from celeriac.run.arrive import run_ticket
from celeriac.seam import backend, results
from celeriac.seam.result import RowResult
from celeriac.store.connections import Database
from tests.postgres.workflows import declare, run_all, run_once
from tests.processes import Rows


def result_of(app: Celeriac, task_id: str) -> AsyncResult:
    """As another process has it: nothing is remembered."""
    return app.AsyncResult(task_id)


def test_a_result_tells_what_celerys_tell(app: Celeriac) -> None:
    tasks = declare(app)
    done = tasks["add"].delay(1, 2)
    run_all(app)
    found = result_of(app, done.id)
    assert (found.state, found.result, found.name, found.retries) == ("SUCCESS", 3, "add", 0)
    assert (list(found.args), found.kwargs) == ([], {"x": 1, "y": 2})
    assert found.worker
    assert found.date_done is not None


def test_a_failure_keeps_its_traceback(app: Celeriac) -> None:
    tasks = declare(app)
    failed = tasks["fail"].delay()
    run_all(app)
    found = result_of(app, failed.id)
    assert found.state == "FAILURE"
    assert isinstance(found.result, ValueError)
    assert 'raise ValueError("on purpose")' in found.traceback


def test_a_cancelled_task_is_a_revoked_one(app: Celeriac) -> None:
    tasks = declare(app)
    waiting = tasks["add"].delay(1, 2)
    app.cancel(waiting.id, why="not wanted")
    with pytest.raises(TaskRevokedError, match="not wanted"):
        result_of(app, waiting.id).get(timeout=1, disable_sync_subtasks=False)


def test_a_state_of_its_own_is_seen_while_it_runs(app: Celeriac) -> None:
    seen: list[Any] = []

    @app.task(role="load", bind=True, shared=False, prompt=False)
    def load(self: Any) -> None:
        self.update_state(state="LOADING", meta={"done": 3})
        found = result_of(app, self.request.id)
        seen.extend([found.state, found.info])

    app.register_roles()
    done = load.delay()
    run_all(app)
    assert seen == ["LOADING", {"done": 3}]
    assert result_of(app, done.id).state == "SUCCESS"


def test_a_state_that_somebody_else_tells_is_seen(app: Celeriac, rows: Rows) -> None:
    """As who marks each task as sent, to tell it from one that is unknown; or a handler that tells of another task."""
    seen: list[Any] = []

    @app.task(role="told", bind=True, shared=False, prompt=False, chunk=9)
    def told(self: Any, of: str | None = None) -> None:
        found = result_of(app, self.request.id)
        seen.append(found.state)
        if of is None:
            elsewhere = Thread(target=app.backend.store_result, args=(self.request.id, {"by": "a thread"}, "WATCHED"))
            elsewhere.start()
            elsewhere.join()
            seen.append((found.state, found.info))
        else:
            self.update_state(task_id=of, state="NOTED", meta=[1])

    app.register_roles()
    first = told.delay()
    app.backend.store_result(first.id, None, "SENT")
    assert (result_of(app, first.id).state, result_of(app, "of no row").state) == ("SENT", "PENDING")
    later = told.apply_async(countdown=100)
    second = told.delay(later.id)
    run_all(app)
    assert seen == ["STARTED", ("WATCHED", {"by": "a thread"}), "STARTED"], "what was told before lasts until it starts"
    assert [result_of(app, one.id).state for one in (first, second, later)] == ["SUCCESS", "SUCCESS", "NOTED"]
    assert result_of(app, later.id).info == [1]


@pytest.mark.parametrize(
    ("state", "why"),
    [("SENT", "it has no row"), ("SUCCESS", "that follows"), ("RETRY", "that follows")],
)
def test_a_state_that_cannot_be_kept_is_named_once(
    app: Celeriac, caplog: pytest.LogCaptureFixture, state: str, why: str
) -> None:
    for _ in range(2):
        app.backend.store_result("of no row", 7, state)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert line.startswith(f"The state {state} of task of no row is not kept: {why}")


@pytest.mark.parametrize("fails", [False, True])
def test_an_ignored_result_is_not_stored_and_ends_its_task(app: Celeriac, rows: Rows, fails: bool) -> None:
    @app.task(role="quiet", ignore_result=True, shared=False, prompt=False)
    def quiet() -> int:
        if fails:
            raise ValueError
        return 7

    app.register_roles()
    quiet.delay()
    run_all(app)
    assert rows("SELECT status, result FROM worker_tasks WHERE status <> 'failed'") == (
        [] if fails else [("completed", None)]
    )
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'failed'") == int(fails)


def test_a_task_is_aborted_while_it_runs(app: Celeriac) -> None:
    """By Celery's `AbortableTask`: it looks whether it is, and ends as it likes."""

    @app.task(role="long", bind=True, base=AbortableTask, shared=False, prompt=False)
    def long(self: Any) -> list[bool]:
        before = self.is_aborted()
        elsewhere = Thread(target=AbortableAsyncResult(self.request.id, app=app).abort)
        elsewhere.start()
        elsewhere.join()
        return [before, self.is_aborted()]

    app.register_roles()
    AbortableAsyncResult("of no row", app=app).abort()
    done = long.delay()
    run_all(app)
    found = result_of(app, done.id)
    assert (found.state, found.result) == ("SUCCESS", [False, True])


@pytest.mark.parametrize("options", [{}, {"countdown": 1}])
def test_a_call_of_an_abortable_task_can_be_aborted(app: Celeriac, options: dict[str, Any]) -> None:
    """A class of tasks may have results of its own: calls have their methods, and say where the enqueue ended."""

    @app.task(role="long", bind=True, base=AbortableTask, shared=False, prompt=False)
    def long(self: Any) -> bool:
        return bool(self.is_aborted())

    app.register_roles()
    call = long.apply_async(**options)
    assert isinstance(call, AbortableAsyncResult)
    assert (call.is_new, call.is_aborted()) == (True, False)
    call.abort()
    if not options:
        run_all(app)
        assert call.get(timeout=5) is True


def test_a_task_that_ignores_itself_stays_in_the_state_it_told(app: Celeriac) -> None:
    """Celery's documented way to end in a state of one's own."""

    @app.task(role="skip", bind=True, chunk=9, shared=False, prompt=False)
    def skip(self: Any, why: str = "") -> None:
        if why:
            self.update_state(state="SKIPPED", meta={"why": why})
        raise Ignore

    app.register_roles()
    told, silent = skip.delay(why="closed"), skip.delay()
    run_all(app)
    found = result_of(app, told.id)
    assert (found.state, found.info) == ("SKIPPED", {"why": "closed"})
    assert found.get(timeout=1, disable_sync_subtasks=False) == {"why": "closed"}
    assert result_of(app, silent.id).state == "SUCCESS"


def test_the_children_of_a_task_are_known_to_whoever_waited_for_it(app: Celeriac) -> None:
    tasks = declare(app)
    made: dict[str, Any] = {}

    @app.task(role="parent", shared=False, prompt=False)
    def parent() -> None:
        made["one"] = tasks["add"].delay(1, 2)
        made["group"] = group(tasks["add"].s(1, 1), tasks["add"].s(2, 2))()
        made["chord"] = chord([tasks["add"].s(3, 3)], tasks["total"].s())()

    app.register_roles()
    done = parent.delay()
    run_all(app)
    done.get(timeout=1)
    groups = [child for child in done.children if isinstance(child, GroupResult)]
    assert [(g.id, [member.id for member in g]) for g in groups] == [
        (g.id, [member.id for member in g]) for g in (made["group"], made["chord"].parent)
    ]
    assert {child.id for child in done.children if child not in groups} == {made["one"].id, made["chord"].id}
    assert sorted(value for _, value in done.collect(disable_sync_subtasks=False) if isinstance(value, int)) == [
        2, 3, 4, 6, 6
    ]  # fmt: skip


def test_the_next_link_of_a_chain_is_no_group_and_what_an_ended_link_leaves_no_child(app: Celeriac) -> None:
    tasks = declare(app)
    links = chain(tasks["add"].s(1, 1), tasks["add"].s(1), tasks["add"].s(1))
    result = group(links, tasks["add"].s(2, 2))().results[0]
    app.cancel(result.parent.id)
    run_all(app)
    first = result.parent.parent
    first.get(timeout=1)
    assert [child.id for child in first.children] == [result.parent.id]
    assert result.parent.children == [result]


@pytest.mark.parametrize("said", [{}, {"store_errors_even_if_ignored": False}])
@pytest.mark.parametrize("traced", [False, True])
def test_a_task_whose_result_is_ignored_is_retried(
    app: Celeriac, rows: Rows, said: dict[str, Any], traced: bool
) -> None:
    @app.task(role="again", ignore_result=True, bind=True, prompt=False, shared=False, **said)
    def again(self: Any) -> int:
        if not self.request.retries:
            raise self.retry(countdown=0)
        return 7

    @app.task(role="auto", ignore_result=True, bind=True, prompt=False, shared=False, autoretry_for=(KeyError,),
              default_retry_delay=0, **said)  # fmt: skip
    def auto(self: Any) -> int:
        if not self.request.retries:
            raise KeyError
        return 7

    if traced:
        again.after_return = auto.after_return = lambda *_: None
    app.register_roles()
    again.delay()
    auto.delay()
    run_all(app)
    assert rows("SELECT role, status, result, retry_count FROM worker_tasks ORDER BY role") == [
        ("again", "completed", None, 1), ("auto", "completed", None, 1),
    ]  # fmt: skip


def test_who_waits_for_a_chord_hears_what_went_wrong_in_its_header(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where header and body have ended since the last look: Celery asks for the parents' errors first."""
    tasks = declare(app)
    result = chord([tasks["add"].s(1, 2), tasks["fail"].s()], tasks["total"].s()).delay()

    def end_meanwhile(_: float) -> None:
        monkeypatch.undo()
        run_all(app)

    monkeypatch.setattr("celeriac.seam.backend.time.sleep", end_meanwhile)
    with pytest.raises(ValueError, match="on purpose"):
        result.get(timeout=5)


def test_what_is_forgotten_is_pending_to_celery(app: Celeriac) -> None:
    tasks = declare(app)
    done = tasks["add"].delay(1, 2)
    assert run_ticket(app, "add", [], "") == {"ran": 1}
    done.forget()
    assert result_of(app, done.id).state == "PENDING"


@pytest.fixture
def said(app: Celeriac) -> list[str]:
    """The statements that the app has sent, but for the beginnings and ends of transactions."""
    sent: list[str] = []

    def note(*call: Any) -> None:
        if "celeriac." in call[2]:
            sent.append(call[2])

    event.listen(app.database._verbs, "before_cursor_execute", note)
    return sent


def test_many_results_are_awaited_in_one_statement_a_look(app: Celeriac, said: list[str]) -> None:
    tasks = declare(app)
    done = tasks["add"].bulk([(n, n) for n in range(20)])
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            run_all(app)
        said.clear()

    found = dict(app.backend.get_many([r.id for r in done], timeout=5, interval=0.01, on_interval=look))
    assert {task_id: meta["result"] for task_id, meta in found.items()} == {r.id: 2 * n for n, r in enumerate(done)}
    assert looks == 3
    assert len(said) == 2, "one that finds which have ended, one that reads these"


def test_only_what_has_ended_is_read_whole_and_in_pages(
    app: Celeriac, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = declare(app)
    monkeypatch.setattr(backend, "PAGE", 4)
    done = tasks["add"].bulk([(n, n) for n in range(10)])
    run_all(app)
    waiting = tasks["add"].bulk([(n, n) for n in range(5)])
    read: list[int] = []
    whole = results.metas
    monkeypatch.setattr(results, "metas", lambda c, ids, error: read.append(len(ids)) or whole(c, ids, error))
    with pytest.raises(CeleryTimeoutError, match="5 of the results"):
        list(app.backend.get_many([r.id for r in [*done, *waiting]], timeout=0))
    assert read == [4, 4, 2]


def test_a_chords_result_is_awaited_in_two_statements_a_look(
    app: Celeriac, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = declare(app)
    result = chord([tasks["add"].s(n, n) for n in range(20)], tasks["total"].s())()
    asks, counts = RowResult._maybe_reraise_parent_error, list[int]()

    def look(self: RowResult) -> None:
        asks(self)
        counts.append(len(said))
        if len(counts) == 4:
            run_all(app)
        said.clear()

    monkeypatch.setattr(RowResult, "_maybe_reraise_parent_error", look)
    said.clear()
    assert result.get(timeout=5, interval=0.01) == 380
    assert counts == [1, 2, 2, 2], "all members, and itself"


@pytest.mark.parametrize("nested", [False, True])
def test_whoever_waits_for_a_body_hears_of_the_first_member_that_failed(app: Celeriac, nested: bool) -> None:
    tasks = declare(app)
    failing: Any = tasks["fail"].s()
    header = [tasks["add"].s(1, 1), group(tasks["add"].s(2, 2), failing) if nested else failing]
    result = chord(header, tasks["total"].s())()
    run_all(app)
    again = result_from_tuple(result.as_tuple(), app)
    for awaited in (result, again):
        with pytest.raises(ValueError, match="on purpose"):
            awaited.get(timeout=1)


def test_what_is_told_of_a_locked_task_fails_nobody(
    app: Celeriac, rows: Rows, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = declare(app)["add"].delay(1, 2)
    with database.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM celeriac.tasks FOR UPDATE")
        app.backend.store_result(waiting.id, None, "SENT")
    assert f"The state SENT of task {waiting.id} is not written: somebody has locked its row" in caplog.text
    assert rows.one("SELECT progress FROM celeriac.tasks") is None


def test_a_meta_that_cannot_be_stored_is_refused_by_its_tasks_id(app: Celeriac) -> None:
    with pytest.raises(BadValue, match=r"task of 7: the meta of SENT cannot be stored"):
        app.backend.store_result("of 7", float("nan"), "SENT")


@pytest.mark.parametrize("how", ["snooze", "loss", "round", "retry"])
def test_what_was_told_before_lasts_until_it_starts_whatever_comes_then(app: Celeriac, how: str) -> None:
    @app.task(role="told", bind=True, shared=False, prompt=False, max_rounds=2, round_delay=100)
    def told(self: Any) -> None:
        if how == "snooze":
            raise self.snooze(100)
        if how == "retry":
            raise self.retry(countdown=100)
        raise Reject("again", requeue=True) if how == "loss" else ValueError("a round")

    app.register_roles()
    waiting = told.delay()
    app.backend.store_result(waiting.id, None, "SENT")
    assert result_of(app, waiting.id).state == "SENT"
    run_once(app)
    assert result_of(app, waiting.id).state == ("RETRY" if how == "retry" else "PENDING")
    app.backend.store_result(waiting.id, None, "SENT AGAIN")
    assert result_of(app, waiting.id).state == "SENT AGAIN"


@pytest.mark.timeout(30)
def test_a_handler_does_not_wait_for_what_comes_with_its_outcome(app: Celeriac) -> None:
    seen: list[str] = []

    @app.task(role="parent", shared=False, prompt=False)
    def parent() -> None:
        children = group(app.tasks["child"].s(), app.tasks["child"].s())
        for wait in (app.tasks["child"].delay().get, children.delay().get):
            with allow_join_result(), pytest.raises(CeleriacError) as refused:
                wait()
            seen.append(str(refused.value))

    @app.task(role="child", shared=False, prompt=False)
    def child() -> None: ...

    app.register_roles()
    parent.delay()
    run_all(app)
    assert ["comes with the outcome of this handler" in said for said in seen] == [True, True]


def test_what_waits_for_a_group_is_called_once_it_is_joined(app: Celeriac) -> None:
    tasks, told = declare(app), []
    whole = group(tasks["add"].s(1, 2), tasks["add"].s(3, 4)).delay()
    whole.then(lambda result: told.append(result.id))
    run_all(app)
    assert [whole.get(timeout=20), whole.get(timeout=20), told] == [[3, 7], [3, 7], [whole.id]]
