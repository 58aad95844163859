"""Faults of Postgres: restarted, gone, frozen, read-only, full, in haste, out of connections, answers lost."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg2
from psycopg2.errors import DiskFull
from sqlalchemy.exc import DBAPIError

from faults.members import must, stopped
from faults.of_processes import again_and_again
from faults.rounds import Fault
from faults.size import sized
from faults.stack import Stack
from faults.standby import Standby, synchronise

AWAY = 4.0

#: Longer than a lease (seconds).
LEASE_OVER = 8.0

#: Sessions of the application; the harness's own have no name.
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'celeriac%'"


def restarted(stack: Stack) -> None:
    """In good order: sessions are ended, what is committed stays."""
    stack.postgres.stop()
    stack.postgres.start()


def crashed(stack: Stack) -> None:
    for _ in range(2):
        stack.postgres.kill()
        stack.postgres.start()
        time.sleep(1.0)


def failed_over(stack: Stack, away: float = 0.0) -> None:
    """Killed, and a standby of whom each commit has waited takes over at the same address."""
    standby = Standby(Path(tempfile.mkdtemp(prefix="standby-", dir=stack.folder)), stack.postgres)
    standby.start()
    stack.life.callback(standby.stop)
    synchronise(stack.postgres)
    time.sleep(AWAY)  # in which commits wait for it
    stack.postgres.kill()
    time.sleep(away)
    standby.promote()
    stack.hand_over(standby)


def failed_over_late(stack: Stack) -> None:
    """The same, later than leases last: nobody could renew them, and the standby has answered for long."""
    failed_over(stack, LEASE_OVER)


def refused(stack: Stack) -> None:
    """New connections are refused, open ones live: a login revoked, a proxy, an expired certificate. Some have to be
    made anew, as they are lost.
    """
    allow = "ALTER DATABASE celeriac ALLOW_CONNECTIONS {}"
    with psycopg2.connect(stack.postgres.url.replace("+psycopg2", "").replace("/celeriac?", "/postgres?")) as aside:
        aside.autocommit = True
        with aside.cursor() as cursor:
            cursor.execute(allow.format("false"))
            try:
                stack.sql(f"{TERMINATE} AND pid % 4 = 0")
                time.sleep(AWAY)
            finally:
                cursor.execute(allow.format("true"))
    aside.close()


def far_away(stack: Stack) -> None:
    """A region away: 80 ms there and back, to Postgres and to Redis, and some pieces reset their connection."""
    for server in ("postgres", "redis"):
        stack.spoil(server, "reset", seconds=0.04, share=0.01)
    time.sleep(5 * AWAY)
    for server in ("postgres", "redis"):
        stack.spoil(server, "pass")


def gone(stack: Stack) -> None:
    stack.postgres.stop()
    time.sleep(AWAY + 2)
    stack.postgres.start()


def frozen(stack: Stack) -> None:
    """For two leases: nobody can renew any."""
    postmaster = psutil.Process(stack.postgres.pid)
    pids = [postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))]
    with stopped(pids):
        time.sleep(2 * AWAY)


def backend_frozen(stack: Stack) -> None:
    """Those that have nothing locked: a network that is cut off in the middle looks like it."""
    pids = [pid for (pid,) in stack.sql(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'celeriac%' AND state = 'idle'")][:6]  # fmt: skip
    with stopped(pids):
        time.sleep(2 * AWAY)


@contextmanager
def setting(stack: Stack, **settings: str) -> Iterator[None]:
    """For every session, those that are open included."""
    for name, value in settings.items():
        stack.sql(f"ALTER SYSTEM SET {name} = '{value}'")
    stack.sql("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        for name in settings:
            stack.sql(f"ALTER SYSTEM RESET {name}")
        stack.sql("SELECT pg_reload_conf()")


def read_only(stack: Stack) -> None:
    with setting(stack, default_transaction_read_only="on"):
        time.sleep(AWAY)


def in_haste(stack: Stack) -> None:
    """Limits that honest statements meet now and then."""
    with setting(stack, statement_timeout="15ms", lock_timeout="2ms"):
        time.sleep(AWAY)
    with setting(stack, transaction_timeout="30ms", idle_in_transaction_session_timeout="5ms"):
        time.sleep(AWAY)


def terminated(stack: Stack) -> None:
    again_and_again(lambda: stack.sql(TERMINATE), every=0.5)


def cut(stack: Stack) -> None:
    again_and_again(lambda: stack.spoil("postgres", "cut"))


def slow(stack: Stack) -> None:
    stack.spoil("postgres", "slow", seconds=0.05)
    time.sleep(AWAY)
    stack.spoil("postgres", "pass")


def lost(
    pattern: str, share: float, *, before: bool = False, lasts: float = sized(6.0, 3.0)
) -> Callable[[Stack], None]:
    def act(stack: Stack) -> None:
        seed = stack.chance.randrange(2**32)
        stack.spoil("postgres", "lose", pattern=pattern, share=share, seed=seed, before=before)
        time.sleep(lasts)
        stack.spoil("postgres", "pass")

    return act


def no_connections(stack: Stack) -> None:
    """Every connection there may be is somebody else's; those that are open are ended, so that all need a new one."""
    held: list[psycopg2.extensions.connection] = []
    until_when = time.monotonic() + AWAY
    stack.sql(TERMINATE)
    while time.monotonic() < until_when:
        try:
            held.append(psycopg2.connect(host=str(stack.postgres.socket_folder), user="postgres", dbname="postgres"))
        except psycopg2.OperationalError:
            time.sleep(0.1)
    for connection in held:
        connection.close()


