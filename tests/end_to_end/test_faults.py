"""Whatever dies or is wiped, nothing is lost, nothing overlaps, nothing stays stuck."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis

from celeriac.dispatch.keys import adopting_key, ticket_key
from celeriac.dispatch.publish import Ticket
from tests import processes
from tests.end_to_end.conftest import QUICK, shop_server
from tests.processes import Rows, Running, until

Worker = Callable[..., Running]


@pytest.fixture
def beat(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[None]:
    """Sweeps, as in production, from a beat of the shop."""
    with processes.beat("tests.end_to_end.shop", database_url, redis_url, tmp_path / "beat.log", QUICK):
        yield


def all_done(rows: Rows, n: int) -> Callable[[], bool]:
    return lambda: rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'completed'") == n


def overlaps(rows: Rows) -> list[tuple[object, ...]]:
    """Pairs of runs of one task where one began before the other, which did end, had ended."""
    return rows("""
        WITH run AS (
            SELECT b.task_id, b.pid, b.at AS began,
                (SELECT CASE e.what WHEN 'end' THEN e.at END FROM ran e
                    WHERE e.task_id = b.task_id AND e.pid = b.pid AND e.n > b.n ORDER BY e.n LIMIT 1) AS ended
            FROM ran b WHERE b.what = 'begin')
        SELECT a.task_id, a.began, b.began, a.ended FROM run a JOIN run b ON a.task_id = b.task_id
        WHERE a.began < b.began AND b.began < a.ended""")


def test_redis_wiped_in_mid_run_loses_nothing(
    shop: ModuleType, worker: Worker, rows: Rows, beat: None, redis_url: str
) -> None:
    worker("-c", "2")
    shop.slow.bulk([(0.2,)] * 16)
    until(lambda: rows.one("SELECT count(*) >= 4 FROM ran"), "some to have begun")
    client = redis.Redis.from_url(redis_url)
    client.flushdb()
    client.close()
    until(all_done(rows, 16), "all to be completed")
    assert overlaps(rows) == []
    assert rows.one("SELECT count(*) FROM ran WHERE what = 'end'") == 16


def test_a_killed_child_is_seen_at_once_and_its_task_runs_again(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    running = worker("-c", "2", HEARTBEAT_INTERVAL_MS="60000")
    shop.slow.bulk([(0.3,)] * 10)
    victim = until(lambda: rows("SELECT pid FROM ran LIMIT 1"), "one to begin")[0][0]
    os.kill(int(str(victim)), signal.SIGKILL)
    until(all_done(rows, 10), "all to be completed")
    assert overlaps(rows) == []
    assert rows("SELECT kind FROM celeriac.task_events WHERE from_status = 'running'") == [("worker_lost",)]
    # Without a beat the worker hands out anew what nobody began within the grace period.
    assert set(rows("SELECT kind FROM celeriac.task_events WHERE from_status = 'claimed'")) <= {("ticket_lost",)}
    assert running.process.poll() is None


def test_what_kills_its_process_takes_no_other_task_down_for_good(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    """Ten share a ticket, the deadly one first: lost twice with it, the others run alone the third time."""
    deadly = shop.suspect.using(priority=1).delay(deadly=True)
    shop.suspect.bulk([(False,)] * 9)
    worker("-c", "1")
    until(lambda: rows.one("SELECT count(*) = 9 FROM worker_tasks WHERE status = 'completed'"), "the others to end")
    until(lambda: rows.one("SELECT count(*) = 1 FROM worker_tasks WHERE status = 'failed'"), "the deadly one to fail")
    assert rows("SELECT task_id, losses FROM worker_tasks WHERE status = 'failed'") == [(deadly.id, 3)]


def test_a_killed_worker_loses_nothing(shop: ModuleType, worker: Worker, rows: Rows, beat: None) -> None:
    victim = worker("-c", "2")
    shop.slow.bulk([(1.5,)] * 2 + [(0.3,)] * 10)
    until(lambda: rows.one("SELECT count(*) = 2 FROM worker_tasks WHERE status = 'running'"), "two to have begun")
    victim.kill()
    worker("-c", "2")
    until(all_done(rows, 12), "all to be completed")
    assert overlaps(rows) == []
    assert rows("SELECT kind FROM celeriac.task_events WHERE kind = 'rescue'")


def test_without_a_beat_another_worker_rescues_what_a_killed_one_ran(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    victim = worker("-c", "1")
    shop.slow.delay(0.5)
    until(lambda: rows("SELECT FROM ran"), "it to begin")
    victim.kill()
    worker("-c", "1")
    until(all_done(rows, 1), "it to be completed")
    assert rows("SELECT kind FROM celeriac.task_events WHERE kind = 'rescue'")


def test_a_healthy_task_outlasts_its_lease_however_rare_heartbeats_are_set(
    shop: ModuleType, worker: Worker, rows: Rows, beat: None
) -> None:
    """The shop's `slow` is stale after 3 s."""
    worker("-c", "1", HEARTBEAT_INTERVAL_MS="30000", POLL_INTERVAL_MS="20000")
    assert shop.slow.delay(4).get(timeout=20) == "done"
    assert rows("SELECT what FROM ran ORDER BY n") == [("begin",), ("end",)]
    assert rows("SELECT kind FROM celeriac.task_events") == []


