"""All commands, ordered by purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from celeriac.cli import (
    alerts,
    bulks,
    contention,
    dead_letters,
    doctor,
    enqueuers,
    failures,
    figures,
    init,
    policies,
    recover,
    report,
    schedules,
    simulate,
    stack,
    status,
    steering,
    tasks,
    tokens,
    workers,
    workflows,
)
from celeriac.cli.group import Group


def _group(purpose: str, **commands: click.Command) -> Group:
    by_name = {name.strip("_").replace("_", "-"): command for name, command in commands.items()}
    return Group(commands=by_name, help=purpose)


#: The sections of the help, with each one's commands by their names.
SECTIONS: Final[Mapping[str, Mapping[str, click.Command]]] = {
    "Begin and deploy": {
        "init": init.init,
        "up": stack.up,
        "check": stack.check,
        "migrate": stack.migrate,
        "serve": stack.serve,
    },
    "What is wrong": {
        "status": status.status,
        "doctor": doctor.doctor,
        "why": tasks.why,
        "alerts": _group(
            "List alerts that fire; silence one.",
            list=alerts.list_, silence=alerts.silence, unsilence=alerts.unsilence,
        ),
        "failures": _group(
            "Show failures in groups; mark a group.",
            list=failures.list_, tasks=failures.tasks, mark=failures.mark,
        ),
        "report": report.report,
    },
    "Work": {
        "tasks": _group(
            "Enqueue, list and show tasks; retry, cancel and change them.",
            enqueue=tasks.enqueue, list=tasks.list_, show=tasks.show, log=tasks.log,
            retry=steering.retry, cancel=steering.cancel, prioritise=steering.prioritise, hasten=steering.hasten,
            edit=steering.edit,
        ),
        "bulks": _group(
            "Show the progress of bulks, go on with them, stop one.",
            list=bulks.list_, show=bulks.show, work=bulks.work, stop=bulks.stop,
        ),
        "workflows": _group(
            "Show a workflow, list its parts, cancel it: by its id, or that of any of its parts.",
            list=workflows.list_, show=workflows.show, tasks=workflows.tasks, cancel=workflows.cancel,
        ),
        "schedules": _group(
            "List, add, edit, toggle and delete schedules; run one now.",
            list=schedules.list_, ticks=schedules.ticks, add=schedules.add, edit=schedules.edit,
            toggle=schedules.toggle, delete=schedules.delete, run_now=schedules.run_now,
        ),
        "dead-letters": _group(
            "List, show, replay and discard messages of plain Celery apps that became no task.",
            list=dead_letters.list_, show=dead_letters.show, replay=dead_letters.replay_,
            discard=dead_letters.discard,
        ),
    },
    "Who and where": {
        "roles": _group(
            "Pause, limit and move roles; show why their tasks wait, and what passes gave.",
            pause=policies.pause_role, resume=policies.resume_role, limit=policies.limit, move=steering.move,
            waits=contention.waits, decisions=contention.decisions, capacity=figures.capacity,
            metrics=figures.metrics, reviews=figures.reviews, dispatch=stack.dispatch,
        ),
        "accounts": _group(
            "Show accounts beside their fair shares; pause one, set its weight and cap.",
            list=contention.top, show=contention.account, pause=policies.pause_account,
            resume=policies.resume_account, set=policies.set_account,
        ),
        "locks": _group(
            "Show which tasks hold lock keys and unique keys, and which wait.",
            list=contention.locks, show=contention.lock, unique_keys=contention.unique_keys,
        ),
        "workers": _group(
            "Show workers; let one end, recover what a dead one holds, simulate a fleet.",
            list=workers.list_, hour=workers.hour, decommission=workers.decommission, resume=workers.resume,
            recover=recover.recover, simulate=simulate.simulate,
        ),
    },
    "Guard and repair": {
        "audit": figures.audit,
        "tokens": _group(
            "Create, revoke and list the HTTP API's tokens.",
            create=tokens.create, list=tokens.list_, revoke=tokens.revoke,
        ),
        "logins": _group(
            "Limit what logins of Postgres enqueue with `celeriac.enqueue`.",
            limit=enqueuers.limit, free=enqueuers.free, list=enqueuers.list_,
        ),
        "sweep": stack.sweep,
    },
}  # fmt: skip
