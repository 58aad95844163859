"""The pool `-P gevent`: a greenlet for each slot; one that waits for Postgres lets the others run."""

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
    """A pool of greenlets: gevent has patched threads."""


def wait_for_postgres() -> None:
    """Make psycopg2 wait by gevent. Raises ConfigurationError if gevent is not installed,
    or was not patched in first.
    """
    try:
        from gevent.monkey import is_module_patched
    except ImportError:
        raise ConfigurationError("-P gevent: gevent is not there: pip install 'celeriac[gevent]'") from None
    if not is_module_patched("socket"):
        raise ConfigurationError("worker_pool='gevent' comes too late: say `celery worker -P gevent`")
    set_wait_callback(_wait)
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
