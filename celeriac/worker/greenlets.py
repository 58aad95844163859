"""The pool `-P gevent`: a greenlet for each slot; others run while one waits for Postgres."""

from __future__ import annotations

import gc
import time
from typing import Any

from celery.concurrency import gevent
from celery.exceptions import WorkerShutdown, WorkerTerminate
from kombu.utils import functional
from psycopg2 import OperationalError
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE, STATUS_BEGIN, STATUS_READY, set_wait_callback

from celeriac.errors import ConfigurationError
from celeriac.run import children
from celeriac.store import forks
from celeriac.store.connections import CONNECT_TIMEOUT
from celeriac.worker.wide import Wide

#: Exceptions by which a greenlet ends the worker. In gevent `SystemExit` is one of them, so a greenlet that a handler
#: spawned could end its neighbours: here it ends only its greenlet, as it does a thread.
ENDING = (KeyboardInterrupt, WorkerShutdown, WorkerTerminate, SystemError)


class Greenlets(Wide, gevent.TaskPool):
    """A pool of greenlets: gevent has patched threads."""


def wait_for_postgres() -> None:
    """Make psycopg2 wait by gevent. Raises ConfigurationError if that is not installed, or was not patched in first."""
    try:
        from gevent import get_hub
        from gevent.monkey import is_module_patched
    except ImportError:
        raise ConfigurationError("-P gevent: gevent is not there: pip install 'celeriac[gevent]'") from None
    if not is_module_patched("socket"):
        raise ConfigurationError("worker_pool='gevent' comes too late: say `celery worker -P gevent`")
    set_wait_callback(_wait)
    get_hub().SYSTEM_ERROR = ENDING
    if _leave_the_others not in forks.first:
        forks.first.append(_leave_the_others)
    # Celery imports `sleep` before gevent patches it: a wait for Redis would block all greenlets.
    functional.sleep = time.sleep  # type: ignore[attr-defined]


def _wait(connection: Any) -> None:
    """Wait until the connection is ready. libpq's own `connect_timeout` applies only where libpq itself waits."""
    from gevent.socket import wait_read, wait_write

    waits = {POLL_READ: wait_read, POLL_WRITE: wait_write}
    while (state := connection.poll()) != POLL_OK:
        if state not in waits:
            raise OperationalError(f"libpq does not say what it waits for: {state}")
        is_open = connection.status in (STATUS_READY, STATUS_BEGIN)
        timed_out = OperationalError(f"Postgres has not let us in within {CONNECT_TIMEOUT} s: timeout expired")
        waits[state](connection.fileno(), None if is_open else CONNECT_TIMEOUT, timed_out)


#: A forked child's copies of the parent's greenlets. It keeps references to them: a greenlet without one is ended by an
#: error raised in it, upon which a handler's `finally` would release resources that belong to the parent.
_left: set[object] = set()


def _leave_the_others() -> None:
    """Stop the parent's other greenlets in a child that one of them forked: gevent would go on with all of them.

    The child's main greenlet is a copy of the worker's, so its end (nothing is left to wait for, `SystemExit`) ends the
    child instead.
    """
    from gevent import get_hub, getcurrent
    from greenlet import greenlet, settrace

    hub, here = get_hub(), getcurrent()
    if here.parent is None or not hub.loop.default:  # the worker itself, or a thread with a hub of its own
        return
    gc.unfreeze()  # the worker has frozen its objects, the main greenlet among them: the search would not find it
    everything = gc.get_objects()
    _left.update(each for each in everything if issubclass(type(each), greenlet) and each not in (hub, here))
    guard = greenlet(_end_instead)
    guard.switch(here)
    guard.parent = hub.parent
    hub.parent = guard
    hub.__dict__.pop("SYSTEM_ERROR", None)  # the child has no neighbours
    settrace(_freeze)
    hub.loop.reinit()
    for each in everything:
        if _is_watcher(type(each)) and not _is_for(each, here):
            each.stop()  # a file that stays ready would keep the loop busy


def _is_watcher(kind: type) -> bool:
    return kind.__name__ in ("io", "timer") and kind.__module__.startswith("gevent.")


def _is_for(watcher: Any, one: object) -> bool:
    """Return whether the watcher is this greenlet's, such as that of a `gevent.Timeout` around its fork."""
    return getattr(watcher.callback, "__self__", None) is one or one in (watcher.args or ())


def _freeze(_: str, between: tuple[Any, Any]) -> None:
    """Trace switches: send control that comes to a greenlet of the parent back at once. That greenlet may have waited
    for a lock, or for the end of a greenlet, that the child has as well.
    """
    origin, target = between
    while target in _left:
        origin.switch()


def _end_instead(forker: Any) -> None:
    """Stand in for the main greenlet: end the process with the exception that is thrown into it."""
    from gevent.hub import LoopExit

    try:
        forker.switch()
    except LoopExit as error:
        children.end(getattr(forker, "exception", None) if forker.dead else error)
    except BaseException as error:
        children.end(error)
