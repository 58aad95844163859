"""Whatever overrides or replaces what a call goes through on Celery is heard here, too: by `.delay()` and by beat."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest
import redis
from celery import Celery, signals
from celery import Task as CeleryTask
from celery.app.amqp import AMQP
from celery.beat import Scheduler as CelerysScheduler
from kombu import Exchange, Producer, Queue

from celeriac import Celeriac
from celeriac.schedules.beat import Scheduler
from tests.postgres.workflows import run_all
from tests.processes import Rows

Seen = list[dict[str, Any] | None]


def declare(app: Celeriac, seen: Seen, **options: Any) -> Any:
    @app.task(name="seen", bind=True, prompt=False, chunk=9, shared=False, **options)
    def note(self: Any, x: int = 0) -> None:
        seen.append(self.request.headers)

    return note


@pytest.fixture
def seen() -> Seen:
    """`request.headers` of each run."""
    return []


@pytest.fixture
def note(app: Celeriac, seen: Seen) -> Any:
    return declare(app, seen)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests' modules have connected."""
    for signal in (signals.before_task_publish, signals.after_task_publish):
        monkeypatch.setattr(signal, "receivers", [])


class Wrapper:
    """Takes a function's place as agents' wrappers do: a descriptor that is no function, and passes for the wrapped."""

    def __init__(self, wrapped: Any, heard: list[str]) -> None:
        self.wrapped, self.heard = wrapped, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bound = self.wrapped.__get__(instance, owner)

        def called(*args: Any, **kwargs: Any) -> Any:
            self.heard.append(self.wrapped.__name__)
            return bound(*args, **kwargs)

        return called


def wrapped(function: Any, heard: list[str]) -> Any:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        heard.append(function.__name__)
        return function(*args, **kwargs)

    return called


PLACES = [
    (CeleryTask, "delay"), (CeleryTask, "apply_async"), (Celery, "send_task"), (Celeriac, "send_task"),
    (AMQP, "as_task_v2"), (Producer, "publish"),
]  # fmt: skip


@pytest.mark.parametrize("wrap", [wrapped, Wrapper])
@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[f"{o.__module__}.{o.__name__}.{n}" for o, n in PLACES])
def test_what_stands_in_the_place_of_celerys_is_called_once(
    note: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrap: Callable[..., Any],
) -> None:  # fmt: skip
    heard: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wrap(vars(owner)[name], heard))
        result = note.delay(1)
        assert heard == [name]
    assert rows("SELECT task_id, args FROM worker_tasks") == [(result.id, [1])]
    note.delay(2)
    assert heard == [name]


