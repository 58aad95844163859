"""The worker's step that starts the lifeline, once Postgres answers and has the schema that this code needs."""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from celery import bootsteps, signals
from celery.exceptions import WorkerShutdown
from celery.platforms import EX_FAILURE
from celery.worker.state import maybe_shutdown

from celeriac import above, logged
from celeriac.counters import COUNTERS
from celeriac.errors import ConfigurationError
from celeriac.roles.bounds import NAME
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.run import descriptors, shared
from celeriac.run.places import places
from celeriac.run.traces import traces
from celeriac.store.connections import Database
from celeriac.store.failures import once_postgres_serves
from celeriac.store.migrate import unapplied
from celeriac.store.role_names import is_built_in
from celeriac.version import __version__
from celeriac.worker import pools
from celeriac.worker.adopter import Adopter
from celeriac.worker.herald import Herald
from celeriac.worker.lifeline import LAST_LOOK, Lifeline
from celeriac.worker.pulse import PULSE
from celeriac.worker.refills import Refills
from celeriac.worker.repairs import Repairs
from celeriac.worker.stops import COLD, WARM
from celeriac.worker.watchdog import Watchdog

logger = logging.getLogger(__name__)


class LifelineStep(bootsteps.StartStopStep):
    """Starts the lifeline after the pool; it lives until the worker has stopped."""

    #: Beat, so that its process is forked before there are threads.
    requires = ("celery.worker.components:Pool", "celery.worker.components:Beat")

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        # A child needs these for its first ticket, and is forked after they are imported.
        from celeriac.run import arrive, watch  # noqa: F401

        self.lifeline: Lifeline | None = None
        self.threads: list[threading.Thread] = []
        self.heard: list[tuple[Any, Callable[..., None]]] = []
        # Children are forked with these flags; another worker forked from the same parent gets its own.
        shared.make_own()
        traces.keep(on=True)
        COUNTERS.turn(on=bool(worker.app.settings.metrics_address))
        shared.drain(on=False)
        shared.back_off(on=False)
        shared.replace_idle(on=False)
        shared.name_node(worker.hostname)
        served = worker.app.roles.of_queues(set(worker.app.amqp.queues.consume_from))
        shared.name_worker(_named(worker.app.settings.worker_id) or shared.fresh_name(_declared(served)))
        if threading.current_thread() is threading.main_thread():
            if raised := descriptors.allow(pools.files(int(worker.concurrency or 1))):
                logger.info("Open files: up to %d, for its slots; the soft limit was %d", *reversed(raised))
            # Children's garbage collectors skip all objects so far, which saves a tenth of a task's time.
            gc.collect()
            gc.freeze()

    def start(self, worker: Any) -> None:
        """Start as soon as Postgres answers. Raises WorkerShutdown on a signal, and for a configuration error, which is
        logged.
        """
        for note in (
            *worker.app.notes(scheduler=worker.scheduler if worker.beat else None),
            *pools.notes(worker.concurrency),
        ):
            logger.warning(note)
        warn_of_queues(worker.app.roles, set(worker.app.amqp.queues.consume_from))
        pools.guard(worker.app.tasks)
        self.lifeline = lifeline = Lifeline(worker.app, worker)
        lifeline.owns_process = threading.current_thread() is threading.main_thread()
        places.end = lifeline.make_way if lifeline.owns_process else None
        PULSE.ends = math.inf
        port = [above.load(above.WORKER_PORT)(lifeline)] if worker.app.settings.metrics_address else []
        for thread in port:
            thread.start()  # it answers probes while the worker waits for Postgres
        try:
            once_postgres_serves(lambda: introduce(lifeline), maybe_shutdown)
        except ConfigurationError as error:
            logger.critical("The worker does not start: %s", error)
            raise WorkerShutdown(EX_FAILURE) from None
        message = "[TaskWorker] Starting worker %s for role: %s"
        roles = ", ".join(_declared(lifeline.served())) or "none that is declared"
        extra = logged.of("worker.started", worker=shared.worker_id(), node=shared.node(), version=__version__)
        logger.info(message, shared.worker_id(), roles, extra=extra)
        lifeline.spare()
        threads = [
            lifeline, lifeline.governor, Watchdog(lifeline), Repairs(worker.app, lifeline.ending, lifeline.gap),
            Adopter(worker.app, lifeline.queues, lifeline.ending), Herald(worker.app, lifeline.ending),
            Refills(worker.app, lifeline.served, lifeline.ending),
            above.load(above.ALERT_WATCH)(worker.app, lifeline.ending),
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        self.threads = [*port, *threads]
        descriptors.note_own()
        self._on(signals.worker_ready, lambda **_: lifeline.spare())
        self._on(signals.worker_shutting_down, lambda how=WARM, **_: lifeline.drain(at_once=how == COLD))
        self._on(signals.worker_shutdown, lambda **_: stop(lifeline))

    def terminate(self, worker: Any) -> None:  # noqa: ARG002 - Celery's signature
        """End a worker that runs in a thread (`celery.contrib.testing`): its process goes on, and may keep none of its
        threads, receivers and flags.
        """
        if self.lifeline is None or threading.current_thread() is threading.main_thread():
            return
        for signal, receiver in self.heard:
            signal.disconnect(receiver)
        self.lifeline.stopped()
        for thread in self.threads:
            thread.join(LAST_LOOK)
        self.lifeline.database.dispose()
        shared.drain(on=False)
        shared.back_off(on=False)
        shared.note_limits(0)

    def _on(self, signal: Any, receiver: Callable[..., None]) -> None:
        signal.connect(receiver, weak=False)
        self.heard.append((signal, receiver))


def stop(lifeline: Lifeline) -> None:
    """Stop the lifeline, unless it has stopped: another worker in this process may send the signal again."""
    if lifeline.ending.is_set():
        return
    lifeline.stopped()
    extra = logged.of("worker.stopped", worker=shared.worker_id())
    logger.info("[TaskWorker] %s has stopped", shared.worker_id(), extra=extra)


def warn_of_queues(roles: Roles, consumed: set[str]) -> None:
    """Log the consumed queues that no task of this code has: they may be misspelt."""
    known = {lane.queue for declared in roles.all() for lane in declared.lanes}
    if unknown := sorted(consumed - known):
        logger.warning(
            "No task of this code has the queue %s: there are %s", ", ".join(unknown), ", ".join(sorted(known))
        )


def _named(worker_id: str | None) -> str | None:
    """Return the worker's configured id, None if it has none. Raises ConfigurationError."""
    if worker_id is not None and not NAME.fits(worker_id):
        raise ConfigurationError(f"WORKER_ID={worker_id!r:.100}: give {NAME.right}")
    return worker_id


def _declared(served: Iterable[Role]) -> list[str]:
    """Return the names of these roles, without built-in ones."""
    return list(dict.fromkeys(role.name for role in served if not is_built_in(role.name)))


def introduce(lifeline: Lifeline) -> None:
    """Register the worker's roles and send its first heartbeat, before it works. Raises ConfigurationError."""
    app = lifeline.app
    refuse_old_schema(app.database, app.migrations)
    app.register_roles(served=[role.name for role in lifeline.served()])
    if app.settings.worker_id:
        lifeline.take_over()
    lifeline.governor.look()
    lifeline.beat()


def refuse_old_schema(database: Database, migrations: Path | None) -> None:
    """Raise ConfigurationError if the database lacks migrations, or has some that this code lacks."""
    with database.statement() as connection:
        if missing := unapplied(connection, migrations):
            raise ConfigurationError(f"the schema lacks {', '.join(sorted(missing))}: run `celeriac migrate`")
