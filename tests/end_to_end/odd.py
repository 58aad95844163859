"""Tasks whose handlers misbehave, each in a way of its own, with what is to become of each."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from celery.exceptions import WorkerShutdown
from greenlet import GreenletExit
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, Permanent

app = Celeriac("odd")

#: A status, and how the error begins; what a handler gets is a task like any other's, but for its attribute `way`.
Ended = tuple[str, str | None]
Act = Callable[[Any], Any]

NAN, INFINITY = float("nan"), float("inf")
DONE: Ended = ("completed", None)


def failed(error: str) -> Ended:
    return ("failed", error)


# -- what a handler raises ---------------------------------------------------------------------------------------------


class GivenUp(BaseException): ...


class Mute(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")
        self.both = lambda: one + two


class Hopeless(Unpicklable, Permanent): ...


class NotAgain(Unpicklable): ...


def odd(**methods: Callable[..., Any]) -> Exception:
    """An exception with these methods."""
    return type("Methodical", (Exception,), methods)("odd")  # type: ignore[no-any-return]


def breaks(*_: object) -> Any:
    raise ValueError("broken")


def leaves(*_: object) -> Any:
    raise SystemExit("left")


def raises(error: BaseException) -> Act:
    def act(_: Any) -> None:
        raise error

    return act


def from_itself(_: Any) -> None:
    error = ValueError("circle")
    raise error from error


def from_each_other(_: Any) -> None:
    one, two = ValueError("circle"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def from_many(_: Any) -> None:
    error = ValueError("deep")
    for n in range(3_000):
        after = ValueError("deep" if n == 2_999 else n)
        after.__cause__ = error
        error = after
    raise error


def grouped(_: Any) -> None:
    group: Exception = ValueError("inmost")
    for _n in range(300):
        group = ExceptionGroup("nested", [group, KeyError("another")])
    raise group


def recurses(task: Any) -> Any:
    return recurses(task)


def without_module(_: Any) -> None:
    error = odd()
    type(error).__module__ = None  # type: ignore[assignment]
    raise error


ERRORS: dict[str, tuple[Act, Ended]] = {
    "sys.exit": (lambda _: sys.exit("enough"), failed("SystemExit: enough")),
    "SystemExit": (raises(SystemExit()), failed("SystemExit: ")),
    "KeyboardInterrupt": (raises(KeyboardInterrupt("no")), failed("KeyboardInterrupt: no")),
    "GeneratorExit": (raises(GeneratorExit("no")), failed("GeneratorExit: no")),
    "CancelledError": (raises(asyncio.CancelledError("no")), failed("CancelledError: no")),
    "GreenletExit": (raises(GreenletExit("no")), failed("GreenletExit: no")),
    "WorkerShutdown": (raises(WorkerShutdown(1)), failed("WorkerShutdown: 1")),
    "BaseException": (raises(GivenUp("no")), failed("GivenUp: no")),
    "mute BaseException": (raises(Mute()), failed("Mute: (its message cannot be read")),
    "BaseExceptionGroup": (raises(BaseExceptionGroup("all", [GivenUp()])), failed("BaseExceptionGroup: all")),
    "ExceptionGroup": (grouped, failed("ExceptionGroup: nested")),
    "StopIteration": (raises(StopIteration("no")), failed("StopIteration: no")),
    "RecursionError": (recurses, failed("RecursionError: ")),
    "MemoryError": (raises(MemoryError("no")), failed("MemoryError: no")),
    "unpicklable": (raises(Unpicklable(1, 2)), failed("Unpicklable: odd")),
    "__reduce__ raises": (raises(odd(__reduce__=breaks)), failed("Methodical: odd")),
    "__reduce__ exits": (raises(odd(__reduce__=leaves)), failed("Methodical: odd")),
    "__str__ raises": (raises(odd(__str__=breaks)), failed("Methodical: (its message cannot be read")),
    "__str__ exits": (raises(odd(__str__=leaves)), failed("Methodical: (its message cannot be read")),
    "__str__ is no text": (raises(odd(__str__=lambda _: 1)), failed("Methodical: (its message cannot be read")),
    "__repr__ raises": (raises(odd(__repr__=breaks)), failed("Methodical: odd")),
    "__repr__ exits": (raises(odd(__repr__=leaves)), failed("Methodical: odd")),
    "__getattr__ raises": (raises(odd(__getattr__=breaks)), failed("Methodical: odd")),
    "its own cause": (from_itself, failed("ValueError: circle")),
    "causes in a circle": (from_each_other, failed("ValueError: circle")),
    "many causes": (from_many, failed("ValueError: deep")),
    "no module": (without_module, failed("Methodical: odd")),
    "long": (raises(ValueError("x" * 2_000_000)), failed("ValueError: xxx")),
    "NUL": (raises(ValueError("a\0b")), failed("ValueError: a\\x00b")),
    "surrogate": (raises(ValueError("a\udc80b")), failed("ValueError: a\\udc80b")),
    "NaN": (raises(ValueError(NAN)), failed("ValueError: nan")),
}

# -- what it returns and reports ---------------------------------------------------------------------------------------


class Leaves:
    __json__ = leaves


class Unreadable(dict):  # type: ignore[type-arg]
    __repr__ = breaks


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def returns(value: Any) -> Act:
    return lambda _: value


def progresses(value: Any) -> Act:
    return lambda task: task.progress(value)


def updates(value: Any) -> Act:
    return lambda task: task.update_state(state="HALFWAY", meta=value)


def calls(*args: Any, **options: Any) -> Act:
    return lambda task: task.app.tasks["fine"].apply_async(args, **options) and None


UNSTORED = failed("EncodeError: the result of ROLE cannot be stored")
UNFIT = failed("BadValue: ROLE: progress cannot be stored")
BAD_CALL = failed("NotStorable: ")

VALUES: dict[str, tuple[Act, Ended]] = {
    **{
        f"result {name}": (returns(value), UNSTORED)
        for name, value in {
            "NaN": NAN, "infinity": [{"deep": -INFINITY}], "NaN key": {NAN: 1}, "NUL": "a\0b", "NUL key": {"a\0": 1},
            "surrogate": "a\udc80b", "object": object(), "tuple key": {(1, 2): 3}, "circle": circular(),
            "deep": nested(100_000), "large": "x" * 5_000_000, "long number": 10**5_000,
        }.items()
    },
    "result __json__ exits": (returns(Leaves()), failed("SystemExit: left")),
    "result __repr__ raises": (returns(Unreadable(a=1)), DONE),
    "progress NaN": (progresses(NAN), UNFIT),
    "progress NUL": (progresses({"a\0": 1}), UNFIT),
    "progress surrogate": (progresses("a\udc80b"), UNFIT),
    "state infinity": (updates({"a": INFINITY}), UNFIT),
    "state NUL": (updates("a\0b"), UNFIT),
    "call NaN": (calls(NAN), BAD_CALL),
    "call NUL": (calls("a\0b"), BAD_CALL),
    "call surrogate": (calls("a\udc80b"), BAD_CALL),
    "log": (lambda task: task.log.info("%s", odd(__str__=breaks)), DONE),
    "log NUL": (lambda task: task.log.info("a\0b\udc80"), DONE),
}  # fmt: skip

# -- how it retries ----------------------------------------------------------------------------------------------------


def retries(*args: Any, **options: Any) -> Act:
    def act(task: Any) -> str:
        if task.request.retries:
            return "again"
        raise task.retry(*args, **options)

    return act


def refused(option: str) -> Ended:
    return failed(f"BadValue: ROLE: retry({option}=…)")


RETRIES: dict[str, tuple[Act, Ended]] = {
    **{
        f"retry {option}": (retries(countdown=0, **{option: value}), refused(option))
        for option, value in {
            "priority": 5, "expires": 10, "time_limit": 5, "soft_time_limit": 5, "headers": {"a": 1}, "link": [],
            "link_error": [], "task_id": "another", "serializer": "pickle", "routing_key": "x", "shadow": "y",
        }.items()
    },
    "retry queue": (retries(countdown=0, queue="another"), failed("BadArguments: ")),
    "retry": (retries(countdown=0), DONE),
    "retry past": (retries(eta=datetime(1970, 1, 1, tzinfo=UTC)), DONE),
    "retry before": (retries(countdown=-5), DONE),
    "retry without a limit": (retries(countdown=0, max_retries=9), DONE),
    "retry of an odd error": (retries(countdown=0, exc=Unpicklable(1, 2)), DONE),
    "retry of an error of itself": (retries(countdown=0, exc=odd(__getattr__=breaks)), DONE),
    "retry no more": (retries(countdown=0, max_retries=0, exc=Unpicklable(1, 2)), failed("Unpicklable: odd")),
    "retry NaN": (retries(countdown=NAN), failed("BadArguments: ")),
    "retry infinity": (retries(countdown=INFINITY), failed("BadArguments: ")),
    "retry never": (retries(countdown=1e30), failed("BadArguments: ")),
    "retry soon": (retries(countdown="soon"), failed("BadArguments: ")),
    "retry end of time": (retries(eta=datetime.max), failed("BadArguments: ")),
    "retry args NaN": (retries(countdown=0, args=[NAN]), BAD_CALL),
    "retry kwargs NUL": (retries(countdown=0, kwargs={"way": "a\0b"}), BAD_CALL),
}  # fmt: skip

# -- what it does with its session -------------------------------------------------------------------------------------

WROTE = text("INSERT INTO ran (task_id, role, what) VALUES (:id, 'odd', 'wrote')")
TWICE = text("INSERT INTO once VALUES (1), (1)")


def writes(then: Act) -> Act:
    def act(task: Any) -> None:
        task.session.execute(WROTE, {"id": task.request.id})
        then(task)

    return act


def caught(task: Any) -> None:
    with suppress(DBAPIError):
        task.session.execute(TWICE)


def caught_and_rolled_back(task: Any) -> None:
    caught(task)
    task.session.rollback()


def caught_in_a_savepoint(task: Any) -> None:
    with suppress(DBAPIError), task.session.begin_nested():
        task.session.execute(TWICE)


def commits_itself(task: Any) -> None:
    with suppress(Exception):
        task.session.commit()
    task.session.execute(WROTE, {"id": task.request.id})


def runs(statement: str) -> Act:
    return lambda task: task.session.execute(text(statement))


def on_its_own(task: Any) -> None:
    """Each statement commits."""
    task.session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
    task.session.execute(WROTE, {"id": task.request.id})


EARLY = failed("CeleriacError: ")

SESSIONS: dict[str, tuple[Act, Ended]] = {
    "caught": (writes(caught), failed("CeleriacError: a statement of self.session failed")),
    "caught and rolled back": (writes(caught_and_rolled_back), DONE),
    "caught in a savepoint": (writes(caught_in_a_savepoint), DONE),
    "commit": (writes(lambda task: task.session.commit()), EARLY),
    "begin": (writes(lambda task: task.session.get_transaction().commit()), EARLY),
    "COMMIT": (writes(runs("COMMIT")), EARLY),
    "driver commits": (writes(lambda task: task.session.connection().connection.commit()), EARLY),
    "rollback": (writes(lambda task: task.session.rollback()), DONE),
    "close": (writes(lambda task: task.session.close()), DONE),
    "reset": (writes(lambda task: task.session.reset()), DONE),
    "by itself": (on_its_own, EARLY),
    "early": (lambda task: task.early_commit().__enter__() and None, DONE),
}

# -- what it does to its process ---------------------------------------------------------------------------------------


def closes_the_app(task: Any) -> None:
    task.app.close()


def leaves_a_thread(_: Any) -> None:
    threading.Thread(target=sys.exit, args=(3,), name="left behind").start()


def runs_a_loop(_: Any) -> int:
    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    return asyncio.run(one())


def has_an_exiting_greenlet(_: Any) -> None:
    if (gevent := sys.modules.get("gevent")) is not None:
        gevent.joinall([gevent.spawn(sys.exit, 3)])


PROCESS: dict[str, tuple[Act, Ended]] = {
    "thread": (leaves_a_thread, DONE),
    "loop": (runs_a_loop, DONE),
    "greenlet": (has_an_exiting_greenlet, DONE),
    "closes stdout": (lambda _: sys.stdout.close(), DONE),
    "closes the app": (closes_the_app, DONE),
}

WAYS = ERRORS | VALUES | RETRIES | SESSIONS | PROCESS


ONCE: dict[str, Any] = {"shared": False, "max_losses": 1, "max_rounds": 1, "stale_after": 5}


@app.task(role="odd", bind=True, max_retries=3, **ONCE)
def misbehaves(self: Any, way: str) -> Any:
    return WAYS[way][0](self)


class Traced(app.Task):  # type: ignore[misc, name-defined]
    """It has a hook, so that its calls go through Celery's tracer."""

    abstract = True

    def on_success(self, *_: Any) -> None: ...