def test_a_plain_call_takes_the_short_way(note: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    straight: list[str] = []
    enqueue = note.app.enqueue
    monkeypatch.setattr(note.app, "enqueue", lambda *given: straight.append(given[0]) or enqueue(*given))
    note.delay(1)
    assert straight == ["seen"]


def test_an_app_of_a_subclass_that_overrides_send_task_hears_every_call(app: Celeriac, seen: Seen) -> None:
    """As tenants' apps do, which put the tenant's schema into the headers."""

    class Tenants(Celeriac):
        def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            options["headers"] = {**(options.get("headers") or {}), "schema": "acme"}
            return super().send_task(name, args, kwargs, **options)

    tenants = Tenants("tenants", settings=app.settings, set_as_current=False)
    declare(tenants, seen).delay(1)
    run_all(tenants)
    tenants.close()
    assert seen == [{"schema": "acme"}]


def test_an_app_whose_own_send_task_was_replaced_hears_every_call(note: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(note.app, "send_task", wrapped(note.app.send_task, heard))
    note.delay(1)
    assert heard == ["send_task"]


def test_a_base_class_that_overrides_apply_async_hears_every_call(app: Celeriac, seen: Seen) -> None:
    class Base(CeleryTask):
        abstract = True

        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return super().apply_async(args, kwargs, headers={"schema": "acme"}, **options)

    declare(app, seen, base=Base).delay(1)
    run_all(app)
    assert seen == [{"schema": "acme"}]


def test_a_producer_that_adds_headers_is_read_by_the_task(
    note: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Producer.publish

    def publish(self: Any, body: Any, **properties: Any) -> Any:
        assert self.connection.transport.driver_type == "redis"
        return original(self, body, **{**properties, "headers": {**properties["headers"], "trace": "t"}})

    monkeypatch.setattr(Producer, "publish", publish)
    note.apply_async((1,), expires=60)
    note.app.send_task("seen", (2,), countdown=0)
    run_all(note.app)
    assert seen == [{"trace": "t"}, {"trace": "t"}]


def test_headers_within_headers_are_the_requests_as_on_celery(note: Any, seen: Seen) -> None:
    """Where ddtrace and others put a trace: celery/celery#4875."""

    def inject(headers: dict[str, Any], **_: Any) -> None:
        headers.setdefault("headers", {})["x-trace"] = "7"

    signals.before_task_publish.connect(inject)
    note.delay(1)
    run_all(note.app)
    assert seen == [{"x-trace": "7"}]


def test_messages_of_a_users_own_go_where_he_sends_them(app: Celeriac, redis_url: str) -> None:
    queue = Queue("letters", Exchange("letters"), routing_key="letters")
    with app.producer_or_acquire() as producer:
        producer.publish({"dear": "Ada"}, exchange=queue.exchange, routing_key="letters", declare=[queue])
    with redis.Redis.from_url(redis_url) as client:
        (letter,) = client.lrange("letters", 0, -1)
    assert json.loads(b64decode(json.loads(letter)["body"])) == {"dear": "Ada"}


# -- beat --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def beat(note: Any, rows: Rows) -> Iterator[Scheduler]:
    """Its one entry is due."""
    note.app.conf.beat_schedule = {
        "hourly": {"task": "seen", "schedule": 3600, "args": (5,), "options": {"headers": {"of": "the entry"}}}
    }
    beat = Scheduler(note.app)
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE kind = 'task'")
    yield beat
    beat.close()


def test_who_replaces_apply_entry_is_asked_for_each_instant(
    beat: Scheduler, rows: Rows, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[Any] = []
    original = CelerysScheduler.apply_entry

    def apply_entry(scheduler: Any, entry: Any, producer: Any = None) -> None:
        applied.append((entry.name, entry.task, entry.args, entry.kwargs, entry.schedule.run_every.total_seconds()))
        entry.options["headers"] = {**entry.options.get("headers", {}), "monitor": entry.name}
        original(scheduler, entry, producer=producer)

    monkeypatch.setattr(CelerysScheduler, "apply_entry", apply_entry)
    beat.tick()
    assert applied == [("hourly", "seen", (), {"x": 5}, 3600)]
    assert rows("SELECT enqueued_by FROM worker_tasks") == [("schedule hourly",)]
    run_all(beat.app)
    assert seen == [{"of": "the entry", "monitor": "hourly"}]


def test_signals_of_a_publish_hear_what_beat_enqueues(beat: Scheduler, rows: Rows, seen: Seen) -> None:
    def inject(headers: dict[str, Any], **_: Any) -> None:
        headers["trace"] = "7"

    signals.before_task_publish.connect(inject)
    beat.tick()
    run_all(beat.app)
    assert seen == [{"of": "the entry", "trace": "7"}]


def test_an_error_of_who_listens_costs_no_instant(
    beat: Scheduler, rows: Rows, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the monitor is away")

    monkeypatch.setattr(CelerysScheduler, "apply_entry", broken)
    beat.tick()
    run_all(beat.app)
    assert seen == [None]
    assert rows("SELECT quarantined FROM scheduled_jobs WHERE kind = 'task'") == [(None,)]


def test_who_reads_the_entries_as_beat_starts_may_replace_them(note: Any, rows: Rows, seen: Seen) -> None:
    """As cron monitors do, which put the entry's name into its headers."""
    note.app.conf.beat_schedule = {"hourly": {"task": "seen", "schedule": 3600, "args": (5,)}}
    beat = Scheduler(note.app)
    for name, entry in beat.schedule.items():
        assert (entry.task, entry.args, entry.schedule.run_every.total_seconds()) == ("seen", (5,), 3600)
        monitored = note.app.tasks[entry.task].s().set(headers={"monitor": name})
        note.app.add_periodic_task(entry.schedule, monitored, args=entry.args, kwargs=entry.kwargs, name=name)
    with pytest.raises(TypeError):
        beat.schedule["other"] = entry
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE kind = 'task'")
    beat.tick()
    beat.close()
    run_all(note.app)
    assert seen == [{"monitor": "hourly"}]


def test_calls_by_one_producer_are_enqueued_together_as_its_block_ends(note: Any, rows: Rows) -> None:
    with note.app.producer_or_acquire() as producer:
        for n in range(3):
            note.apply_async((n,), producer=producer)
        assert rows.one("SELECT count(*) FROM worker_tasks") == 0
    assert rows.one("SELECT count(*) FROM worker_tasks") == 3
    with note.app.producer_pool.acquire(block=True) as producer:
        note.apply_async((3,), producer=producer)
        assert rows.one("SELECT count(*) FROM worker_tasks") == 4, "of a producer of the pool each is by itself"
