"""The app, and the one seam to Celery on the enqueuing side: publishing a task is inserting its row."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app.task import Task as CeleryTask
from celery.exceptions import Ignore, Retry
from celery.utils import uuid
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from celeriac import running
from celeriac.database import Database
from celeriac.declare import Declared
from celeriac.decorator import TaskDecorator
from celeriac.dispatcher import Dispatcher
from celeriac.errors import BadArguments, Permanent
from celeriac.intake import ByName, new_task, refuse_canvas, refuse_priority
from celeriac.kicker import Kicker
from celeriac.roles import Role, Signature
from celeriac.settings import Settings
from celeriac.settler import Settler
from celeriac.task import Enqueued, Task
from celeriac.tickets import Publisher
from celeriac.transport import TICKET
from celeriac.verbs import cancel, hasten, prioritise, register
from celeriac.verbs.enqueue import NewTask, Receipt, enqueue, enqueue_ready, is_ready

_receipt: ContextVar[Receipt | None] = ContextVar("celeriac receipt", default=None)

#: Rows a statement of a bulk enqueue.
BULK = 1000

#: Celery would describe the arguments for the message's readers, at a cost: a row has the arguments themselves.
NO_REPR = {"argsrepr": "", "kwargsrepr": ""}

DEFAULTS: Mapping[str, Any] = {
    "task_cls": "celeriac.task:Task",
    "result_backend": "celeriac.backend:RowBackend",
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_acks_late": False,
    "task_create_missing_queues": True,
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
    "broker_transport_options": {
        "ack_emulation": False,
        "priority_steps": [0],
        "socket_timeout": 15,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    "beat_scheduler": "celeriac.beat:Scheduler",
    "worker_cancel_long_running_tasks_on_connection_loss": False,
}


class Roles:
    """The roles this code declares, by name."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self._known: dict[str, Declared] = {}

    def of(self, task: CeleryTask) -> Role:
        return self._declared(task).role

    def signature_of(self, task: CeleryTask) -> Signature:
        return self._declared(task).signature

    def get(self, name: str) -> Declared | None:
        task = self.app.tasks.get(name)
        return None if task is None or name == TICKET or name.startswith("celery.") else self._declared(task)

    def all(self) -> list[Declared]:
        found = [self.get(name) for name in sorted(self.app.tasks)]
        return [declared for declared in found if declared is not None]

    def _declared(self, task: CeleryTask) -> Declared:
        if task.name not in self._known:
            self._known[task.name] = Declared.from_task(task)
        return self._known[task.name]


