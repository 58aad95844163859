"""However a handler ends, it is one attempt's end: judged and told by what was raised, and no loss."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IllegalStateChangeError

from celeriac import Celeriac, Permanent
from celeriac.errors import CeleriacError, HandlerEnded, LeaseLost, TaskCancelled
from celeriac.run.arrive import run_ticket
from celeriac.run.sessions import HandlersSession
from celeriac.run.settler import Settler
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

#: What Celery's tracer says of an outcome that cannot be committed.
pytestmark = pytest.mark.filterwarnings("ignore:Exception raised outside body")

ENDED = "SELECT status, losses, tries, error_message FROM worker_tasks"

Ran = Callable[..., tuple[Any, ...]]


class Odd(Exception):
    """It cannot be pickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")
        self.both = lambda: one + two


class OddPermanent(Odd, Permanent): ...


class GivenUp(BaseException): ...


@pytest.fixture(params=["direct", "traced"])
def ran(app: Celeriac, database: Database, rows: Rows, request: pytest.FixtureRequest) -> Ran:
    """Declares a task of this body and runs one call of it, in a direct call and through Celery's tracer: its row."""

    def run(body: Callable[[Any], Any], **options: Any) -> tuple[Any, ...]:
        hooks = {"on_success": lambda *_: None} if request.param == "traced" else {}
        base = type("Base", (app.Task,), hooks)

        @app.task(role="work", bind=True, shared=False, base=base, **options)
        def work(self: Any) -> Any:
            return body(self)

        app.register_roles()
        work.delay()
        run_ticket(app, "work", *claimed(database, "work"))
        ((row),) = rows(ENDED)
        return row

    return run