def test_a_worker_paused_past_its_lease_changes_nothing_when_it_wakes(
    shop: ModuleType, worker: Worker, rows: Rows, beat: None
) -> None:
    paused = worker("-c", "1")
    result = shop.slow.delay(1.0)
    until(lambda: rows("SELECT FROM ran"), "it to begin")
    paused.signal_all(signal.SIGSTOP)
    other = worker("-c", "1")
    until(all_done(rows, 1), "another worker to complete it")
    settled = rows("SELECT completed_at, worker_id FROM worker_tasks WHERE task_id = :id", id=result.id)
    paused.signal_all(signal.SIGCONT)
    until(lambda: rows("SELECT FROM celeriac.task_events WHERE kind = 'late_finish'"), "the late finish to be refused")
    assert rows("SELECT completed_at, worker_id FROM worker_tasks WHERE task_id = :id", id=result.id) == settled
    assert other.process.poll() is None


def test_a_child_whose_parent_is_paused_stops_before_its_task_starts_elsewhere(
    shop: ModuleType, worker: Worker, rows: Rows, beat: None
) -> None:
    """Nobody renews its lease meanwhile; the child knows, and runs no longer when another worker begins."""
    paused = worker("-c", "1")
    shop.ticking.delay(5.0)
    until(lambda: rows("SELECT FROM ran"), "it to begin")
    (child,) = rows("SELECT DISTINCT pid FROM ran")[0]
    os.kill(paused.pid, signal.SIGSTOP)
    worker("-c", "1")
    elsewhere = "SELECT count(*) >= 5 FROM ran WHERE pid <> :child"
    until(lambda: rows.one(elsewhere, child=child), "another worker to run it")
    os.kill(paused.pid, signal.SIGCONT)
    last = "(SELECT max(at) FROM ran WHERE pid = :child)"
    assert rows.one(f"SELECT min(at) > {last} FROM ran WHERE pid <> :child", child=child)
    until(all_done(rows, 1), "the other to complete it")
    assert rows.one(f"SELECT min(at) > {last} FROM ran WHERE pid <> :child", child=child)
    assert rows("SELECT status, losses FROM worker_tasks") == [("completed", 1)]
    assert rows("SELECT FROM celeriac.task_events WHERE kind = 'late_finish'") == []


