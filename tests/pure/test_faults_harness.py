"""What the harness of faults does is what it says: the load's pace, the order of what is late, what is awaited."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from faults import of_postgres, of_processes, rounds
from faults.ledger import ACCEPTED, BEGIN, END, PAUSED, THAWED, Ledger, Pen
from faults.members import Fleet, Member, Unmet, must, until
from faults.pace import Way
from faults.proxy import Client, Gate
from faults.rounds import Fault, Rounds, Row
from faults.stack import CLOCK


def test_a_way_calls_no_more_often_than_its_share() -> None:
    """Told to rest, it does not call once more; told to go on, it does not wait out its old pace."""
    called: list[float] = []

    def call() -> None:
        called.append(time.monotonic())

    way = Way(call, 0.1, lambda *_: None)
    way.start()
    for times in (1, 2):
        way.go(1.0)
        assert until(lambda times=times: len(called) == times, 5.0)  # type: ignore[misc]
    way.go(0.0)
    assert way.is_resting.wait(5.0)
    assert len(called) == 2


def test_a_way_goes_on_after_it_was_refused() -> None:
    refusals: list[str] = []

    def call() -> None:
        raise ConnectionError("gone")

    way = Way(call, 1.0, lambda name, error: refusals.append(f"{name}: {error}"))
    way.start()
    way.go(100.0)
    assert until(lambda: len(refusals) == 2, 5.0)
    way.go(0.0)
    assert refusals[0] == "call: gone"


class Sink(asyncio.Protocol):
    """A server: what it gets of three pieces, whole."""

    def __init__(self, whole: asyncio.Future[bytes]) -> None:
        self.whole, self.got = whole, b""

    def data_received(self, data: bytes) -> None:
        self.got += data
        if len(self.got) == 3:
            self.whole.set_result(self.got)


async def _through_a_proxy() -> bytes:
    """The first two pieces come late, the third after all is as it was."""
    loop = asyncio.get_running_loop()
    whole, connected = loop.create_future(), loop.create_future()

    def connect() -> Client:
        connected.set_result(Client(gate))
        made: Client = connected.result()
        return made

    server = await loop.create_server(lambda: Sink(whole), "127.0.0.1", 0)
    gate = Gate(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    door = await loop.create_server(connect, "127.0.0.1", 0)
    process, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", door.sockets[0].getsockname()[1])
    client = await connected
    for seconds, piece in ((0.1, b"1"), (0.05, b"2"), (None, b"3")):
        gate.tell({"mode": "pass"} if seconds is None else {"mode": "slow", "seconds": seconds})
        client.data_received(piece)
    try:
        return await asyncio.wait_for(whole, 5.0)
    finally:
        for open_one in (process, client.transport, server, door):
            open_one.close()


def test_what_comes_late_is_not_overtaken() -> None:
    assert asyncio.run(_through_a_proxy()) == b"123"


def test_what_must_come_is_named_where_it_does_not() -> None:
    must(lambda: True, 0.0, "nothing")
    with pytest.raises(Unmet, match=r"waited 0\.1 s in vain for a worker to be back"):
        must(lambda: False, 0.1, "a worker to be back")


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        ("overlapped: 2", True),
        ("keys overlapped: 1", False),
        ("lost: 1", False),
        ("api ended by itself: overlapped", False),
    ],
)
def test_what_a_fault_allows_is_that_and_nothing_like_it(problem: str, known: bool) -> None:
    assert Fault("twins", "two of a name", lambda _: None, allows=("overlapped",)).knows(problem) is known


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that does nothing: its id."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def _is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def test_who_is_frozen_goes_on_whatever_happens_and_the_ledger_knows_both(sleeper: int, tmp_path: Path) -> None:
    fleet = Fleet([], Pen(tmp_path, "harness"))
    with suppress(KeyboardInterrupt), fleet.frozen([sleeper]):
        must(lambda: _is_stopped(sleeper), 5.0, "it to stop")
        raise KeyboardInterrupt
    must(lambda: not _is_stopped(sleeper), 5.0, "it to go on")
    told = [(line["what"], line["frozen"]) for line in Ledger(tmp_path).read()]
    assert told == [(PAUSED, sleeper), (THAWED, sleeper)]


def test_a_frozen_postgres_goes_on_whatever_happens(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        assert until(lambda: _is_stopped(sleeper), 5.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(of_postgres, "time", SimpleNamespace(sleep=interrupt))
    for freeze in (of_postgres.frozen, of_postgres.backend_frozen):
        stack: Any = SimpleNamespace(postgres=SimpleNamespace(pid=sleeper), sql=lambda _: [(sleeper,)])
        with pytest.raises(KeyboardInterrupt):
            freeze(stack)
        assert until(lambda: not _is_stopped(sleeper), 5.0)


class Full:
    """A stack, as far as the fault of a full disk needs it: what is done, in order, and what fails of it."""

    def __init__(self, folder: Path, fails: str) -> None:
        self.folder, self.fails = folder, fails
        self.postgres = SimpleNamespace(account=SimpleNamespace(make_folder=Path.mkdir))
        self.done: list[str] = []

    def run(self, command: list[str], **_: object) -> None:
        self.sql(command[0])

    def enqueue(self, *_: object) -> None:
        self.sql("enqueue")

    def sql(self, statement: str) -> None:
        is_full = (self.folder / "small" / "ballast").exists()
        self.done.append("full" if is_full else statement.rpartition("TABLESPACE ")[2].partition(" ")[0])
        if self.fails in statement:
            raise ConnectionError(statement)


@pytest.mark.parametrize("fails", ["enqueue", "CREATE", "SET TABLESPACE small", "pg_default", "DROP"])
def test_a_full_disk_is_freed_first_whatever_fails(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack: Any = Full(tmp_path, fails)
    monkeypatch.setattr(of_postgres, "ROOM", 2**17)
    monkeypatch.setattr(of_postgres, "AWAY", 0.0)
    monkeypatch.setattr(of_postgres.subprocess, "run", stack.run)
    with pytest.raises(ConnectionError):
        of_postgres.out_of_disk(stack)
    assert stack.done[-1] == "umount"
    if fails in ("enqueue", "pg_default", "DROP"):
        assert "full" in stack.done
        after = stack.done[len(stack.done) - stack.done[::-1].index("full") :]
        assert {"pg_default", "small"} <= set(after)


class Busy:
    """A stack whose workers begin something whenever they are asked; nobody starts again what ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet([], Pen(folder, "harness"))
        self.ledger = SimpleNamespace(read=self.begun)
        self.enqueue = lambda *_: None

    def begun(self) -> list[dict[str, object]]:
        return [{"what": "begin", "at": time.monotonic(), "who": "w", "role": "long"}]

    def member(self, *_: object, **__: object) -> Member:
        return Member("w", ["-c", "import time; time.sleep(60)"], {}, self.folder)