@app.task(role="traced", bind=True, base=Traced, max_retries=3, **ONCE)
def misbehaves_traced(self: Any, way: str) -> Any:
    return WAYS[way][0](self)


@app.task(role="fine", shared=False)
def fine(n: Any) -> Any:
    return n


# -- what is judged ----------------------------------------------------------------------------------------------------

JUDGED: dict[str, tuple[BaseException, Ended]] = {
    "Permanent": (Hopeless(1, 2), failed("Hopeless: odd")),
    "dont_autoretry_for": (NotAgain(1, 2), failed("NotAgain: odd")),
    "autoretry_for": (Unpicklable(1, 2), DONE),
    "autoretry_for what is no Exception": (asyncio.CancelledError("no"), DONE),
}


def judge(task: Any, way: str) -> int:
    if task.request.retries:
        return int(task.request.retries)
    raise JUDGED[way][0]


AGAIN: dict[str, Any] = ONCE | {
    "autoretry_for": (Exception, asyncio.CancelledError), "dont_autoretry_for": (NotAgain,), "max_retries": 3,
    "retry_kwargs": {"countdown": 0}, "bind": True,
}  # fmt: skip


@app.task(role="judged", **AGAIN)
def judged(self: Any, way: str) -> int:
    return judge(self, way)


@app.task(role="judged_on_loop", **AGAIN)
async def judged_on_loop(self: Any, way: str) -> int:
    await asyncio.sleep(0)
    return judge(self, way)


