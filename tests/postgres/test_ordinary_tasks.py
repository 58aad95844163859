"""What an ordinary task may do, and say of itself: reject itself, leave its arguments unchecked, keep attributes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Task as CeleryTask
from celery.exceptions import Reject
from pydantic import BaseModel

from celeriac import Celeriac, Task
from tests.postgres.workflows import run_all
from tests.processes import Rows

# -- Reject ------------------------------------------------------------------------------------------------------------


def test_a_rejected_task_fails_with_what_it_raised(app: Celeriac) -> None:
    @app.task(role="no", prompt=False, shared=False)
    def no() -> None:
        raise Reject("not mine", requeue=False)

    app.register_roles()
    result = no.delay()
    run_all(app)
    with pytest.raises(Reject) as raised:
        result.get(timeout=5)
    assert (raised.value.reason, raised.value.requeue, result.state) == ("not mine", False, "FAILURE")


def test_a_task_rejected_to_be_requeued_is_delivered_again(app: Celeriac, rows: Rows) -> None:
    seen: list[tuple[bool, int]] = []

    @app.task(role="later", bind=True, prompt=False, shared=False)
    def later(self: Any) -> str:
        seen.append((self.request.delivery_info["redelivered"], self.request.retries))
        if len(seen) == 1:
            other.delay()
            raise Reject("not yet", requeue=True)
        return "done"

    @app.task(role="other", prompt=False, shared=False)
    def other() -> None: ...

    app.register_roles()
    result = later.delay()
    run_all(app)
    assert result.get(timeout=5) == "done"
    assert seen == [(False, 0), (True, 0)]
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'other'") == 0, "as it came to nothing"


def test_a_task_that_is_rejected_again_and_again_fails_in_the_end(app: Celeriac, rows: Rows) -> None:
    @app.task(role="never", prompt=False, shared=False, max_losses=2)
    def never() -> None:
        raise Reject("no", requeue=True)

    app.register_roles()
    never.delay()
    run_all(app)
    ((status, error),) = rows("SELECT status, error_message FROM worker_tasks")
    assert status == "failed"
    assert "Reject" in error


# -- arguments ---------------------------------------------------------------------------------------------------------


class Unchecked(CeleryTask):
    typing = False


@pytest.mark.parametrize("options", [{"typing": False}, {"base": Unchecked}], ids=["option", "base"])
def test_what_a_task_leaves_unchecked_fails_as_it_runs(app: Celeriac, options: dict[str, Any]) -> None:
    @app.task(role="loose", prompt=False, chunk=9, shared=False, **options)
    def loose(x: int, y: int) -> int:
        return x + y

    app.register_roles()
    wrong = [loose.delay(5), loose.delay(5, wrong=5), app.send_task("loose", (1, 2, 3)), *loose.bulk([(1,)])]
    right = loose.delay(5, y=6)
    run_all(app)
    for result in wrong:
        with pytest.raises(TypeError):
            result.get(timeout=5)
    assert right.get(timeout=5) == 11


def test_an_app_may_leave_all_arguments_unchecked(app: Celeriac) -> None:
    app.strict_typing = False

    @app.task(role="loose", prompt=False, shared=False)
    def loose(x: int) -> None: ...

    @app.task(role="strict", prompt=False, shared=False, typing=True)
    def strict(x: int) -> None: ...

    app.register_roles()
    assert loose.delay().id
    # BadArguments is one; where receivers listen to publishing, Celery's own check comes first.
    with pytest.raises(TypeError):
        strict.delay()


class Order(BaseModel):
    number: int


def test_models_are_given_as_arguments(app: Celeriac) -> None:
    @app.task(role="take", pydantic=True, prompt=False, chunk=9, shared=False)
    def take(order: Order) -> int:
        return order.number

    app.register_roles()
    results = [
        take.delay(Order(number=1)), take.apply_async(kwargs={"order": Order(number=2)}),
        take.s(Order(number=3)).delay(), take.delay({"number": 4}),
        *take.bulk([(Order(number=5),), {"order": Order(number=6)}]),
    ]  # fmt: skip
    run_all(app)
    assert [result.get(timeout=5) for result in results] == [1, 2, 3, 4, 5, 6]


# -- attributes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attempt", "session", "idempotency_key"])
def test_a_handler_keeps_attributes_of_any_name(app: Celeriac, name: str) -> None:
    @app.task(role="counts", bind=True, prompt=False, chunk=9, shared=False)
    def counts(self: Task[..., Any]) -> Any:
        setattr(self, name, "mine")
        kept = getattr(self, name)
        delattr(self, name)
        return kept

    app.register_roles()
    result = counts.delay()
    run_all(app)
    assert result.get(timeout=5) == "mine"


def test_each_retry_that_is_not_thrown_is_a_task_of_its_own(app: Celeriac, rows: Rows) -> None:
    """As senders of mail do, which try again what could not be sent, and go on with the rest."""
    tried: list[tuple[list[int], int]] = []

    @app.task(name="mailing", bind=True, max_retries=2, shared=False, prompt=False, chunk=9)
    def mailing(self: Any, numbers: list[int]) -> int:
        tried.append((numbers, self.request.retries))
        for number in numbers:
            if number % 2 and (number == 3 or not self.request.retries):
                self.retry(([number],), exc=OSError(number), countdown=0, throw=False)
        return len(numbers)

    mailing.using(account="shop", lock_key="mail").delay([1, 2, 3])
    run_all(app)
    assert sorted(tried) == [([1], 1), ([1, 2, 3], 0), ([3], 1), ([3], 2)]
    assert rows("SELECT status, error_message FROM worker_tasks ORDER BY status, id") == [
        ("completed", None), ("completed", None), ("completed", None), ("failed", "OSError: 3"),
    ]  # fmt: skip
    assert rows("SELECT DISTINCT account, lock_key FROM worker_tasks") == [("shop", "mail")]


@pytest.mark.parametrize("how", ["thrown after all", "failed"])
def test_a_retry_that_is_not_thrown_is_forgotten_where_its_handler_does_not_return(
    app: Celeriac, rows: Rows, how: str
) -> None:
    @app.task(name="mailing", bind=True, max_retries=1, shared=False, prompt=False)
    def mailing(self: Any) -> None:
        if not self.request.retries:
            again = self.retry(countdown=0, throw=False)
            raise again if how == "thrown after all" else ValueError

    mailing.delay()
    run_all(app)
    ((status, retries),) = rows("SELECT status, retry_count FROM worker_tasks")
    assert (status, retries) == (("completed", 1) if how == "thrown after all" else ("failed", 0))


def test_a_retry_that_is_not_thrown_stays_in_its_workflow(app: Celeriac, rows: Rows) -> None:
    """With the workflow's errbacks; what comes after its task came by that task's result."""
    blamed: list[Any] = []

    @app.task(name="mailing", bind=True, max_retries=1, shared=False, prompt=False)
    def mailing(self: Any) -> str:
        self.retry(exc=OSError("no"), countdown=0, throw=False)
        return "went on"

    @app.task(name="after", shared=False, prompt=False)
    def after(result: str) -> str:
        return result

    @app.task(name="blame", shared=False, prompt=False)
    def blame(task_id: str) -> None:
        blamed.append(task_id)

    (mailing.s().on_error(blame.si("it")) | after.s()).delay()
    run_all(app)
    assert rows("SELECT role, status FROM celeriac.history ORDER BY role, status") == [
        ("after", "completed"), ("blame", "completed"), ("mailing", "completed"), ("mailing", "failed"),
    ]  # fmt: skip
    assert blamed == ["it"]
    assert rows("SELECT count(DISTINCT workflow), count(workflow) FROM celeriac.history") == [(1, 4)]


@pytest.mark.parametrize("how", ["by its role", "by its call"])
def test_a_retry_that_is_not_thrown_keeps_the_unique_key_and_the_expiry(app: Celeriac, rows: Rows, how: str) -> None:
    @app.task(
        name="mailing", bind=True, max_retries=3, shared=False, prompt=False,
        unique_by="x" if how == "by its role" else None,
    )  # fmt: skip
    def mailing(self: Any, x: int) -> None:
        for _ in range(2):
            self.retry(countdown=3600, throw=False)

    def call() -> Any:
        given = {} if how == "by its role" else {"unique_key": "x"}
        return mailing.using(expires=7200, **given).delay(x=7)

    first = call()
    before = rows.one("SELECT expires_at FROM celeriac.tasks")
    run_all(app)
    ((again, expires_at),) = rows("SELECT task_id, expires_at FROM celeriac.tasks")
    assert (again != first.id, expires_at) == (True, before)
    assert call().id == again


def test_a_task_s_times_are_its_row_s_and_not_its_request_s(app: Celeriac) -> None:
    seen: list[Any] = []

    @app.task(name="timed", bind=True, shared=False, prompt=False)
    def timed(self: Any) -> None:
        seen.append((self.request.eta, self.request.expires, self.request.stamps))

    timed.apply_async(eta=datetime.now(UTC), expires=100)
    run_all(app)
    assert seen == [(None, None, None)]
