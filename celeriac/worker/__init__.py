"""The worker: a Celery worker that runs rows.

In the children, `run.ticket` starts, runs and settles a ticket's rows while `run.watch` supervises the running one.
In the parent, `lifeline` sends heartbeats, notices lost children and late rows, polls for work, and drains;
`repairs` admits the outbox, turns the ring, and runs the vital sweeps where no beat does; `celeriac.alerts` checks
alerts; `adopter` takes messages of plain Celery apps; `governor` backs off while memory or CPU is short; `alone` makes
the children poll while Redis is away. `controller` sizes the worker as it starts, and `pools` lists the pools of Celery
that it may have.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from celeriac.roles.rules import TICKET
from celeriac.worker import logs, pools
from celeriac.worker.alone import AloneStep
from celeriac.worker.app import WorkerApp
from celeriac.worker.governor import GateStep
from celeriac.worker.panel import ElectionsStep, ListenersStep, PanelStep
from celeriac.worker.pulse import PulseStep
from celeriac.worker.step import LifelineStep
from celeriac.worker.tickets import TicketTask


def install(app: WorkerApp) -> None:
    """Register the ticket task and the worker's own steps."""
    pools.offer()
    app.events.dispatcher_cls = "celeriac.worker.consumer:Teller"
    app.steps["worker"].add(LifelineStep)
    logs.exchange(app.settings.log_format)
    app.steps["consumer"].update((AloneStep, ElectionsStep, GateStep, ListenersStep, PanelStep, PulseStep))

    def ticket(role: str, ids: list[int], token: str) -> dict[str, Any]:
        from celeriac.run.arrive import run_ticket
        from celeriac.run.watch import at_work

        with at_work():
            return run_ticket(app, role, ids, token)

    # Celery's own decorator: the ticket is the only task without a role. The configured time limits do not apply to it.
    Celery.task(
        app, name=TICKET, base=TicketTask, ignore_result=True, typing=False, shared=False, time_limit=0,
        soft_time_limit=0, acks_late=False,
    )(ticket)  # fmt: skip
