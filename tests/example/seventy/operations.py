"""The steps of workflows, results, remote control, events, commands, beat and tests."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Any

from celery import chain, chord, group, signature
from celery.result import AsyncResult, GroupResult, ResultSet
from celery.schedules import crontab

from tests.example.seventy import code
from tests.example.seventy.code import app
from tests.example.seventy.step import CELERY, PATIENCE, ended, error_of, eventually, noted, outcome, step

# -- workflows ---------------------------------------------------------------------------------------------------------


@step
def signatures() -> Any:
    partial, immutable = code.add.s(2), code.add.si(2, 2)
    named = signature("seventy.add", args=(5, 6), app=app)
    return [ended(one.delay(*more)) for one, more in ((partial, (3,)), (immutable, ()), (named, ()))]


@step
def a_chain() -> Any:
    result = (code.add.s(1, 2) | code.add.s(3) | code.add.s(4)).delay()
    return [ended(result), ended(result.parent), result.parent.parent.state]


@step
def a_chain_stops_at_a_failure() -> Any:
    result = chain(code.fail.s(), code.noted.si("after", "never"))()
    return [outcome(result)[0], outcome(result.parent)]


@step
def a_group() -> Any:
    result = group(code.add.s(n, n) for n in range(4))()
    return [ended(result), result.successful(), result.completed_count(), len(result)]


@step
def a_group_is_saved_and_restored() -> Any:
    result = group(code.add.s(n, 1) for n in range(3)).delay()
    result.save()
    return ended(GroupResult.restore(result.id, app=app))


@step
def a_group_with_a_failure() -> Any:
    result = group(code.add.s(1, 1), code.fail.s()).delay()
    return [error_of(lambda: ended(result)), result.failed()]


@step
def a_chord() -> Any:
    return ended(chord([code.add.s(n, n) for n in range(5)])(code.total.s()))


@step
def a_chord_whose_member_fails() -> Any:
    return error_of(lambda: ended(chord([code.add.s(1, 1), code.fail.s()])(code.total.s())))


@step
def a_group_within_a_chain_becomes_a_chord() -> Any:
    return ended((code.add.s(1, 1) | group(code.add.s(n) for n in range(3)) | code.total.s() | code.add.s(100)).delay())


@step
def map_starmap_and_chunks() -> Any:
    ways = (
        code.unnamed.map([1, 2]),
        code.add.starmap([(1, 2), (3, 4)]),
        code.add.chunks([(n, n) for n in range(4)], 2),
    )
    return [ended(way.delay()) for way in ways]


@step
def a_task_replaces_itself() -> Any:
    return ended(code.replaced.delay(10))


@step
def a_stamp_travels() -> Any:
    sent = code.request_of.s("stamps", "stamped_headers")
    sent.stamp(tenant="b")
    return ended(sent.delay())


@step
def what_a_task_sends_is_its_child() -> Any:
    result = code.sends.delay()
    child = ended(result)
    return [[one.id == child for one in result.children], ended(AsyncResult(child, app=app))]


# -- results -----------------------------------------------------------------------------------------------------------


@step
def progress_is_seen() -> Any:
    result = code.slow.delay(1)
    seen = eventually(lambda: result.state == "PROGRESS" and dict(result.info))
    return [seen, ended(result)]


@step
def an_extended_result() -> Any:
    result = code.add.delay(3, y=4)
    ended(result)
    return [result.name, list(result.args or ()), result.kwargs, result.retries, type(result.date_done).__name__]


@step
def an_unknown_id_is_pending() -> Any:
    return AsyncResult("nobody-sent-this", app=app).state


@step
def a_timeout_of_get() -> Any:
    result = code.slow.delay(2)
    error = error_of(lambda: result.get(timeout=0.2))
    return [error, ended(result)]


@step
def results_are_joined_and_forgotten() -> Any:
    results = ResultSet([code.add.delay(n, n) for n in range(3)], app=app)
    values = results.join(timeout=PATIENCE)
    results.results[0].forget()
    return [values, AsyncResult(results.results[0].id, app=app).state]


@step
def a_waiting_task_is_revoked() -> Any:
    result = code.add.apply_async((1, 1), countdown=3)
    result.revoke()
    return [error_of(lambda: ended(result)), result.state]


@step
def a_running_task_is_terminated() -> Any:
    result = code.slow.delay(60)
    eventually(lambda: result.state == "PROGRESS")
    result.revoke(terminate=True)
    return [error_of(lambda: ended(result)), result.state]


@step
def a_task_is_aborted() -> Any:
    result = code.slow.delay(60)
    eventually(lambda: result.state == "PROGRESS")
    result.abort()
    return [result.is_aborted(), eventually(result.ready) or ended(result)]


# -- operating ---------------------------------------------------------------------------------------------------------


@step
def workers_are_inspected() -> Any:
    asked = app.control.inspect(timeout=5)
    (registered,), (queues,), (stats,) = (list(each.values()) for each in (
        asked.registered(), asked.active_queues(), asked.stats(),
    ))  # fmt: skip
    named = {name.partition(" ")[0] for name in registered}
    return [
        {"seventy.add", "seventy.reports.monthly"} <= named, {"celery", "reports"} <= {one["name"] for one in queues},
        stats["pool"]["max-concurrency"], [list(one.values()) for one in app.control.ping(timeout=5)],
    ]  # fmt: skip


@step
def a_running_task_is_active() -> Any:
    result = code.slow.delay(60)
    eventually(lambda: result.state == "PROGRESS")
    (tasks,) = app.control.inspect(timeout=5).active().values()
    result.revoke(terminate=True)
    return [(one["name"], one["id"] == result.id, one["args"]) for one in tasks]


@step
def events_of_a_task() -> Any:
    seen: list[Any] = []

    def capture() -> None:
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": seen.append})
            for _ in receiver.itercapture(limit=None, timeout=PATIENCE, wakeup=False):
                if any(one["type"] == "task-failed" for one in seen):
                    return

    thread = threading.Thread(target=capture, daemon=True)
    thread.start()
    eventually(lambda: seen)  # the worker's heartbeat: who listens hears
    good = code.add.delay(1, 2)
    ended(good)
    bad = code.fail.delay()
    outcome(bad)
    thread.join(PATIENCE)
    of = {one: [event for event in seen if event.get("uuid") == one.id] for one in (good, bad)}
    types = [sorted(event["type"] for event in events if event["type"] != "task-sent") for events in of.values()]
    return [types, [event["exception"] for event in of[bad] if event["type"] == "task-failed"]]


@step
def the_queues_are_purged() -> Any:
    return error_of(app.control.purge)


@step
def a_rate_limit_is_set() -> Any:
    replies = app.control.rate_limit("seventy.annotated", "10/m", reply=True, timeout=5)
    return [list(next(iter(reply.values()))) for reply in replies]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CELERY, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


@step
def the_command_line() -> Any:
    called = command("call", "seventy.add", "--args", "[3, 4]")
    task_id = called.stdout.strip().splitlines()[-1]
    ended(AsyncResult(task_id, app=app))
    shown = command("result", task_id)
    return [called.returncode, shown.stdout.strip().splitlines()[-1], command("status").stdout.count("1 node online")]


@step
def beat_enqueues_what_is_due() -> Any:
    assert app.conf.beat_schedule["nightly"]["schedule"] == crontab(hour=3, minute=0)
    words = ("beat", "-s", os.environ["SEVENTY_BEAT"], "--pidfile=")
    beat = subprocess.Popen([*CELERY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return len(noted("tick:beat", 2)) >= 2
    finally:
        beat.terminate()
        beat.wait(PATIENCE)


@step
def tests_run_tasks_eagerly() -> Any:
    app.conf.update(task_always_eager=True, task_eager_propagates=False)
    try:
        good, bad = code.bound.delay(1), code.fail.delay()
        value = (code.add.s(1, 2) | group(code.add.s(n) for n in range(2)) | code.total.s()).delay().get()
        return [good.get()["is_eager"], good.state, bad.state, value, repr(code.add.apply((4, 4)).get())]
    finally:
        app.conf.update(task_always_eager=False)