class Celeriac(TaskDecorator, Celery):
    """Celery whose tasks are rows. `Celery(...)` → `Celeriac(...)` is the whole change to an existing code base.

    `settings` defaults to the environment. `migrations` is a folder of the application's own Alembic versions,
    `schedules` a list of `celeriac.beat.batcher`, `sweeping` and `enqueuing`; `hooks` names those of them that may be
    triggered over HTTP, by path. `routers` ("module:list") are FastAPI routers of the
    application's own, imported when the HTTP API is served.
    """

    def __init__(
        self, main: str | None = None, *, settings: Settings | None = None, migrations: Path | None = None,
        schedules: Sequence[Any] = (), hooks: Mapping[str, str] | None = None, routers: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        self.settings = settings or Settings.from_environ()
        self.migrations = migrations
        self.roles = Roles(self)
        self.schedules = list(schedules)
        self.hooks = dict(hooks or {})
        self.routers = routers
        options.setdefault("task_cls", DEFAULTS["task_cls"])
        options.setdefault("amqp", "celeriac.amqp:RoleQueues")
        super().__init__(main, **options)
        self.add_defaults(
            lambda: (
                dict(DEFAULTS)
                | {"broker_url": self.redis_url, "worker_concurrency": int(self.settings.max_concurrent_tasks)}
            )
        )
        from celeriac.worker import install

        install(self)

    # -- what it stands on -----------------------------------------------------------------------------------------

    @cached_property
    def stack(self) -> Any:
        """The embedded servers for whichever URL is not set."""
        from celeriac import local

        return local.join(postgres=not self.settings.database_url, redis=not self.settings.redis_url)

    @property
    def database_url(self) -> str:
        return self.settings.database_url or self.stack.database_url

    @property
    def redis_url(self) -> str:
        return self.settings.redis_url or self.stack.redis_url

    @cached_property
    def database(self) -> Database:
        return Database(self.database_url, name=f"celeriac {self.main or ''}".strip())

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(self)

    @cached_property
    def kicker(self) -> Kicker:
        return Kicker(lambda role, lone: self._send(role, lone))

    @cached_property
    def Worker(self) -> Any:  # noqa: N802
        """Celery's name for what `celery worker` starts."""
        return self.subclass_with_self("celeriac.worker.controller:Worker")

    @property
    def process_name(self) -> str:
        return f"{self.settings.worker_id or socket.gethostname()}:{os.getpid()}"

    @property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.database, self.publisher, self.process_name)

    @property
    def settler(self) -> Settler:
        return Settler(self.database, self.process_name, self.kick)

    @cached_property
    def by_name(self) -> ByName:
        return ByName(self.database)

    # -- declare ---------------------------------------------------------------------------------------------------

    def _task_from_fun(
        self, fun: Any, name: str | None = None, base: Any = None, bind: bool = False, **options: Any
    ) -> Any:
        if name == TICKET:
            return super()._task_from_fun(fun, name=name, base=base, bind=bind, **options)
        base = base or self.Task
        if not issubclass(base, Task):
            base = type(base.__name__, (base, Task), {"__module__": base.__module__, "abstract": True})
        ours = options.pop("role_options", {})
        known = (name or self.gen_task_name(fun.__name__, fun.__module__)) in self._tasks
        task = super()._task_from_fun(fun, name=name, base=base, bind=bind, role_options=ours, **options)
        if not known:
            _retry_in_sql(task)
        return task

    def register_roles(self) -> None:
        """Writes what this code declares to `roles`; never over a newer `CELERIAC_RELEASE`.

        With it goes the one setting that `celeriac_enqueue` needs and SQL cannot read.
        """
        limit = {"max_argument_bytes": int(self.settings.max_argument_bytes)}
        rows = [declared.row() for declared in self.roles.all()]
        rows = [row | {"definition": row["definition"] | limit} for row in rows]
        with self.database.statement() as connection:
            register.register(connection, rows, int(self.settings.release))

    # -- enqueue ---------------------------------------------------------------------------------------------------

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """By name, from whatever code base. Delays count on the database's clock."""
        options["task_id"] = options.get("task_id") or uuid()
        clock = {k: options.pop(k) for k in ("countdown", "expires") if _is_relative(options.get(k))}
        bound = options.pop("connection", None)
        options |= {"celeriac_clock": clock, "bound": options.pop("session", bound)}
        options |= NO_REPR
        options["result_cls"] = lambda task_id: Enqueued.of(self, task_id, _receipt.get())
        before = _receipt.set(None)
        try:
            return super().send_task(name, args, kwargs, **options)
        finally:
            _receipt.reset(before)

    def producer_or_acquire(self, producer: Any = None) -> AbstractContextManager[Any]:
        """The seam: what publishes tasks gets a producer that inserts rows."""
        return nullcontext(producer or RowProducer(self))

    default_producer = producer_or_acquire

    def enqueue_many(
        self, name: str, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], *, session: Session | None = None,
        connection: Connection | None = None, **options: Any,
    ) -> list[Enqueued]:  # fmt: skip
        """All or none. `options`: `priority`, `account`, … as for a single call, the same for all."""
        role, signature = self.role_named(name)
        limit = self.settings.max_argument_bytes
        tasks = [
            new_task(
                role,
                signature,
                uuid(),
                *_as_args(call),
                limit=limit,
                enqueued_by=self.process_name,
                **options,
            )
            for call in calls
        ]
        receipts = self.insert(tasks, session if session is not None else connection)
        return [Enqueued.of(self, task.task_id, receipt) for task, receipt in zip(tasks, receipts, strict=True)]

    def role_named(self, name: str) -> tuple[Role, Signature]:
        """Declared here or elsewhere. Raises UnknownRole."""
        declared = self.roles.get(name)
        return (declared.role, declared.signature) if declared else self.by_name[name]

    def insert(self, tasks: list[NewTask], bound: Session | Connection | None) -> list[Receipt | None]:
        """Inserts in the caller's transaction if there is one, else in one of its own, and sees to an early start.

        Within a handler (and without a transaction of the caller) the rows wait for the handler's outcome.
        """
        if bound is not None:
            return self._insert_in(bound, tasks)
        run = running.current()
        if run is not None:
            run.follow_ups.extend(tasks)
            return [None] * len(tasks)
        return list(self._insert_alone(tasks))

    def _insert_alone(self, tasks: list[NewTask]) -> list[Receipt]:
        one = len(tasks) == 1
        receipts = self._insert_ready(tasks[0]) if one and is_ready(tasks[0]) else []
        if not receipts:
            with self.database.statement() if one else self.database.transaction() as connection:
                receipts = _in_batches(connection, tasks)
        ready = {t.role: r.id for t, r in zip(tasks, receipts, strict=True) if r.is_new and r.waits_for is None}
        for name, row in ready.items():
            self._kick(name, row if one else None)
        return receipts

    def _insert_ready(self, task: NewTask) -> list[Receipt]:
        """The usual case, on the shortest way to Postgres; nothing if the task's unique key is taken."""
        with self.database.cursor() as cursor:
            receipt = enqueue_ready(cursor, task)
        return [receipt] if receipt else []

    def _insert_in(self, bound: Session | Connection, tasks: list[NewTask]) -> list[Receipt | None]:
        if isinstance(bound, Session):
            roles = {t.role for t in tasks}
            event.listen(bound, "after_commit", lambda _: self.kick(roles), once=True)
            return list(_in_batches(bound.connection(), tasks))
        # A plain connection tells of its commit too early to kick; the workers' own look finds the rows.
        return list(_in_batches(bound, tasks))

    def kick(self, roles: Iterable[str]) -> None:
        """After a commit that left work for these roles: the eager ones look now, not at their next look."""
        for name in roles:
            self._kick(name)

    def _kick(self, name: str, lone: int | None = None) -> None:
        role, _ = self.role_named(name)
        if role.eager and role.enabled():
            self.kicker.kick(role.name, lone)

    def _send(self, name: str, lone: int | None) -> None:
        """In the kicker's thread: the lone task's own ticket if the role is idle, else a kick."""
        role, _ = self.role_named(name)
        ticket = self.dispatcher.claim_lone(role, lone) if lone is not None else None
        if ticket is None:
            self.publisher.kick(role.name, role.queue)
        else:
            self.dispatcher.publish([ticket])

    # -- steer -----------------------------------------------------------------------------------------------------

    def cancel(self, task_id: str, *, by: str = "", why: str = "cancelled") -> str | None:
        """'cancelled' at once, 'asked' if its worker has to stop it first, None if no such task is unfinished."""
        with self.database.transaction() as connection:
            return cancel.cancel(connection, task_id, by=by or self.process_name, why=why)

    def prioritise(
        self, task_id: str, priority: int, *, only_raise: bool = False, by: str = "", session: Session | None = None
    ) -> bool:
        """Gives an unfinished task another priority, in the caller's transaction if there is one; whether it did.

        Raises BadArguments for one outside the role's `priority_range`.
        """
        with nullcontext(session.connection()) if session else self.database.transaction() as connection:
            held = prioritise.hold(connection, task_id)
            if held is None or held.priority == priority or (only_raise and held.priority > priority):
                return False
            refuse_priority(self.role_named(held.role)[0], priority)
            prioritise.prioritise(connection, {held.id: priority}, by=by or self.process_name)
            return True

    def hasten(self, task_id: str, *, by: str = "") -> bool:
        """A task that waits for its time (planned, or between two attempts) is due now; whether it was one."""
        with self.database.transaction() as connection:
            role = hasten.hasten(connection, task_id, by=by or self.process_name)
        self.kick([role] if role else [])
        return role is not None

    def dispatch(self, name: str) -> int:
        """One pass of a role declared here, now. The number of tasks published."""
        return self.dispatcher.dispatch(self.role_named(name)[0])