def test_a_ticket_delivered_twice_or_forged_starts_nothing(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    publisher = shop.app.publisher
    result = shop.slow.delay(0.5)
    role = shop.app.roles.get("slow").role
    (ticket,) = shop.app.dispatcher.run_pass(role).tickets
    forged = Ticket("slow", "slow", ticket.ids, "00000000-0000-0000-0000-000000000000")
    publisher.publish([forged, ticket, ticket, ticket, Ticket("slow", "slow", [10**12], ticket.token)])
    worker("-c", "2")
    until(lambda: result.status == "SUCCESS", "the task to be completed")
    assert shop.add.delay(1).get(timeout=20) == 2
    assert rows("SELECT what FROM ran ORDER BY n") == [("begin",), ("end",)]


def test_malformed_messages_leave_the_worker_alive(
    shop: ModuleType, worker: Worker, rows: Rows, redis_url: str
) -> None:
    running = worker("-c", "1")
    client = redis.Redis.from_url(redis_url)
    keys = (ticket_key("add"), "add", adopting_key("add"))
    for message in MALFORMED:
        client.lpush(ticket_key("add"), message)
        client.lpush("add", message)
    until(lambda: client.exists(*keys) == 0, "them to be taken")
    client.close()
    assert shop.add.delay(2, 3).get(timeout=20) == 5
    assert running.process.poll() is None
    assert "Unrecoverable" not in running.printed()
    assert running.printed().count("that is no ticket") == len(MALFORMED)
    # What says that it is a ticket is none of anybody's messages.
    letters = [message for message in MALFORMED if b"celeriac.ticket" not in message]
    assert {bytes(found) for (found,) in rows("SELECT message FROM dead_letters")} == set(letters)  # type: ignore[arg-type]


MALFORMED = [
    b"",
    b"not json",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{}",
    b"42",
    b'"text"',
    b'{"body": 1}',
    b'{"body": "%%%", "headers": {}, "properties": {}}',
    b'{"body": "e30=", "headers": null, "properties": {}}',
    b'{"body": "e30=", "headers": {"task": "celeriac.ticket", "id": 7}, "properties": {}}',
    b'{"body": "e30=", "headers": {"task": "add", "id": "x"}, "properties": {"delivery_info": {}}}',
    b'{"body": "W10=", "headers": {"task": "celeriac.ticket", "id": "x"}, "properties": {"delivery_tag": 1}}',
    b'{"body": "W10=", "content-type": "application/x-python-serialize", "headers": {"task": "celeriac.ticket", '
    b'"id": "x"}, "properties": {"delivery_tag": "1", "delivery_info": {}, "body_encoding": "base64"}}',
    b'{"body": "W10=", "content-encoding": "rot13", "content-type": "application/json", "headers": {"task": '
    b'"celeriac.ticket", "id": "x"}, "properties": {"delivery_tag": "1", "delivery_info": {}}}',
    b'{"body": "W10=", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"task": '
    b'"celeriac.ticket", "id": "x", "eta": "soon"}, "properties": {"delivery_tag": "1", "delivery_info": {}, '
    b'"body_encoding": "base64"}}',
    b"[" * 100_000,
]


def test_postgres_restarted_in_mid_run_loses_nothing(tmp_path: Path, redis_url: str) -> None:
    """Killed like a crash, and started again while tasks run."""
    with shop_server(tmp_path) as server:
        rows = Rows(server.url)
        shop, log = "tests.end_to_end.shop", tmp_path / "worker.log"
        with (
            processes.worker(shop, server.url, redis_url, log, "-c", "2", environ=QUICK) as running,
            processes.beat(shop, server.url, redis_url, tmp_path / "beat.log", QUICK),
        ):
            rows("""INSERT INTO worker_tasks (task_id, role, kwargs)
                SELECT 't' || i, 'slow', '{"seconds": 0.2}' FROM generate_series(1, 20) i""")
            until(lambda: rows.one("SELECT count(*) >= 4 FROM ran"), "some to have begun")
            rows.close()
            server.kill()
            server.start()
            until(all_done(rows, 20), "all to be completed")
            assert overlaps(rows) == []
            assert running.process.poll() is None
        rows.close()
