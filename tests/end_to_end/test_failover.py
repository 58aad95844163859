"""The other server takes over: a Postgres standby that is promoted, a Valkey that the Sentinels choose."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, NotReady, Settings, local
from celeriac.dispatch.keys import ticket_key
from faults.standby import synchronise
from tests import processes
from tests.end_to_end.conftest import QUICK, declare_shop
from tests.end_to_end.failover import MASTER, Pair, Watched, pair, watched
from tests.processes import ROOT, Rows, until

#: Seconds: longer than the lease of `slow`.
OUTAGE = 5.0

#: Whether a running task's worker has been silent for longer than its lease.
IS_OVER = "SELECT max(heartbeat_at) + interval '3 seconds' < clock_timestamp() FROM celeriac.tickets"

BY_STATUS = "SELECT task_id, status FROM worker_tasks WHERE role = 'add'"


#: What befalls only a run whose lease was over.
WENT_WRONG = "SELECT at, kind, task, by, why FROM celeriac.task_events WHERE kind IN ('rescue', 'late_finish')"


class Producer:
    """Enqueues as fast as it is let, and remembers which tasks were accepted."""

    def __init__(self, database_url: str, **settings: str) -> None:
        self.app = Celeriac("other", settings=Settings(database_url=database_url, **settings), set_as_current=False)
        declare_shop(self.app)
        self.accepted: list[str] = []
        self.refused = 0

    def enqueue(self) -> None:
        try:
            self.accepted.append(self.app.send_task("add", kwargs={"a": len(self.accepted)}).id)
        except (DBAPIError, NotReady):
            self.refused += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        ending = threading.Event()

        def work() -> None:
            while not ending.wait(0.002):
                self.enqueue()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def more(self, n: int = 50) -> None:
        """Once so many more are accepted."""
        wanted = len(self.accepted) + n
        until(lambda: len(self.accepted) >= wanted, f"{n} more tasks to be accepted")

    def close(self) -> None:
        self.app.publisher.close()
        self.app.database.dispose()


def finished(rows: Rows, producer: Producer) -> bool:
    ended = {task for task, status in rows(BY_STATUS) if status == "completed"}
    return ended >= set(producer.accepted)


def waited_on(server: local.ValkeyServer) -> bool:
    """Whether a worker waits there for tickets."""
    with redis.Redis.from_url(server.url) as client:
        return any(one["cmd"] == "brpop" for one in client.client_list())


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as both:
        yield both


@pytest.fixture
def valkeys(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as servers:
        yield servers


@pytest.fixture
def life() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_standby_that_commits_wait_for_takes_over_and_nothing_is_lost(
    postgres: Pair, redis_url: str, life: ExitStack, tmp_path: Path
) -> None:
    synchronise(postgres.primary)
    producer = Producer(postgres.url, redis_url=redis_url)
    life.callback(producer.close)
    life.enter_context(
        processes.worker("tests.end_to_end.shop", postgres.url, redis_url, tmp_path / "log", environ=QUICK)
    )
    with producer.at_work():
        producer.more()
        postgres.primary.kill()
        postgres.standby.promote()
        producer.more()
    rows = Rows(postgres.standby.url)
    life.callback(rows.close)
    until(lambda: finished(rows, producer), "all that was accepted to run")
    assert producer.refused, "nobody took writes in between"
    assert {status for _, status in rows(BY_STATUS)} == {"completed"}


def test_one_that_takes_longer_than_a_lease_takes_no_task_from_its_worker(
    postgres: Pair, redis_url: str, life: ExitStack, tmp_path: Path
) -> None:
    """The standby has answered for long: its start says nothing of how long nobody could renew a lease."""
    synchronise(postgres.primary)
    producer = Producer(postgres.url, redis_url=redis_url)
    life.callback(producer.close)
    module = "tests.end_to_end.shop"
    life.enter_context(processes.worker(module, postgres.url, redis_url, tmp_path / "log", environ=QUICK))
    life.enter_context(processes.beat(module, postgres.url, redis_url, tmp_path / "beat", QUICK))
    primary, rows = Rows(postgres.primary.url), Rows(postgres.standby.url)
    life.callback(rows.close)
    until(lambda: primary("SELECT FROM celeriac.beats"), "beat to tick")
    task = producer.app.send_task("slow", kwargs={"seconds": 2 * OUTAGE}).id
    until(lambda: primary("SELECT FROM worker_tasks WHERE status = 'running'"), "the task to run")
    primary.close()
    postgres.primary.kill()
    back = time.monotonic() + OUTAGE
    until(lambda: time.monotonic() > back, "the lease to be over")
    assert rows.one(IS_OVER), "the standby knows when the lease was renewed last"
    postgres.standby.promote()
    ended = "SELECT status, losses FROM worker_tasks WHERE task_id = :task AND status = 'completed'"
    until(lambda: rows(ended, task=task), "the task to end")
    assert rows(ended, task=task) == [("completed", 0)]
    assert rows("SELECT FROM celeriac.task_events WHERE kind = 'rescue'") == []


@pytest.mark.timeout(900)
@pytest.mark.nightly("ten failovers, each longer than a lease")
def test_ten_in_a_row_cost_no_task_and_refuse_no_outcome(
    postgres: Pair, redis_url: str, life: ExitStack, tmp_path: Path
) -> None:
    """Under load, each beside tasks that run on through it."""
    producer = Producer(postgres.url, redis_url=redis_url)
    life.callback(producer.close)
    module = "tests.end_to_end.shop"
    for name in ("one", "other"):
        life.enter_context(processes.worker(module, postgres.url, redis_url, tmp_path / name, environ=QUICK))
    life.enter_context(processes.beat(module, postgres.url, redis_url, tmp_path / "beat", QUICK))
    ran_on = []
    for _ in range(10):
        synchronise(postgres.primary)
        before = Rows(postgres.primary.url)
        ran_on += [producer.app.send_task("slow", kwargs={"seconds": 1.5 * OUTAGE}).id for _ in range(2)]
        running = "SELECT FROM worker_tasks WHERE status = 'running' AND task_id = ANY (:tasks)"
        until(lambda: len(before(running, tasks=ran_on[-2:])) == 2, "the tasks to run")  # noqa: B023
        before.close()
        with producer.at_work():
            producer.more()
            postgres.primary.kill()
            back = time.monotonic() + OUTAGE
            until(lambda: time.monotonic() > back, "the lease to be over")  # noqa: B023
            postgres.standby.promote()
            producer.more()
        postgres.follow()
    rows = Rows(postgres.primary.url)
    life.callback(rows.close)
    until(lambda: finished(rows, producer), "all that was accepted to run")
    ended = "SELECT status, losses FROM worker_tasks WHERE task_id = ANY (:tasks)"
    until(lambda: {s for s, _ in rows(ended, tasks=ran_on)} <= {"completed", "failed"}, "what ran through it to end")
    assert rows(WENT_WRONG) == []
    assert set(rows(ended, tasks=ran_on)) == {("completed", 0)}


def test_a_standby_that_is_named_alone_takes_no_worker(postgres: Pair, redis_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-c", "1"]
    urls = {"DATABASE_URL": postgres.standby.url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    line = processes.refusal(command, urls, tmp_path / "log")
    assert "DATABASE_URL names a standby, which takes no writes" in line
    assert "target_session_attrs=read-write" in line


def test_what_a_standby_had_not_heard_of_is_lost_and_leaves_nothing_stuck(
    postgres: Pair, redis_url: str, life: ExitStack, tmp_path: Path
) -> None:
    """Accepted by a primary that waits for nobody: its end is theirs, also where their tickets lie in Redis."""
    producer = Producer(postgres.url, redis_url=redis_url)
    life.callback(producer.close)
    rows = Rows(postgres.primary.url)
    producer.enqueue()
    heard = list(producer.accepted)
    until(lambda: rows.one("SELECT min(replay_lsn) >= pg_current_wal_lsn() FROM pg_stat_replication"), "it to be heard")
    postgres.standby.stop()
    for _ in range(20):
        producer.enqueue()
    producer.app.dispatch("add")
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen(ticket_key("add")), "their tickets wait in Redis"
    rows.close()
    postgres.primary.kill()
    postgres.standby.start()
    postgres.standby.promote()
    with producer.at_work():
        producer.more()
    lost = set(producer.accepted[1:21])
    life.enter_context(
        processes.worker("tests.end_to_end.shop", postgres.url, redis_url, tmp_path / "log", environ=QUICK)
    )
    rows = Rows(postgres.standby.url)
    life.callback(rows.close)
    until(lambda: {status for _, status in rows(BY_STATUS)} == {"completed"}, "what is there to run")
    there = {task for task, _ in rows(BY_STATUS)}
    assert there == set(producer.accepted) - lost >= set(heard)


@pytest.mark.parametrize(
    "fault",
    ["killed", pytest.param("frozen", marks=pytest.mark.nightly("Sentinel's wait; test_redis_gone freezes one"))],
)
def test_the_valkey_that_the_sentinels_choose_carries_the_tickets(
    fault: str, valkeys: Watched, database_url: str, rows: Rows, life: ExitStack, tmp_path: Path
) -> None:
    producer = Producer(database_url, redis_url=valkeys.url, redis_master=MASTER)
    life.callback(producer.close)
    environ = QUICK | {"CELERIAC_REDIS_MASTER": MASTER}
    log = tmp_path / "log"
    worker = life.enter_context(
        processes.worker("tests.end_to_end.shop", database_url, valkeys.url, log, environ=environ)
    )
    until(lambda: waited_on(valkeys.master), "the worker to wait for tickets")
    with producer.at_work():
        producer.more()
        valkeys.master.kill() if fault == "killed" else valkeys.master.pause()
        valkeys.sentinels[0].kill()
        until(lambda: valkeys.chosen() == valkeys.replica.port, "the Sentinels to choose another")
        producer.more()
        until(lambda: producer.app.publisher.answers(), "the producer to find it")
        until(lambda: waited_on(valkeys.replica), "the worker to find it")
        producer.more()
        valkeys.master.start() if fault == "killed" else valkeys.master.resume()
        producer.more()
    until(lambda: finished(rows, producer), "all that was accepted to run")
    assert not producer.refused, "an enqueue needs no Redis"
    assert "<redis." not in worker.printed(), "a line says what is wrong, not by which objects"