class RowProducer:
    """Stands where Celery expects a kombu producer; its `publish` inserts."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app

    @property
    def connection(self) -> RowProducer:
        return self

    @contextmanager
    def _reraise_as_library_errors(self) -> Any:
        yield

    def publish(
        self, body: Any, *, headers: Mapping[str, Any] | None = None, bound: Any = None,
        celeriac_clock: Mapping[str, float] | None = None, **properties: Any,
    ) -> None:  # fmt: skip
        if not headers or not isinstance(body, tuple):
            return  # an event about publishing, for which rows have no need
        args, kwargs, embed = body
        name, task_id, clock = headers["task"], headers["id"], celeriac_clock or {}
        refuse_canvas(name, headers, embed)
        run = running.current()
        if run is not None and task_id == run.task.task_id:
            run.retry_asked = _retry_asked(headers, clock, args, kwargs)
            return
        task = self._task(name, task_id, args, kwargs, headers, clock, properties)
        (receipt,) = self.app.insert([task], bound)
        _receipt.set(receipt)

    def _task(
        self, name: str, task_id: str, args: Any, kwargs: Any, headers: Mapping[str, Any],
        clock: Mapping[str, float], properties: Mapping[str, Any],
    ) -> NewTask:  # fmt: skip
        role, signature = self.app.role_named(name)
        queue = properties.get("routing_key")
        if queue and queue not in (role.queue, role.name) and queue != self.app.conf.task_default_queue:
            raise BadArguments(f"{name}: its queue is {role.queue!r}, set where the role is declared; not {queue!r}")
        run = running.current()
        given = {
            k: properties.get(k) for k in ("priority", "account", "lock_key", "unique_key", "timeout", "max_retries")
        }
        return new_task(
            role, signature, task_id, args, kwargs, limit=self.app.settings.max_argument_bytes,
            delay=clock.get("countdown"), at=headers.get("eta"),
            expires_in=clock.get("expires"), expires_at=headers.get("expires"),
            headers={"shadow": headers["shadow"]} if headers.get("shadow") else None,
            parent_id=run.task.id if run else None, enqueued_by=self.app.process_name, **given,
        )  # fmt: skip


def _retry_asked(headers: Mapping[str, Any], clock: Mapping[str, float], args: Any, kwargs: Any) -> running.RetryAsked:
    from celeriac.intake import encoded

    body = encoded(headers["task"], {"args": list(args), "kwargs": dict(kwargs)}, float("inf"))
    return running.RetryAsked(clock.get("countdown"), headers.get("eta"), body["args"], body["kwargs"])


def _is_relative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_args(call: tuple[Any, ...] | Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return ((), call) if isinstance(call, Mapping) else (tuple(call), {})


def _in_batches(connection: Connection, tasks: list[NewTask]) -> list[Receipt]:
    return [r for i in range(0, len(tasks), BULK) for r in enqueue(connection, tasks[i : i + BULK])]


def _retry_in_sql(task: Task[..., Any]) -> None:
    """Celery's autoretry, with the role's backoff: `retry()` raises, and the settle writes `scheduled_for`."""
    role, run = task.role, task.run
    if not role.retry_for:
        return
    given = dict((task.role_options or {}).get("retry_kwargs", {}))
    given.pop("max_retries", None)  # the row has it, or its call's own

    @wraps(run)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except (Ignore, Retry, Permanent, *role.dont_retry_for):
            raise
        except role.retry_for as error:
            wait = {"countdown": role.backoff.seconds(task.request.retries)} if role.backoff else {}
            raise task.retry(exc=error, **(wait | given)) from error

    task.run = attempt


__all__ = ["Celeriac", "Enqueued", "Task"]
