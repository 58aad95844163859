"""Running tasks in the test's process: passes, tickets, start and settle, by the worker's own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from celery import signals
from sqlalchemy import text

from celeriac.dispatch import claim, parking, promote
from celeriac.dispatch.claim import Held, fresh_token
from celeriac.enqueue.outbox import Admission
from celeriac.errors import CeleriacError
from celeriac.insights import why
from celeriac.insights.tasks import tasks
from celeriac.operate import hasten
from celeriac.repair.rescue import rescue_by_role
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.run import reporting
from celeriac.run.arrive import run_ticket
from celeriac.run.run import Run
from celeriac.seam.task import Call, Task
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.store.encoding import revived
from celeriac.store.role_names import lane_of, parts_of_lane
from celeriac.store.states import ALL, COMPLETED, FAILED, PENDING, WAITS_FOR_TIME
from celeriac.testing.here import Here, here, the_app, turn
from celeriac.testing.within import within

if TYPE_CHECKING:
    from celeriac.app import Celeriac

P = ParamSpec("P")

#: Maximum number of tasks of resumed accounts that one round makes ready.
RESUMED = 500

#: The reasons of `why` that keep `run` from running a task.
HELD_BACK = ("later", "role_paused", "account_paused", "account_cap", "members", "lock", "rate", "running", "finished")

WITH_WORK = text("""
SELECT role FROM celeriac.ready UNION SELECT role FROM celeriac.later WHERE due_at <= clock_timestamp() ORDER BY role
""")

# A task that was started, or lost, waits between two attempts; any other is planned.
PLANNED = text("""
SELECT t.task_id FROM celeriac.later l JOIN celeriac.tasks t ON t.id = l.id
WHERE l.due_at > clock_timestamp() AND (CAST(:role AS text) IS NULL OR t.role = :role)
    AND CASE WHEN t.started_at IS NOT NULL OR t.losses > 0 THEN :retries ELSE :scheduled END
ORDER BY l.due_at, l.id
""")


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run.

    `status`: the task's status after it: completed, failed or cancelled; pending if it is retried. `error`: the row's
    text. `exception`: the exception of a task that failed for good. `events`: as `celeriac tasks show` prints them.
    """

    status: str
    result: Any
    error: str | None
    exception: BaseException | None
    events: list[dict[str, Any]]
    id: int
    task_id: str


class Witness:
    """A record of the runs that are settled within its block, and of the exceptions of failed ones."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.raised: dict[str, BaseException] = {}

    def __enter__(self) -> Witness:
        reporting.witnesses.append(self.runs.append)
        signals.task_failure.connect(self._hear, weak=False)
        return self

    def __exit__(self, *_: object) -> None:
        reporting.witnesses.pop()
        signals.task_failure.disconnect(self._hear)

    def _hear(self, task_id: str, exception: BaseException, **_: Any) -> None:
        self.raised[task_id] = exception

    def counts(self) -> dict[str, int]:
        return dict(Counter(map(_in_a_word, self.runs)))

    def raise_failed(self, since: int) -> None:
        """Raise the exception of the first failed run after the first `since` runs."""
        for run in self.runs[since:]:
            if run.became == FAILED:
                said = run.outcome.error if run.outcome else ""
                raise self.raised.get(run.task.task_id) or CeleriacError(f"{run.role.name}: {said}")


def run(task: Task[P, Any] | Call[P], /, *args: P.args, **kwargs: P.kwargs) -> Ran:
    """Enqueue one task and run it once, now, before others of its role and without its delay.

    Tasks that it enqueues wait. Raises the errors of `.delay()`, and CeleriacError if the task cannot run: another task
    has its lock, its account is paused, or its role's rate is used up.
    """
    app = (task.task if isinstance(task, Call) else task).app
    with turn, here(app, closed=True), Witness() as witness:
        called = task.delay(*args, **kwargs)
        if called.row_id is None:
            raise CeleriacError(f"{called.id} has no row yet: this is a handler, or an open transaction has its key")
        with within(app) as is_inside:
            if is_inside:
                _look(app.database, app.process_name)  # no commit triggered the hand-over of its lock key
            return _run(app, called.row_id, witness)


def _run(app: Celeriac, row: int, witness: Witness) -> Ran:
    token, role = _claim(app, row)
    run_ticket(app, role.lane, [row], token)
    settled = [run for run in witness.runs if run.task.id == row]
    if not settled:
        raise CeleriacError(f"task {row} of {role.name} cannot run: {_why(app.database, row)}")
    return _ran(app.database, settled[-1], witness)


def drain(
    role: str | Task[..., Any] | None = None, *, with_scheduled: bool = False, with_retries: bool = False,
    raising: bool = True, limit: int = 1000, app: Celeriac | None = None,
) -> dict[str, int]:  # fmt: skip
    """Run due tasks, of this role or of all, until none is left; return the number of runs by result.

    `with_scheduled`: also run planned tasks, as if their time had come. `with_retries`: also tasks between attempts.
    `raising`: stop at the first task that fails for good, and raise its handler's exception. Raises CeleriacError if
    tasks are still due after `limit` runs.
    """
    app, too_many = the_app(app), ""
    name = None if role is None else app.role_named(getattr(role, "name", role))[0].name
    by, planned = app.process_name, (with_scheduled, with_retries)
    with turn, within(app), here(app) as publisher, Witness() as witness:
        while _round(app, publisher, name, witness, raising) or _hasten(app.database, by, name, *planned):
            if too_many:
                raise CeleriacError(too_many)
            if len(witness.runs) > limit:
                too_many = f"drain: {len(witness.runs)} runs, and more is due ({_most(witness.runs)}): {ADVICE}"
        return witness.counts()


ADVICE = "do tasks enqueue themselves? If not, give a higher limit="


def _round(app: Celeriac, publisher: Here, only: str | None, witness: Witness, raising: bool) -> bool:
    """Run one round: repairs, a pass of each role with work, and its tickets; return whether anything ran."""
    before = len(witness.runs)
    _look(app.database, app.process_name)
    for arrive in [*_passes(app.database, app.roles, only), *_tickets(publisher, only)]:
        since = len(witness.runs)
        run_ticket(app, *arrive)
        if raising:
            witness.raise_failed(since)
    return len(witness.runs) > before


def _look(database: Database, by: str) -> None:
    """Do the work of a worker's threads: check the outbox, silent workers, keys, barriers and resumed accounts."""
    Admission(database).look()
    rescue_by_role(database, by)
    with database.transaction() as connection:
        look.look(connection)
        parking.unpark(connection, RESUMED)