# -- coroutines --------------------------------------------------------------------------------------------------------


async def _raises(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def _has_a_task(error: BaseException) -> None:
    await asyncio.create_task(_raises(error))


AWAITED: dict[str, tuple[Callable[[], Any], Ended]] = {
    "CancelledError": (lambda: _raises(asyncio.CancelledError("no")), failed("CancelledError: no")),
    "SystemExit": (lambda: _raises(SystemExit("no")), failed("SystemExit: no")),
    "KeyboardInterrupt": (lambda: _raises(KeyboardInterrupt("no")), failed("KeyboardInterrupt: no")),
    "GeneratorExit": (lambda: _raises(GeneratorExit("no")), failed("GeneratorExit: no")),
    "BaseException": (lambda: _raises(GivenUp("no")), failed("GivenUp: no")),
    "task cancelled": (lambda: _has_a_task(asyncio.CancelledError("no")), failed("CancelledError: ")),
    "unpicklable": (lambda: _raises(Unpicklable(1, 2)), failed("Unpicklable: odd")),
}


@app.task(role="awaited", bind=True, max_retries=0, **ONCE)
async def awaited(self: Any, way: str) -> Any:
    return await AWAITED[way][0]()


# -- hooks -------------------------------------------------------------------------------------------------------------


def forks(_: Any) -> None:
    """Goes on in both processes; the parent waits for its child."""
    if pid := os.fork():
        os.waitpid(pid, 0)


OWN = failed("ValueError: its own")

#: The hook, what it does, and what becomes of the task, whose handler fails where the hook is for failures.
HOOKED: dict[str, tuple[str, Act, Ended]] = {
    "before_start exits": ("before_start", leaves, failed("SystemExit: left")),
    "on_success exits": ("on_success", leaves, DONE),
    "on_success is cancelled": ("on_success", raises(asyncio.CancelledError()), DONE),
    "after_return exits": ("after_return", leaves, DONE),
    "on_failure exits": ("on_failure", leaves, OWN),
    "on_failure is odd": ("on_failure", raises(odd(__repr__=breaks)), OWN),
    "before_start forks": ("before_start", forks, DONE),
    "on_success forks": ("on_success", forks, DONE),
    "on_failure forks": ("on_failure", forks, OWN),
}


class Hooked(app.Task):  # type: ignore[misc, name-defined]
    abstract = True

    def _do(self, hook: str, called: Any) -> None:
        at, act, _ = HOOKED[called["way"]]
        if at == hook:
            act(self)

    def before_start(self, _: Any, __: Any, kwargs: Any) -> None:
        self._do("before_start", kwargs)

    def on_success(self, _: Any, __: Any, ___: Any, kwargs: Any) -> None:
        self._do("on_success", kwargs)

    def on_failure(self, _: Any, __: Any, ___: Any, kwargs: Any, ____: Any) -> None:
        self._do("on_failure", kwargs)

    def after_return(self, _: Any, __: Any, ___: Any, ____: Any, kwargs: Any, _____: Any) -> None:
        self._do("after_return", kwargs)


@app.task(role="hooked", base=Hooked, max_retries=0, **ONCE)
def hooked(way: str) -> str:
    if HOOKED[way][0] == "on_failure":
        raise ValueError("its own")
    return way


EXPECTED: dict[tuple[str, str], Ended] = {
    **{(role, way): ended for role in ("odd", "traced") for way, (_, ended) in WAYS.items()},
    **{(role, way): ended for role in ("judged", "judged_on_loop") for way, (_, ended) in JUDGED.items()},
    **{("awaited", way): ended for way, (_, ended) in AWAITED.items()},
    **{("hooked", way): ended for way, (_, _, ended) in HOOKED.items()},
}