def raising(error: BaseException) -> Callable[[Any], Any]:
    def body(_: Any) -> None:
        raise error

    return body


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("no"), GeneratorExit("no"), GivenUp("no"), SystemExit(3), SystemExit()], ids=repr
)
def test_what_is_no_exception_is_one_failure(ran: Ran, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    status, losses, tries, message = ran(raising(error), max_retries=0, max_rounds=1)
    assert (status, losses, tries) == ("failed", 0, 1)
    assert message == f"{type(error).__name__}: {error}"
    assert "was broken off" not in caplog.text, "it fails as by any other error"


def test_an_interrupt_that_nobody_sent_is_one_failure(ran: Ran) -> None:
    """A worker hears SIGINT itself."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ran(raising(KeyboardInterrupt("no")), max_rounds=1)[:2] == ("failed", 0)
    except KeyboardInterrupt:
        pytest.fail("it has ended its process")
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_who_runs_a_handler_outside_of_a_worker(ran: Ran) -> None:
    with pytest.raises(KeyboardInterrupt):
        ran(raising(KeyboardInterrupt("no")), max_rounds=1)


def test_an_error_that_is_its_own_cause_is_judged(ran: Ran) -> None:
    def body(_: Any) -> None:
        error = ValueError("circle")
        raise error from error

    assert ran(body, max_rounds=1) == ("failed", 0, 1, "ValueError: circle")


@pytest.mark.parametrize("method", ["__getattr__", "__reduce__", "__repr__", "__str__"])
@pytest.mark.parametrize("how", [SystemExit, ValueError])
def test_an_error_whose_methods_fail_is_one_failure(ran: Ran, method: str, how: type[BaseException]) -> None:
    def fail(*_: object) -> Any:
        raise how("of its own")

    error = type("Odd", (Exception,), {method: fail})("odd")
    status, losses, tries, message = ran(raising(error), max_rounds=1)
    assert (status, losses, tries) == ("failed", 0, 1)
    assert message == "Odd: odd" if method != "__str__" else message.startswith("Odd: (its message cannot be read")


@pytest.mark.parametrize(("hook", "status"), [("before_start", "failed"), ("on_success", "completed")])
def test_a_hook_that_exits_is_no_loss(app: Celeriac, database: Database, rows: Rows, hook: str, status: str) -> None:
    def leave(*_: object) -> None:
        sys.exit("left")

    @app.task(role="work", shared=False, base=type("Base", (app.Task,), {hook: leave}), max_rounds=1)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    run_ticket(app, "work", *claimed(database, "work"))
    error = "SystemExit: left" if status == "failed" else None
    assert rows("SELECT status, losses, error_message FROM worker_tasks") == [(status, 0, error)]


@pytest.mark.parametrize("value", [float("nan"), "a\0b", "a\udc80b"], ids=repr)
def test_an_error_that_cannot_be_stored_keeps_its_kind_and_its_text(rows: Rows, ran: Ran, value: Any) -> None:
    status, _, _, message = ran(raising(ValueError(value)), max_rounds=1)
    ((kind, said),) = rows("SELECT result ->> 'exc_type', result -> 'exc_message' ->> 0 FROM celeriac.history")
    assert (status, kind, f"{kind}: {said}") == ("failed", "ValueError", message)


def test_what_is_no_exception_is_retried_where_its_role_says_so(ran: Ran) -> None:
    status, losses, _, message = ran(raising(asyncio.CancelledError("no")), autoretry_for=(asyncio.CancelledError,))
    assert (status, losses, message) == ("pending", 0, "CancelledError: no")


def test_sys_exit_in_a_handler_fails_it_by_name(ran: Ran) -> None:
    assert ran(lambda _: sys.exit("enough"), max_rounds=1)[0::3] == ("failed", "SystemExit: enough")


@pytest.mark.parametrize(
    ("error", "options"),
    [(OddPermanent(1, 2), {}), (Odd(1, 2), {"dont_autoretry_for": (Odd,)}), (Odd(1, 2), {"max_rounds": 1})],
    ids=["permanent", "dont_autoretry_for", "last round"],
)
def test_an_error_that_cannot_be_pickled_is_judged_and_told_as_itself(
    app: Celeriac, rows: Rows, ran: Ran, error: Exception, options: dict[str, Any]
) -> None:
    status, losses, _, message = ran(raising(error), **options)
    assert (status, losses, message) == ("failed", 0, f"{type(error).__name__}: odd")
    assert rows.one("SELECT result ->> 'exc_type' FROM celeriac.history") == type(error).__name__


def test_an_odd_error_is_retried_where_its_role_says_so(ran: Ran) -> None:
    assert ran(raising(Odd(1, 2)), autoretry_for=(Odd,))[0::3] == ("pending", "Odd: odd")


# -- self.session ------------------------------------------------------------------------------------------------------


def test_a_handler_that_goes_on_after_its_statement_failed_fails_and_is_not_lost(ran: Ran) -> None:
    def body(self: Any) -> str:
        try:
            self.session.execute(text("SELECT 1 / 0"))
        except DBAPIError:
            return "went on"
        return "unexpected"

    status, losses, _, message = ran(body, max_rounds=1)
    assert (status, losses) == ("failed", 0)
    assert "begin_nested" in message


def test_what_may_fail_may_stand_in_a_savepoint(ran: Ran) -> None:
    def body(self: Any) -> str:
        try:
            with self.session.begin_nested():
                self.session.execute(text("SELECT 1 / 0"))
        except DBAPIError:
            self.session.execute(text("SELECT 1"))
        return "went on"

    assert ran(body)[0] == "completed"


@pytest.mark.parametrize("way", ["commit", "begin"])
def test_a_commit_of_the_handlers_own_is_refused_and_names_what_to_use(rows: Rows, ran: Ran, way: str) -> None:
    rows("CREATE TABLE mine (n int)")

    def body(self: Any) -> None:
        if way == "begin":
            with self.session.begin():
                self.session.execute(text("INSERT INTO mine VALUES (1)"))
        else:
            self.session.execute(text("INSERT INTO mine VALUES (1)"))
            self.session.commit()

    status, losses, _, message = ran(body, max_rounds=1)
    assert (status, losses) == ("failed", 0)
    assert "early_commit" in message
    assert rows("SELECT FROM mine") == []


@pytest.mark.parametrize("way", ["COMMIT", "/* all */ rollback ;", "COMMIT AND CHAIN", "caught", "driver", "later"])
def test_a_handler_that_ends_its_transaction_by_hand_fails_once(rows: Rows, ran: Ran, way: str) -> None:
    """Also where it catches what it is told, or does so where nobody is asked."""
    rows("CREATE TABLE mine (n int)")

    def body(self: Any) -> None:
        self.session.execute(text("INSERT INTO mine VALUES (1)"))
        connection = self.session.connection()
        match way:
            case "caught":
                with suppress(CeleriacError):
                    self.session.execute(text("COMMIT"))
                raise ValueError("then this")
            case "driver":
                connection.connection.dbapi_connection.cursor().execute("COMMIT")
            case "later":
                connection.connection.dbapi_connection.cursor().execute("COMMIT")
                self.session.execute(text("INSERT INTO mine VALUES (2)"))
            case statement:
                self.session.execute(text(statement))

    status, losses, _, message = ran(body, max_rounds=1)
    assert (status, losses) == ("failed", 0)
    assert message == "ValueError: then this" if way == "caught" else "early_commit" in message
    assert way in ("driver", "later") or rows("SELECT FROM mine") == []


# -- results and retries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), "a\0b", [{"deep": float("inf")}]], ids=repr)
def test_a_result_that_cannot_be_stored_fails_once(ran: Ran, value: Any) -> None:
    status, losses, _, message = ran(lambda _: value, max_rounds=3)
    assert (status, losses) == ("failed", 0)
    assert "the result of work cannot be stored" in message


@pytest.mark.parametrize("option", ["priority", "expires", "time_limit", "headers"])
def test_an_option_of_calls_is_refused_to_a_retry(ran: Ran, option: str) -> None:
    status, _, _, message = ran(lambda self: self.retry(countdown=1, **{option: 5}), max_rounds=1)
    assert status == "failed"
    assert f"retry({option}=…)" in message


def test_an_option_that_is_none_is_none_of_a_retry(ran: Ran) -> None:
    """Handlers pass on what they were given themselves."""
    status, *_ = ran(lambda self: self.retry(countdown=100, expires=None, priority=None))
    assert status == "pending"


def test_a_retry_goes_to_no_queue_that_the_role_does_not_list(ran: Ran) -> None:
    status, _, _, message = ran(lambda self: self.retry(countdown=1, queue="another"), max_rounds=1)
    assert status == "failed"
    assert "its queue is 'work', set where the role is declared; not 'another'" in message


def test_a_retrys_arguments_are_bounded_like_a_calls(app: Celeriac, ran: Ran) -> None:
    big = "x" * (int(app.settings.max_argument_bytes) + 1)
    status, _, _, message = ran(lambda self: self.retry(args=[big]), max_rounds=1)
    assert (status, message.partition(":")[0]) == ("failed", "ArgumentsTooLarge")


# -- what is raised beside the handler ---------------------------------------------------------------------------------


def test_a_success_is_not_settled_without_what_its_handler_wrote(
    rows: Rows, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks off between the handler's end and its commit."""
    rows("CREATE TABLE mine (n int)")

    def leave(*_: object) -> None:
        sys.exit("left")

    monkeypatch.setattr(Settler, "settle_with_session", leave)
    status, losses, _, message = ran(
        lambda self: self.session.execute(text("INSERT INTO mine VALUES (1)")) and None, max_rounds=1
    )
    assert (status, losses, message) == ("failed", 0, "SystemExit: left")
    assert rows("SELECT FROM mine") == []


@pytest.mark.parametrize(
    ("hook", "line"),
    [
        ("before_start", "was broken off before it had an outcome"),
        ("on_success", "has ended, and a hook or"),
    ],
)
def test_what_a_hook_raises_is_told_with_its_traceback_and_without_secrets(
    app: Celeriac, database: Database, rows: Rows, caplog: pytest.LogCaptureFixture, hook: str, line: str
) -> None:
    def leave_by_hand(*_: object) -> None:
        sys.exit("left hunter2")

    base = type("Base", (app.Task,), {hook: leave_by_hand})

    @app.task(role="work", shared=False, base=base, max_rounds=1, sensitive=("password",))
    def work(password: str) -> None: ...

    app.register_roles()
    called = work.delay("hunter2")
    run_ticket(app, "work", *claimed(database, "work"))
    (told,) = (message for message in caplog.messages if line in message)
    assert ("in leave_by_hand" in told, "hunter2" in told) == (True, False)
    if hook == "before_start":
        kept = rows.one("SELECT result ->> 'traceback' FROM celeriac.history")
        assert ("in leave_by_hand" in kept, "hunter2" in kept) == (True, False)
        with pytest.raises(HandlerEnded):
            called.get(timeout=5)


@pytest.mark.parametrize(("interrupt", "ended"), [(TaskCancelled, (True, False)), (LeaseLost, (False, True))])
def test_an_interrupt_while_a_hooks_error_is_judged_is_an_interrupt(
    app: Celeriac, database: Database, rows: Rows, interrupt: type[BaseException], ended: tuple[bool, bool]
) -> None:
    class Late(BaseException):
        def __str__(self) -> str:
            raise interrupt("meanwhile")

    def leave(*_: object) -> None:
        raise Late

    @app.task(role="work", shared=False, base=type("Base", (app.Task,), {"before_start": leave}), max_rounds=1)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    run_ticket(app, "work", *claimed(database, "work"))
    # What is lost may be ready again before the ticket's process looks for more, and is lost once more there.
    assert rows("SELECT status = 'cancelled', losses > 0 FROM worker_tasks") == [ended]


def test_ctrl_c_while_an_error_is_read_ends_who_runs_a_handler_outside_of_a_worker(ran: Ran) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(raising(type("Odd", (Exception,), {"__str__": interrupted})()), max_rounds=1)


def test_a_session_that_cannot_be_closed_is_named(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where another thread of the handler's still uses it."""

    def close(_: object) -> None:
        raise IllegalStateChangeError("Method 'close()' can't be called here")

    def body(self: Any) -> None:
        self.session.execute(text("SELECT 1"))
        raise ValueError("its own")

    monkeypatch.setattr(HandlersSession, "close", close)
    assert ran(body, max_rounds=1)[0::3] == ("failed", "ValueError: its own")
    assert re.search(r"The session of task \d+ is not closed in good order: IllegalStateChangeError", caplog.text)
