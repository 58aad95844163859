"""Which way `priority=` means is said once, by the app; whatever Celery's words say of it is translated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, chord, group

from celeriac import Celeriac, ConfigurationError, Settings, Task
from celeriac.enqueue.foreign import judge
from celeriac.errors import BadArguments
from celeriac.schedules.celerys import entries
from tests.postgres.workflows import run_all
from tests.processes import Rows

Make = Callable[..., Celeriac]


@pytest.fixture
def make(database_url: str, redis_url: str) -> Iterator[Make]:
    made: list[Celeriac] = []

    def make(order: Any = None, **conf: Any) -> Celeriac:
        settings = Settings(database_url=database_url, redis_url=redis_url)
        app = Celeriac("ordered", settings=settings, priority_order=order, set_as_current=False)
        app.conf.update(conf)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def declares(app: Celeriac, name: str = "work", **options: Any) -> Task[..., Any]:
    @app.task(name=name, bind=True, prompt=False, chunk=500, shared=False, **options)
    def work(self: Any, x: int = 0) -> Any:
        return self.request.delivery_info["priority"]

    return work


def stored(rows: Rows) -> list[Any]:
    return [priority for (priority,) in rows("SELECT priority FROM worker_tasks ORDER BY id")]


@pytest.mark.parametrize(("order", "sign"), [("redis", -1), ("rabbitmq", 1), ("celeriac", 1), (None, 1)])
def test_every_way_to_say_a_priority_means_the_same(make: Make, rows: Rows, order: Any, sign: int) -> None:
    app = make(order, task_routes={"routed": {"queue": "celery", "priority": 6}})
    work, routed, usual = declares(app), declares(app, "routed"), declares(app, "usual", priority=4)
    app.register_roles()
    work.apply_async((1,), priority=3)
    work.s(1).set(priority=3).delay()
    work.using(priority=3).delay(1)
    work.bulk([(1,)], priority=3)
    app.send_task("work", (1,), priority=3)
    group(work.s(1).set(priority=3)).delay()
    routed.delay(1)
    routed.bulk([(1,)])
    usual.delay(1)
    assert stored(rows) == [sign * n for n in (3, 3, 3, 3, 3, 3, 6, 6, 4)]
    run_all(app)
    assert work.apply_async((1,), priority=9).id
    told = rows("SELECT result FROM worker_tasks WHERE status = 'completed' ORDER BY id")
    assert [result for (result,) in told] == [3, 3, 3, 3, 3, 3, 6, 6, 4], "as it was said"


def test_on_redis_the_lowest_goes_first(make: Make) -> None:
    app, ran = make("redis"), list[int]()

    @app.task(role="first", prompt=False, shared=False, chunk=9)
    def first(n: int) -> None:
        ran.append(n)

    app.register_roles()
    for n in (9, 0, 5):
        first.apply_async((n,), priority=n)
    first.delay(-1)
    run_all(app)
    assert ran == [0, -1, 5, 9], "none is 0"


def test_settings_annotations_and_classes_speak_the_same_way(make: Make, rows: Rows) -> None:
    app = make("redis", task_default_priority=5, task_annotations={"annotated": {"priority": 7}})

    class Base(Task):  # type: ignore[type-arg]
        priority = 2
        prompt = False

    usual, annotated, own = declares(app), declares(app, "annotated"), declares(app, "own", priority=1)
    based = declares(app, "based", base=Base)
    for task in (usual, annotated, own, based):
        task.delay(1)
        task.apply_async((1,), countdown=-1)
    assert stored(rows) == [-5, -5, -7, -7, -1, -1, -2, -2]


def test_a_chords_body_and_a_retry_keep_theirs(make: Make, rows: Rows) -> None:
    app = make("redis")
    work = declares(app)

    @app.task(name="again", bind=True, prompt=False, shared=False)
    def again(self: Any, results: Any) -> None:
        if not self.request.retries:
            raise self.retry(countdown=0)

    app.register_roles()
    chord([work.s(1).set(priority=3), work.s(2)], again.s().set(priority=8)).delay()
    run_all(app)
    assert rows("SELECT role, priority, status FROM worker_tasks ORDER BY priority") == [
        ("again", -8, "completed"), ("work", -3, "completed"), ("work", 0, "completed"),
    ]  # fmt: skip


def test_task_inherit_parent_priority_inherits_what_the_parent_has(make: Make, rows: Rows) -> None:
    app = make("redis", task_inherit_parent_priority=True)
    child = declares(app, "child")

    @app.task(name="parent", prompt=False, shared=False)
    def parent() -> None:
        child.apply_async((1,), countdown=-1)

    app.register_roles()
    app.set_current()
    parent.apply_async(priority=4)
    run_all(app)
    assert stored(rows) == [-4, -4]


def test_a_range_is_said_in_the_same_order_and_told_in_it(make: Make, rows: Rows) -> None:
    app = make("redis")
    work = declares(app, priority=3, priority_range=(0, 9))
    assert (work.role.priority, work.role.priority_range) == (-3, (-9, 0))
    for call in (lambda: work.apply_async((1,), priority=12), lambda: work.bulk([(1,)], priority=12)):
        with pytest.raises(BadArguments, match="priority=12: give a whole number from 0 to 9"):
            call()
    for wrong in ("high", 1.5, True):
        with pytest.raises(BadArguments, match=f"priority={wrong!r}: give a whole number"):
            work.apply_async((1,), priority=wrong)
    assert stored(rows) == []


@pytest.mark.parametrize(("order", "expected"), [("redis", -7), ("rabbitmq", 7), ("celeriac", 7), (None, 7)])
def test_an_entry_of_celerys_timetable_speaks_it_too(make: Make, order: Any, expected: int) -> None:
    app = make(order, beat_schedule={"n": {"task": "work", "schedule": 5, "options": {"priority": 7}}})
    declares(app)
    (entry,) = entries(app.conf, app.roles)
    assert entry.priority == expected


@pytest.mark.parametrize(
    ("order", "said", "expected"),
    [
        ("redis", 0, -2), ("redis", 5, -5), ("rabbitmq", 0, 2), ("rabbitmq", 5, 5), ("celeriac", 5, -3), (None, 5, -3),
        (None, 0, 2),
    ],
)  # fmt: skip
def test_a_plain_apps_message_speaks_it_too(make: Make, order: Any, said: int, expected: int) -> None:
    app = make(order)
    declares(app, priority=2, adopt=True)
    plain = Celery("plain", broker="memory://", set_as_current=False)
    with plain.connection_for_write() as connection, connection.channel() as channel:
        plain.send_task("work", (1,), priority=said, queue="adopted", connection=connection)
        message = channel._get("adopted")
    from kombu.utils.json import dumps

    task: Any = judge(dumps(message).encode(), app.role_declared, 10_000, app.roles.priorities)
    assert task.priority == expected


def test_an_order_that_is_none_is_refused(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="priority_order='lowest': give one of 'celeriac', "):
        make("lowest")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "priority" in record.getMessage()]


def test_who_has_not_said_it_is_warned_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        work = declares(make())
        work.delay(1)
        assert warnings(caplog) == []
        work.apply_async((1,), priority=3)
        work.apply_async((1,), priority=3)
        declares(make("celeriac")).apply_async((1,), priority=3)
    (warning,) = warnings(caplog)
    assert warning.startswith("priority=3 of a call of work: the highest goes first; say priority_order='redis'")


def test_check_names_where_priorities_are_given(make: Make) -> None:
    said: dict[str, Any] = {
        "task_default_priority": 5, "task_annotations": {"work": {"priority": 7}},
        "task_routes": {"routed": {"priority": 6}},
        "beat_schedule": {"n": {"task": "work", "schedule": 5, "options": {"priority": 7}}},
    }  # fmt: skip
    app = make(**said)
    for name, options in (("work", {}), ("routed", {}), ("own", {"priority": 1})):
        declares(app, name, **options)
    (note,) = app.notes()
    assert note.startswith(
        "priority: the highest goes first, in task_default_priority, task_annotations['work'], beat_schedule['n'], "
        "role 'own', task_routes (of 'routed'): say priority_order='redis'"
    )
    (note,) = app.notes(calls=True)
    assert f"{__name__}:" in note, "calls in the modules that declare tasks"
    assert make("redis", **said).notes() == []
    assert make().notes() == []