def _passes(database: Database, roles: Roles, only: str | None) -> Iterable[tuple[str, list[int], str]]:
    with database.statement() as connection:
        names = connection.execute(WITH_WORK).scalars().all()
    return [(name, [], "") for name in names if roles.of_lane(name) and only in (None, parts_of_lane(name)[0])]


def _tickets(publisher: Here, only: str | None) -> Iterable[tuple[str, list[int], str]]:
    """Yield the tickets that exist at the first iteration, which is after the passes."""
    kept = [ticket for ticket in publisher.tickets if only not in (None, parts_of_lane(ticket.role)[0])]
    while publisher.tickets:
        ticket = publisher.tickets.popleft()
        if ticket not in kept:
            yield ticket.role, list(ticket.ids), ticket.token
    publisher.tickets.extend(kept)


def _hasten(database: Database, by: str, role: str | None, scheduled: bool, retries: bool) -> bool:
    """Make planned tasks due; return whether there were any."""
    wanted = {"role": role, "scheduled": scheduled, "retries": retries}
    with database.transaction() as connection:
        planned = connection.execute(PLANNED, wanted).scalars().all()
        return bool({hasten.hasten(connection, task_id, by=by) for task_id in planned} - {None})


def _claim(app: Celeriac, row: int) -> tuple[str, Role]:
    """Claim this task alone in a ticket. Raises CeleriacError with the reason if that is impossible."""
    with app.database.transaction() as connection:
        task = tasks.get(connection, row)
        role = app.role_declared(lane_of(task["role"], task["queue"]))[0]
        if task["waits_for"] == WAITS_FOR_TIME:
            hasten.hasten(connection, task["task_id"], by=app.process_name)
            promote.promote_due(connection, role.lane, role.batch_size)
    token = fresh_token()
    with app.database.transaction() as connection:
        taken = claim.resume(connection, [row], room=1, share=1, holding={})
        claim.hold(connection, role.lane, [Held(token, taken)] if taken else [])
    if not taken:
        raise CeleriacError(f"task {row} of {role.name} cannot run: {_why(app.database, row)}")
    return token, role


def _why(database: Database, row: int) -> str:
    """Return why the task cannot run, apart from missing workers or a missing Redis."""
    with database.reading() as connection:
        answer = why(connection, row)
    return answer.headline if answer.reason in HELD_BACK else "its account has a cap, or somebody has it locked"


def _ran(database: Database, run: Run, witness: Witness) -> Ran:
    with database.reading() as connection:
        row = tasks.find(connection, run.task.id)
        events = tasks.events(connection, run.task.id)
    became = run.became if run.became in ALL else row and row["status"]
    outcome, raised = run.outcome, witness.raised.get(run.task.task_id)
    return Ran(
        status=str(became), result=revived(outcome.result) if outcome and became == COMPLETED else None,
        error=outcome.error if outcome else None, exception=raised,
        events=events, id=run.task.id, task_id=run.task.task_id,
    )  # fmt: skip


def _in_a_word(run: Run) -> str:
    if run.became == PENDING:
        return "snoozed" if run.outcome and run.outcome.kind == "snooze" else "retried"
    return run.became or "refused"


def _most(runs: Sequence[Run]) -> str:
    return ", ".join(f"{name} {n} times" for name, n in Counter(run.role.name for run in runs).most_common(3))
