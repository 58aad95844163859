"""Workers: which work, which struggle, which are gone? Drain one; free the tasks of a dead one."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.guard import Viewer, WorkerSteerer
from celeriac.dashboard.page import Page
from celeriac.errors import Unknown
from celeriac.insights import Filter
from celeriac.operate import PATIENCE
from celeriac.operate.workers import decommission
from celeriac.operate.workers import resume as let_go_on
from celeriac.repair.worker import LIVES, held, rescue_worker
from celeriac.store.states import RUNNING

router = APIRouter()


#: Maximum number of a worker's tasks on its page.
SHOWN = 100


@router.get("/workers")
def listed(page: Viewer) -> Response:
    page.ask()
    workers, done = page.panel(insights.workers), page.panel(insights.done_by_worker)
    gone = insights.all_gone(workers.value or [])
    return page.show("workers.html", "Workers", workers=workers, gone=gone, kept=_kept(page), done=done)


def _kept(page: Page) -> float:
    """Return how long (seconds) a silent worker is kept."""
    return page.celeriac.settings.event_days * 86_400


@router.get("/workers/{worker:name}")
def shown(worker: str, page: Viewer) -> Response:
    page.ask()
    row = next((row for row in page.read(insights.workers) if row["worker_id"] == worker), None)
    if row is None:
        raise Unknown(f"there is no worker {worker!r}; one that is silent for {words.took(_kept(page))} is forgotten")
    running = page.panel(insights.list_tasks, Filter(worker_id=worker, statuses=[RUNNING]), limit=SHOWN)
    return page.show(
        "worker.html", f"Worker {worker}", worker=row, running=running, is_silent=row["heartbeat_age"] > LIVES,
        hour=page.panel(insights.worker_hour, worker), done=page.panel(insights.done_by_worker),
    )  # fmt: skip


@router.post("/free-tasks-of/{worker:name}")
def free(worker: str, page: WorkerSteerer, form: Sent) -> Response:
    """Release a worker's tasks, which then wait again; refused while it lives. Without `sure`: request confirmation."""
    back = page.to("workers", worker)
    if not form["sure"]:
        n = page.read(held, worker, silent=LIVES)
        return page.show("ask-free.html", f"Free {words.plural(n, 'task')} of {worker}?", worker=worker, n=n, back=back)

    def act() -> str:
        freed = rescue_worker(page.celeriac.database, worker, operator=page.bearer.name, patience=PATIENCE)
        page.celeriac.kick(list(freed))
        each = ", ".join(f"{role}: {n:,}" for role, n in sorted(freed.items()))
        return (
            f"{words.plural(freed.total(), 'task')} of {worker} freed: {each}." if freed else f"{worker} held nothing."
        )

    return acts.done(page, back, act)


@router.post("/drain-worker/{worker:name}")
def drain(worker: str, page: WorkerSteerer, form: Sent) -> Response:
    """Drain a worker: it takes nothing more, finishes what it has, and ends. Without `sure`: request confirmation."""
    if not form["sure"]:
        running = page.panel(insights.list_tasks, Filter(worker_id=worker, statuses=[RUNNING]), limit=SHOWN)
        grace = page.celeriac.settings.drain_grace
        return page.show("ask-drain.html", f"Drain {worker}?", worker=worker, running=running, grace=grace)
    verb = partial(decommission, worker_id=worker, by=page.bearer.name, why=form["why"])
    said = f"{worker} was told: it takes nothing more, finishes what it has, and ends."
    return acts.change(page, page.to("workers", worker), verb, said)


@router.post("/resume-worker/{worker:name}")
def resume(worker: str, page: WorkerSteerer, form: Sent) -> Response:
    """Withdraw the worker's decommission, which has no effect once it has read that."""
    verb = partial(let_go_on, worker_id=worker, by=page.bearer.name, why=form["why"])
    return acts.change(page, page.to("workers", worker), verb, f"{worker} goes on.")