def test_a_named_worker_that_stays_away_fails_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_processes, "LEASE_OVER", 0.3)
    stack: Any = Busy(tmp_path)
    with pytest.raises(Unmet, match="w to be back"):
        of_processes.kill_named_parents(stack)


def test_a_stack_that_does_not_come_to_work_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PATIENCE", 0.1)
    idle = SimpleNamespace(of=lambda kind: [SimpleNamespace(name="worker-0")] if kind == "worker" else [])
    load = SimpleNamespace(go=lambda _: None)
    stack: Any = SimpleNamespace(fleet=idle, load=load, sql=lambda *_, **__: [], ledger=SimpleNamespace(read=list))
    with pytest.raises(Unmet, match="worker-0"):
        Rounds(stack, 1.0).warm_up()


def test_a_task_that_ends_while_it_is_judged_is_no_stale_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last run is in the history, so it has to be among the lines as well."""
    monkeypatch.setattr(Rounds, "_missed", lambda *_: [])
    monkeypatch.setattr(Rounds, "_in_disorder", lambda _: [])
    common = {"id": "a", "role": "quick", "attempt": 0, "at": 1.0, "pid": 1, "who": "w"}
    lines = [common | {"what": ACCEPTED}, common | {"what": BEGIN, "run": "first"}]

    def sql(statement: str, **_: object) -> list[Any]:
        if statement != rounds.HISTORY:
            return []
        lines.extend(common | {"what": what, "run": "second", "at": 2.0} for what in (BEGIN, END))
        return [SimpleNamespace(task_id="a", status="completed", run="second", writes=[], error=None)]

    stack: Any = SimpleNamespace(sql=sql, ledger=SimpleNamespace(read=lambda: list(lines)))
    row = Row("busy")
    Rounds(stack, 1.0)._conclude(row, Fault("busy", "", lambda _: None), datetime.now(UTC))
    assert row.verdict is not None
    assert (row.verdict.stale, row.verdict.finished) == (0, 1), row.problems


WRONG_CLOCK = """
import sys, time
from datetime import UTC, datetime
for line in sys.stdin:
    plain = datetime.fromtimestamp(time.time(), UTC)
    print(time.time(), datetime.now(UTC).timestamp(), time.monotonic(), isinstance(plain, datetime), flush=True)
"""


def test_the_clock_of_a_process_is_wrong_by_what_the_file_says_and_from_then_on(tmp_path: Path) -> None:
    offset = tmp_path / "adrift"
    offset.write_bytes(struct.pack("d", 0.0))
    environ = {**os.environ, "FAULTS_ADRIFT": str(offset), "PYTHONPATH": str(CLOCK)}
    command = [sys.executable, "-c", WRONG_CLOCK]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for seconds in (0.0, 20.0, -20.0):
            with offset.open("r+b") as opened:
                opened.write(struct.pack("d", seconds))
            process.stdin.write("\n")
            process.stdin.flush()
            *told, are_datetimes = process.stdout.readline().split()
            wall, now, monotonic = map(float, told)
            assert abs(wall - time.time() - seconds) < 5
            assert abs(now - wall) < 5
            assert abs(monotonic - time.monotonic()) < 5
            assert are_datetimes == "True"
        process.stdin.close()
