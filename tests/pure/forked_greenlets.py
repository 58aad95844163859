"""A program of greenlets whose forked children do something each; it prints the exit status of each child."""

from gevent import monkey

monkey.patch_all()

import gc  # noqa: E402 - gevent patches first
import os  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402

import gevent  # noqa: E402
from gevent.event import Event  # noqa: E402
from gevent.lock import Semaphore  # noqa: E402
from gevent.socket import wait_read  # noqa: E402

from celeriac.worker import greenlets  # noqa: E402

greenlets.wait_for_postgres()

ME = os.getpid()
SEMAPHORE, EVENT, LOCK = Semaphore(0), threading.Event(), threading.Lock()


def told(what: str) -> None:
    if os.getpid() != ME:
        print(what, "in a child", flush=True)


def works() -> None:
    try:
        while True:
            time.sleep(0.05)
            told("works")
    finally:
        told("gives back")


def waits(wait: Callable[[], object]) -> None:
    wait()
    told("waited")


def reads(readable: int) -> None:
    while True:
        wait_read(readable)
        told("reads")
        time.sleep(0.01)


def returns() -> None:
    time.sleep(0.2)


def releases() -> None:
    """What others wait for."""
    SEMAPHORE.release()
    EVENT.set()
    LOCK.release()
    time.sleep(0.2)


def exits() -> None:
    sys.exit(7)


def breaks() -> None:
    raise ValueError("in the child")


def blocks() -> None:
    Event().wait()


def spawns() -> None:
    """One that exits."""
    gevent.spawn(sys.exit, 5)
    time.sleep(60)


def is_idle() -> None:
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    sys.exit(time.process_time() - before > 0.25)


def times_out() -> None:
    """By a timeout that began before its fork."""
    try:
        time.sleep(60)
    except gevent.Timeout:
        sys.exit(11)


def runs_another() -> None:
    """A thread and a program."""
    thread = threading.Thread(target=time.sleep, args=(0.01,))
    thread.start()
    thread.join()
    sys.exit(os.system("exit 3") >> 8)


def fork(child: Callable[[], None]) -> None:
    timeout = gevent.Timeout(1.0) if child is times_out else gevent.Timeout(None)
    with timeout:
        pid = os.fork()
        if not pid:
            child()
            return
        timeout.cancel()
    print(child.__name__, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    LOCK.acquire()
    for wait in (SEMAPHORE.acquire, EVENT.wait, LOCK.acquire):
        gevent.spawn(waits, wait)
        threading.Thread(target=waits, args=(wait,), daemon=True).start()
    readable, writable = os.pipe()
    os.write(writable, b"stays ready")
    gevent.spawn(reads, readable)
    gevent.spawn(works)
    time.sleep(0.1)
    gc.freeze()  # as a worker does
    for child in (returns, releases, exits, breaks, blocks, spawns, is_idle, times_out, runs_another):
        gevent.spawn(fork, child).join()
    print("end" if os.getpid() == ME else "the main greenlet in a child")
