"""`-P gevent`: a greenlet a slot, and who waits for Postgres lets the others run."""

from __future__ import annotations

import time
from typing import Any

from celery.concurrency import gevent
from kombu.utils import functional
from psycopg2 import OperationalError
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE, STATUS_BEGIN, STATUS_READY, set_wait_callback

from celeriac.errors import ConfigurationError
from celeriac.store.connections import CONNECT_TIMEOUT
from celeriac.worker.wide import Wide


class Greenlets(Wide, gevent.TaskPool):
    """gevent has made greenlets of threads."""


def wait_for_postgres() -> None:
    """Raises ConfigurationError where gevent is not there, or not from the start."""
    try:
        from gevent.monkey import is_module_patched
    except ImportError:
        raise ConfigurationError("-P gevent: gevent is not there: pip install 'celeriac[gevent]'") from None
    if not is_module_patched("socket"):
        raise ConfigurationError("worker_pool='gevent' comes too late: say `celery worker -P gevent`")
    set_wait_callback(_wait)
    # Celery imports it before gevent patches: who waits for Redis would hold up all that works without it.
    functional.sleep = time.sleep  # type: ignore[attr-defined]


def _wait(connection: Any) -> None:
    """Until the connection has what it waits for. libpq's own `connect_timeout` counts only where it waits itself."""
    from gevent.socket import wait_read, wait_write

    waits = {POLL_READ: wait_read, POLL_WRITE: wait_write}
    while (state := connection.poll()) != POLL_OK:
        if state not in waits:
            raise OperationalError(f"libpq does not say what it waits for: {state}")
        is_open = connection.status in (STATUS_READY, STATUS_BEGIN)
        timed_out = OperationalError(f"Postgres has not let us in within {CONNECT_TIMEOUT} s: timeout expired")
        waits[state](connection.fileno(), None if is_open else CONNECT_TIMEOUT, timed_out)