# -- out of disk -------------------------------------------------------------------------------------------------------

#: Bytes of the file system that fills up.
ROOM = 48 * 2**20


def no_file_system() -> str | None:
    """Only root mounts one, and not in every container."""
    if os.geteuid() != 0:
        return "a small file system can only be mounted by root"
    place = Path("/tmp/celeriac-faults-try")
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        return "a small file system cannot be mounted here"
    subprocess.run(["umount", str(place)], check=True)
    return None


def out_of_disk(stack: Stack) -> None:
    """The tables of the unfinished lie on a file system of their own, which is full for a while.

    Whatever fails, there is room first: then the tables can go back to where they were, and the rest be put away.
    """
    place = stack.folder / "small"
    place.mkdir(exist_ok=True)  # where this was tried before
    inside, ballast = place / "space", place / "ballast"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)], check=True)
    with ExitStack() as last_first:
        last_first.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)
        stack.postgres.account.make_folder(inside)
        stack.sql(f"CREATE TABLESPACE small LOCATION '{inside}'")
        last_first.callback(stack.sql, "DROP TABLESPACE small")
        last_first.callback(_move, stack, "pg_default")
        _move(stack, "small")
        last_first.callback(ballast.unlink, missing_ok=True)
        _fill(ballast)
        must(lambda: _press(stack), AWAY, "the file system to be full")
        again_and_again(lambda: _press(stack))


def _fill(ballast: Path) -> None:
    """Until its file system is full; if it is larger than it should be, no further."""
    with ballast.open("wb", buffering=0) as opened, suppress(OSError):
        for _ in range(ROOM // 65536):
            opened.write(b"\0" * 65536)


def _press(stack: Stack) -> bool:
    """Whether there is no room for more than what there is in the tables; all of it, or nothing, is accepted."""
    try:
        stack.enqueue("quick", 300, json.dumps({"account": "x" * 500}))
    except DBAPIError as error:
        return isinstance(error.orig, DiskFull)
    return False


def _move(stack: Stack, space: str) -> None:
    tables = ("tasks", "ready_0", "ready_1", "ready_2", "tickets", "later", "behind", "locks", "looks")
    for table in tables:
        stack.sql(f"ALTER TABLE celeriac.{table} SET TABLESPACE {space}")


WRITES = "INSERT|UPDATE|DELETE|EXECUTE|celeriac\\.|COMMIT"

FAULTS = [
    Fault("postgres-restarted", "Postgres is restarted in good order", restarted),
    Fault("postgres-crashed", "Postgres is killed and recovers, twice", crashed),
    Fault("postgres-failed-over", "Postgres is killed and a synchronous standby takes over", failed_over),
    Fault("postgres-failed-over-late", "the same, and it takes two leases", failed_over_late),
    Fault("postgres-refuses", "new connections are refused for 4 s, and a quarter of the open ones is lost", refused),
    Fault("far-away", "80 ms to Postgres and Redis, and one piece in a hundred resets its connection, 20 s", far_away),
    Fault("postgres-gone", "Postgres is away for 6 s", gone),
    Fault("postgres-frozen", "Postgres is frozen for two leases", frozen),
    Fault("backends-frozen", "idle sessions hang for two leases, as behind a cut network", backend_frozen),
    Fault("postgres-read-only", "default_transaction_read_only for 4 s", read_only),
    Fault(
        "out-of-disk", "the file system of the unfinished tasks is full for 4 s", out_of_disk, impossible=no_file_system
    ),
    Fault("backends-terminated", "all sessions are ended every 0.5 s", terminated),
    Fault("postgres-cut", "all connections to Postgres are cut every 0.4 s", cut),
    Fault("postgres-slow", "each statement, and each answer, comes 50 ms late", slow),
    Fault("commits-lost", "every third COMMIT is done and its answer lost", lost("^COMMIT", 0.33)),
    Fault("answers-lost", "one statement in thirty is done and its answer lost", lost(WRITES, 0.03)),
    Fault("statements-lost", "one statement in thirty never arrives", lost(WRITES, 0.03, before=True)),
    Fault("in-haste", "statement, lock, transaction and idle limits of a few milliseconds, 4 s each", in_haste),
    Fault("no-connections", "max_connections is used up for 4 s", no_connections),
]
