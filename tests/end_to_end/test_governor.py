"""A worker that is short of memory takes nothing new, finishes what it has, and resumes; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import redis

from celeriac.insights.fleet.capacity import heartbeats
from tests.processes import Rows, Running, until

Worker = Callable[..., Running]

#: The worker itself takes about 150 MB; with the hog it is above 85 % of the limit.
SHORT_OF_MEMORY = {"CELERIAC_MEMORY_LIMIT_MB": "450", "CPU_BACKOFF_THRESHOLD": "1", "BACKOFF_DURATION_MS": "300"}
HOG = 350
BACKING_OFF, RESUMING = " backing off: Memory at ", " resuming normal operation"


def begun(rows: Rows) -> int:
    return int(str(rows.one("SELECT count(*) FROM ran WHERE what = 'begin'")))


def test_under_a_memory_hog_nothing_new_begins_until_it_leaves(
    shop: ModuleType, worker: Worker, rows: Rows, redis_url: str
) -> None:
    running = worker("-c", "3", **SHORT_OF_MEMORY)
    long = shop.meeting.delay(1, end="may end")
    short = shop.slow.bulk([(0.1,)] * 60)
    until(lambda: begun(rows) >= 5, "some to have begun")
    hog = shop.hog.using(priority=1).delay(HOG)
    until(lambda: BACKING_OFF in running.printed(), "the back-off")
    assert long.status == "STARTED", "it runs on"
    until(lambda: rows.one("SELECT count(*) = 2 FROM worker_tasks WHERE status = 'running'"), "the short ones to end")
    until(lambda: shop.app.dispatch("slow") == 0 and lie_in_redis(shop, rows), "what is claimed to lie in Redis")
    told = until(lambda: (now := reported(shop))["is_backing_off"] and now, "the heartbeat to tell it")
    assert told["memory_total_mb"] == 450
    assert f"backing off: {told['backoff_reason']}"[:24] in running.printed()

    before = begun(rows)
    connect_anew(running, redis_url)
    rows("INSERT INTO ran (what) VALUES ('may end')")
    assert long.get(timeout=60)
    assert begun(rows) == before
    assert lie_in_redis(shop, rows), "a process is free, tickets are there, and none was taken"
    assert int(str(rows.one(LATE))) <= 6, "checks are 100 ms apart, and two processes run tasks of 100 ms"

    rows("INSERT INTO ran (what) VALUES ('leave')")
    until(lambda: hog.status == "SUCCESS" and all(task.status == "SUCCESS" for task in short), "all to be completed")
    assert reported(shop)["is_backing_off"] is False
    assert (running.printed().count(BACKING_OFF), running.printed().count(RESUMING)) == (1, 1)
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    assert rows("SELECT task_id FROM ran WHERE what = 'begin' GROUP BY task_id HAVING count(*) > 1") == []


def test_a_process_that_keeps_memory_is_replaced_once_it_runs_nothing(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    running = worker("-c", "2", **SHORT_OF_MEMORY)
    held = shop.hog.delay(1)
    until(lambda: rows("SELECT FROM ran"), "one process to be busy")
    leaked = shop.leaky.delay(HOG).get(timeout=20)
    until(lambda: RESUMING in running.printed(), "the back-off to end")
    until(lambda: leaked not in running.children() and len(running.children()) == 2, "another process")
    assert rows.one("SELECT pid FROM ran") in running.children()
    assert held.status == "STARTED"
    assert shop.add.delay(1, 1).get(timeout=20) == 2
    rows("INSERT INTO ran (what) VALUES ('leave')")
    until(lambda: held.status == "SUCCESS", "the busy process to end its task")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    assert "exited with" not in running.printed()


def test_a_worker_that_runs_its_tasks_itself_does_not_end_for_memory(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    running = worker("-P", "solo", **SHORT_OF_MEMORY)
    assert shop.leaky.delay(HOG).get(timeout=20) == running.pid
    until(lambda: BACKING_OFF in running.printed(), "the back-off")
    first = rows.one("SELECT last_heartbeat_at FROM workers")
    later = "SELECT last_heartbeat_at > CAST(:first AS timestamptz) + interval '1 s' FROM workers"
    until(lambda: rows.one(later, first=first), "it to have looked again and again")
    assert running.process.poll() is None


LATE = """SELECT count(*) FROM ran
    WHERE what = 'begin' AND role = 'slow' AND at > (SELECT at FROM ran WHERE what = 'holding')"""


def lie_in_redis(shop: ModuleType, rows: Rows) -> bool:
    """Whether all that is claimed and has not begun has its ticket there: none is in the worker's hands."""
    tokens = {str(token) for (token,) in rows("SELECT token FROM tickets WHERE role = 'slow' AND worker_id IS NULL")}
    return bool(tokens) and tokens == shop.app.publisher.queued("slow", tokens)


def connect_anew(running: Running, redis_url: str) -> None:
    """The consumer's new connection has a channel of its own, whose gate has to be closed, too."""
    client = redis.Redis.from_url(redis_url)
    for kind in ("normal", "pubsub"):
        client.client_kill_filter(_type=kind, skipme=True)
    client.close()
    until(lambda: running.printed().count("Connected to redis") == 2, "the worker to connect again")


def reported(shop: ModuleType) -> dict[str, object]:
    with shop.app.database.statement() as connection:
        (document,) = heartbeats(connection)
    return dict(document["resources"])
