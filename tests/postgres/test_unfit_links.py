"""A link that cannot be enqueued fails by itself: the task before it has done its work."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group

from celeriac import Celeriac
from celeriac.errors import EnqueueRefused
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

STATES = "SELECT role, status FROM worker_tasks ORDER BY role, status"
OF = "SELECT status, error_message, account FROM worker_tasks WHERE role = :role"


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    tasks = declare(app, keep="forever")

    @app.task(role="narrow", shared=False, prompt=False, chunk=500, keep="forever", priority_range=(0, 9))
    def narrow(x: int) -> int:
        tasks["ran"].append(("narrow", x))
        return x

    app.register_roles()
    return tasks | {"narrow": narrow}


LINKS = {
    "role gone": ("gone", lambda app, _: app.signature("gone"), "no role 'gone'"),
    "arguments": ("narrow", lambda _, tasks: tasks["narrow"].s(1, 2), "too many positional arguments"),
    "queue": ("narrow", lambda _, tasks: tasks["narrow"].s().set(queue="elsewhere"), "its queue is 'narrow'"),
    "priority": ("narrow", lambda _, tasks: tasks["narrow"].s().set(priority=10), "priority=10: give a whole number"),
    "account": ("narrow", lambda _, tasks: tasks["narrow"].s().set(account="x" * 2000), "account="),
    "countdown": ("narrow", lambda _, tasks: tasks["narrow"].s().set(countdown="soon"), "countdown"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_the_task_before_it_completes_and_it_has_a_row_of_its_own(
    app: Celeriac, tasks: Any, rows: Rows, kind: str
) -> None:
    role, make, why = LINKS[kind]
    for shape in (lambda: chain(tasks["add"].s(1, 1).set(account="acme"), make(app, tasks))(),
                  lambda: tasks["add"].apply_async((1, 1), account="acme", link=make(app, tasks))):  # fmt: skip
        rows("DELETE FROM worker_tasks")
        result = shape()
        run_all(app)
        assert rows("SELECT status, result FROM worker_tasks WHERE role = 'add'") == [("completed", 2)]
        ((status, error, account),) = rows(OF, role=role)
        assert (status, account, why in error) == ("failed", "acme", True), error
        if kind != "countdown":
            assert result.state in ("FAILURE", "SUCCESS")


def test_what_follows_it_fails_with_it_and_its_errbacks_are_called(app: Celeriac, tasks: Any, rows: Rows) -> None:
    unfit = tasks["narrow"].s(1, 2).on_error(tasks["told"].s())
    result = chain(tasks["add"].s(1, 1), unfit, tasks["add"].s(5), tasks["total"].s())()
    run_all(app)
    assert rows(STATES) == [
        ("add", "completed"), ("add", "failed"), ("narrow", "failed"), ("told", "completed"), ("total", "failed"),
    ]  # fmt: skip
    link = rows.one("SELECT task_id FROM worker_tasks WHERE role = 'narrow'")
    assert ("told", link) in tasks["ran"]
    assert result.state == "FAILURE"


def test_the_members_of_a_group_beside_it_run_and_their_body_fails(app: Celeriac, tasks: Any, rows: Rows) -> None:
    result = chain(
        tasks["add"].s(1, 1), group(tasks["add"].s(1), tasks["narrow"].s(1, 2), tasks["add"].s(2)), tasks["total"].s()
    )()
    run_all(app)
    assert rows(STATES) == [
        ("add", "completed"), ("add", "completed"), ("add", "completed"), ("narrow", "failed"), ("total", "failed"),
    ]  # fmt: skip
    assert result.state == "FAILURE"


def test_a_member_whose_link_is_unfit_holds_no_body_up(app: Celeriac, tasks: Any, rows: Rows) -> None:
    chord([chain(tasks["add"].s(1, 1), app.signature("gone")), tasks["add"].s(1, 2)], tasks["total"].s())()
    run_all(app)
    assert rows(STATES) == [("add", "completed"), ("add", "completed"), ("gone", "failed"), ("total", "failed")]


def test_a_body_of_nobody_fails_and_its_members_run(app: Celeriac, tasks: Any, rows: Rows) -> None:
    chain(tasks["add"].s(1, 1), group(tasks["add"].s(1), tasks["add"].s(2)), app.signature("gone"))()
    run_all(app)
    assert rows(STATES) == [("add", "completed")] * 3 + [("gone", "failed")]


def test_what_a_handler_enqueues_itself_is_refused_as_ever(app: Celeriac, tasks: Any, rows: Rows) -> None:
    refused: list[str] = []

    @app.task(role="asks", shared=False, prompt=False, chunk=500, keep="forever")
    def asks() -> int:
        try:
            tasks["narrow"].delay(1, 2)
        except EnqueueRefused as error:
            refused.append(str(error))
        return 1

    app.register_roles()
    chain(asks.s(), tasks["narrow"].s())()
    run_all(app)
    assert len(refused) == 1
    assert rows(STATES) == [("asks", "completed"), ("narrow", "completed")]


def test_rules_of_another_release_refuse_no_link(app: Celeriac, tasks: Any, rows: Rows) -> None:
    """They pass with the deploy; a call is refused meanwhile."""

    @app.task(role="keyed", shared=False, prompt=False, chunk=500, keep="forever", lock_by="x")
    def keyed(x: int) -> int:
        return x

    app.register_roles()
    rows("UPDATE celeriac.roles SET definition = definition || '{\"lock_by\": \"y\"}' WHERE role = 'keyed'")
    with pytest.raises(EnqueueRefused, match="declared here with lock_by='x'"):
        keyed.delay(1)
    chain(tasks["add"].s(1, 1), keyed.s())()
    run_all(app)
    assert rows("SELECT role, status, lock_key FROM worker_tasks ORDER BY id") == [
        ("add", "completed", None), ("keyed", "completed", "x:2"),
    ]  # fmt: skip
