"""The app, and the one seam to Celery on the enqueuing side: publishing a task is inserting its row."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from celery import Celery, _state
from celery.utils.imports import symbol_by_name

from celeriac.dispatch.publish import Publisher
from celeriac.enqueue.bulk import BULK
from celeriac.enqueue.calls import BulkOptions, each, options_of_bulk, options_of_call, times, transaction_of
from celeriac.enqueue.clocks import Clocks
from celeriac.enqueue.intake import ByName, new_task, new_tasks
from celeriac.errors import ConfigurationError, Contradiction
from celeriac.roles import limits, registry
from celeriac.roles.attributes import said_by
from celeriac.roles.declare import Roles, declare
from celeriac.roles.priorities import Order, Priorities
from celeriac.roles.role import Role
from celeriac.roles.rules import TICKET
from celeriac.roles.signature import Signature
from celeriac.run import coroutines, originals
from celeriac.run.process import Process
from celeriac.seam import app_wide, broker, chords, configuration, hooks, priorities, producer, serializers
from celeriac.seam.app import Ambient, Bound
from celeriac.seam.autoretry import retry_in_sql
from celeriac.seam.backend import RowBackend
from celeriac.seam.beside import Beside
from celeriac.seam.decorator import TaskDecorator
from celeriac.seam.enqueuer import Enqueuer, no_ambient
from celeriac.seam.registry import with_roles
from celeriac.seam.steering import Steering
from celeriac.seam.task import Enqueued, Task, with_rows
from celeriac.settings import Settings
from celeriac.store.connections import Database
from celeriac.store.ids import fresh_id
from celeriac.store.role_names import parts_of_lane

if TYPE_CHECKING:
    from celeriac.run.app import Backend
    from celeriac.seam.app import ResultsApp, SeamApp
    from celeriac.worker.app import WorkerApp


logger = logging.getLogger(__name__)

#: Celery's class of tasks under Django, and ours.
DJANGOS = {"celery.contrib.django.task:DjangoTask": "celeriac.contrib.django.task:DjangoTask"}

#: The class from which Celery's app gets its queues and messages.
AMQP = "celeriac.seam.amqp:RoleQueues"


class Celeriac(TaskDecorator, Process, Steering, Celery):
    """Celery whose tasks are rows. `Celery(...)` → `Celeriac(...)` is the whole change to an existing code base.

    `settings` defaults to the environment. `migrations` is a folder of the application's own Alembic versions,
    `schedules` a list of `celeriac.schedules.batcher`, `sweeping` and `enqueuing`; `routers` ("module:list") are
    FastAPI routers of the application's own, imported when the HTTP API is served; `alerts` ("module:list") are
    `celeriac.alerts.Rule`s of its own. `adopt` lets every role that does not say otherwise take the messages of plain
    Celery apps on the same Redis (`docs/adopting.md`).
    `priority_order`: which `priority=` goes first, "redis": the lowest, "rabbitmq" or "celeriac": the highest.
    """

    registry_cls: Any = "celeriac.seam.registry:Registry"

    #: Returns a framework's address of Postgres, used if DATABASE_URL names none.
    address: Callable[[], str] | None = None

    #: Returns the transaction that a framework has open around a call: the row is inserted in it.
    ambient: Callable[[], Ambient | None] = staticmethod(no_ambient)

    def __init__(
        self, main: str | None = None, *, settings: Settings | None = None, migrations: Path | None = None,
        schedules: Sequence[Any] = (), routers: str | None = None, alerts: str | None = None, adopt: bool = False,
        priority_order: Order | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.settings = settings or Settings.from_environ()
        self.migrations = migrations
        self.roles = Roles(lambda: self.tasks, Priorities(priority_order), lambda: self._tasks.former)
        self.schedules = list(schedules)
        self.routers = routers
        self.alerts = alerts
        self.adopt = adopt
        if options.get("task_cls"):
            options["task_cls"] = with_rows(options["task_cls"])
        self.registry_cls: Any = with_roles(self.registry_cls)
        options.setdefault("amqp", AMQP)
        options.setdefault("control", "celeriac.seam.control:Control")
        super().__init__(main, **options)
        declared: Any = self.task_cls
        self.task_cls: Any = with_rows(DJANGOS.get(declared, declared))  # Celery's fix-up for Django sets its own class
        from celeriac.worker import install

        install(self)

    # -- what it stands on -----------------------------------------------------------------------------------------

    @cached_property
    def stack(self) -> Any:
        """The embedded servers for whichever URL is not set. Raises ConfigurationError if they cannot be had."""
        from celeriac import local

        has_redis = self.settings.redis_url or broker.is_named(self.conf)
        try:
            needs_postgres = not self.settings.database_url and self.address is None
            return local.join(postgres=needs_postgres, redis=not has_redis)
        except local.LocalStackError as error:
            raise ConfigurationError(str(error)) from None

    @property
    def stack_in_use(self) -> Any:
        """The embedded servers, if this app has joined them; else None."""
        return self.__dict__.get("stack")

    @property
    def database_url(self) -> str:
        return self.settings.database_url or (self.address or self._embedded_database)()

    def _embedded_database(self) -> str:
        return str(self.stack.database_url)

    @property
    def redis_url(self) -> str:
        """The address of Redis. Raises ConfigurationError for a broker that is no Redis, for two that disagree, and for
        Sentinels without a master's name.
        """
        return broker.url_of(self.conf, self.settings) or self.stack.redis_url

    @cached_property
    def database(self) -> Database:
        name, limit = f"celeriac {self.main or ''}".strip(), self.settings.enqueue_timeout
        sessions = int(self.settings.async_sessions)
        return Database(self.database_url, name=name, on_ready=self.kick, answers_within=limit, sessions=sessions)

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(self, has_redis=self.settings.has_redis)

    @cached_property
    def enqueuer(self) -> Enqueuer:
        return Enqueuer(self)

    @cached_property
    def beside(self) -> Beside:
        """The threads by which callers with an event loop enqueue."""
        return Beside(self.settings.enqueue_timeout)

    @cached_property
    def Worker(self) -> Any:  # noqa: N802
        """The class that `celery worker` starts, under Celery's name for it."""
        return self.subclass_with_self("celeriac.worker.controller:Worker")

    @cached_property
    def Beat(self) -> Any:  # noqa: N802
        """The class that `celery beat` starts, under Celery's name for it."""
        return self.subclass_with_self("celeriac.schedules.beat:Beat")

    @cached_property
    def AsyncResult(self) -> Any:  # noqa: N802
        """The class of a task's result by its id, under Celery's name for it."""
        return self.subclass_with_self("celeriac.seam.result:RowResult", name="AsyncResult", reverse="AsyncResult")

    @property
    def process_name(self) -> str:
        return f"{self.settings.worker_id or socket.gethostname()}:{os.getpid()}"

    @cached_property
    def by_name(self) -> ByName:
        return ByName(self.database, self.beside.wait)

    @cached_property
    def clocks(self) -> Clocks:
        return Clocks(self.database, self.beside.wait)

    # -- configure -------------------------------------------------------------------------------------------------

    def _load_config(self) -> Any:
        usual = configuration.by_environment(self.settings)
        self._pending_defaults.appendleft(lambda: configuration.settle(self._conf, usual))
        return super()._load_config()

    def _connection(self, url: Any, *args: Any, transport_options: Any = None, **options: Any) -> Any:
        transport = configuration.transport_options(self.conf.broker_transport_options)
        named = broker.url_of(self.conf, self.settings)
        url = url or named or self.stack.redis_url
        url, transport = broker.address(url, transport, transport_options, self.settings)
        return super()._connection(url, *args, transport_options=transport, **options)

    @cached_property
    def backend(self) -> RowBackend:
        """The result backend: results are rows, whatever the configuration says."""
        return RowBackend(app=self)

    @cached_property
    def annotations(self) -> list[Any]:
        """The value of `task_annotations`, under Celery's name for it. Raises ConfigurationError."""
        return app_wide.checked_annotations(self.conf)

    def notes(self, *, calls: bool = False, scheduler: Any = None) -> list[str]:
        """A line for each setting that does not do what it says, and what happens instead.

        `calls`: also for calls in the modules that declare tasks, whose source is read, and none for serializers, which
        `celeriac check` calls problems. `scheduler`: a worker's beat's.
        """
        notes = [
            *configuration.unused(self.conf, self.settings),
            *configuration.beside(scheduler),
            *configuration.unused_by_tasks(self.tasks.values()),
            *hooks.dropped(self),
            *priorities.unsaid(self, calls=calls),
            *(() if calls else serializers.others(self)),
        ]
        return list(dict.fromkeys(notes))

    def close(self) -> None:
        """Close the app, its connections to Postgres and Redis, and its threads; nothing keeps it alive after that."""
        super().close()
        if "enqueuer" in self.__dict__:
            self.enqueuer.kicker.close()
        if "publisher" in self.__dict__:
            self.publisher.close()
        if "beside" in self.__dict__:
            self.beside.close()
        if "backend" in self.__dict__:
            self.backend.poller.close()
        if "database" in self.__dict__:
            self.database.dispose()
        if _state.get_current_app() is self:
            _state._set_current_app(None)

    # -- declare ---------------------------------------------------------------------------------------------------

    def _task_from_fun(
        self, fun: Any, name: str | None = None, base: Any = None, bind: bool = False, **options: Any
    ) -> Any:
        if name == TICKET:
            return super()._task_from_fun(fun, name=name, base=base, bind=bind, **options)
        usual = self.gen_task_name(fun.__name__, fun.__module__)
        coroutines.refuse_generators(name or usual, fun)
        made: list[Any] = []
        if options.get("pydantic"):  # Celery makes JSON of the model that a function returns, not a coroutine
            fun = coroutines.called(fun, lambda: made[0])
        if "role_options" not in options:  # declared by Celery's own `@shared_task`, or without any
            declared = {"name": name, "bind": bind} | options
            made_of = symbol_by_name(base or self.task_cls)
            options = declare({k: v for k, v in declared.items() if v is not None}, usual, fun, made_of)
            name, bind = options.pop("name", None), options.pop("bind")
            self._tasks.roles[usual] = name or usual
        known = (name or usual) in self._tasks
        task = super()._task_from_fun(fun, name=name, base=with_rows(base or self.Task), bind=bind, **options)
        made.append(task)
        if not known:
            retry_in_sql(task)
            self._tasks.rename(task.role)
        return task

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a class task; its role's options are in the class, or given here.
        Raises ConfigurationError at once.
        """
        task = task() if isinstance(task, type) else task
        task.__class__ = with_rows(type(task))
        coroutines.refuse_generators(task.name or type(task).__name__, task.run)
        said = declare(said_by(type(task)) | options, task.name or type(task).__name__)
        task.name = said.get("name", task.name)
        task.role_options = said["role_options"]
        task = super().register_task(task)
        retry_in_sql(task)
        self._tasks.rename(task.role)
        return task

    def usual_role_options(self) -> dict[str, Any]:
        """Return the options that the app and its configuration give to roles that do not set them."""
        return app_wide.role_options(self.conf) | {"adopt": self.adopt}

    def register_roles(self, served: Collection[str] | None = None) -> None:
        """Writes what is new or changed in this code's declarations to `roles`; never over a newer
        `CELERIAC_DEPLOYMENT`. With it goes the one setting that `celeriac.enqueue` needs and SQL cannot read.

        `served`: the roles that this process runs; without it all. Of the others it may declare less than who does:
        what is known of them stays. A handler that does nothing takes no key away.

        Raises DBAPIError (LockNotAvailable) where somebody's open transaction keeps one that changes for too long.
        """
        limit = {"max_argument_bytes": int(self.settings.max_argument_bytes)}
        known = self.roles.all()
        rows = [
            row
            | {"definition": row["definition"] | limit}
            | {"is_stub": served is not None and declared.role.name not in served}
            for declared in known
            for row in declared.rows()
        ]
        with self.database.transaction(patience=registry.PATIENCE) as connection:
            registry.register(connection, rows, int(self.settings.deployment))
            limits.register(connection, [declared.role.name for declared in known])

    # -- enqueue ---------------------------------------------------------------------------------------------------

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueue by name, from whatever code base. Delays count on the database's clock."""
        if not isinstance(options.get("task_type"), Task):  # a Task's `apply_async` has checked them
            options = self._own_options(name) | options_of_call(name, options)
        options |= self._queue_of_key(name, options)
        options["celeriac_named"] = options.get("task_id") is not None
        options["celeriac_queued"] = options.get("queue") is not None
        options["task_id"] = options.get("task_id") or fresh_id()
        instants = times(name, options)
        clock = {option: time for option, time in instants.items() if not isinstance(time, datetime)}
        options |= instants | dict.fromkeys(clock)  # Celery would count them from its own now
        bound = transaction_of(name, options.pop("session", None), options.pop("connection", None))
        options |= {"celeriac_clock": clock, "bound": bound}
        own = options.get("result_cls")
        made = {"result_cls": lambda task_id: Enqueued.of(self, task_id, producer.receipt.get(), own)}
        before = producer.receipt.set(None)
        try:
            sent = super().send_task(name, args, kwargs, **producer.NO_REPR | options | made)
        finally:
            producer.receipt.reset(before)
        self.clocks.compare(name, instants.values())
        return sent

    def _queue_of_key(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the queue that a call means by its routing key alone."""
        key, exchange = options.get("routing_key"), options.get("exchange")
        said = getattr(self.tasks.get(name), "routing_key", None)
        if not key or key in (said, self.conf.task_default_routing_key) or options.get("queue") is not None:
            return {}
        return {"queue": producer.queue_of_call(self.conf, key, exchange)}

    def sends_straight(self) -> bool:
        """Return whether nobody has replaced or overrides a function that a call goes through on its way to its row."""
        return (
            originals.sending_is_celerys()
            and type(self).send_task is _SEND_TASK
            and "send_task" not in self.__dict__
            and self.amqp_cls == AMQP
        )

    def enqueue(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], bound: Bound | None = None
    ) -> Enqueued:
        """Enqueue a call by its name and arguments alone, in the caller's transaction if there is one."""
        role, signature = self.role_named(name)
        limit, by = self.settings.max_argument_bytes, self.process_name
        task = new_task(role, signature, None, args, kwargs, limit=limit, enqueued_by=by)
        return Enqueued.of(self, task.task_id, self.enqueuer.insert([task], bound)[0])

    def producer_or_acquire(self, existing: Any = None) -> AbstractContextManager[Any]:
        """Give Celery a producer that inserts rows, all of a canvas as one: this is the seam to Celery."""
        return producer.unit(self, existing)

    default_producer = producer_or_acquire

    def enqueue_many(
        self, name: str, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], **options: Unpack[BulkOptions]
    ) -> list[Enqueued]:
        """Enqueue all of these calls or none. `options`:
        `priority`, `account`, … as for a single call, the same for all.
        """
        fields = options_of_bulk(name, self._own_options(name) | options) | {"enqueued_by": self.process_name}
        bound = transaction_of(name, options.get("session"), options.get("connection"))
        role, signature = self.role_named(name)
        fields["priority"] = self.roles.priorities.of_call(role, fields.get("priority"))
        limit = self.settings.max_argument_bytes
        plain = getattr(self.tasks.get(name), "_dump_pydantic_arguments", None)
        arguments = each(name, calls) if plain is None else starmap(plain, each(name, calls))
        batches = new_tasks(role, signature, arguments, limit=limit, batch=BULK, **fields)
        sent = [Enqueued.of(self, *ended) for ended in self.enqueuer.insert_many(role, batches, bound)]
        self.clocks.compare(name, times(name, options).values())
        return sent

    def _own_options(self, name: str) -> dict[str, Any]:
        """Return the options of a task declared here that Celery's `.delay()` applies and its role does not have."""
        expires = getattr(self.tasks.get(name), "expires", None)
        return {} if expires is None else {"expires": expires}

    def role_named(self, name: str) -> tuple[Role, Signature]:
        """Return a role declared here or elsewhere, by the rules that SQL has. Raises EnqueueRefused, UnknownRole."""
        declared = self.roles.current(name)
        if declared is None:
            return self.by_name[name]
        return self.by_name.ruled(declared.role, int(self.settings.deployment)), declared.signature

    def role_between_releases(self, name: str) -> tuple[Role, Signature]:
        """Return the role as `role_named` does, or as this code declares it while the release that serves it says
        otherwise.

        For schedules and adopted messages, which would otherwise be given up for a passing state.
        """
        try:
            return self.role_named(name)
        except Contradiction:
            return self.role_declared(name)

    def role_declared(self, name: str) -> tuple[Role, Signature]:
        """Return the role as this code declares it, or else as SQL has it; of a lane, the role within its queue.
        Raises UnknownRole.
        """
        name, queue = parts_of_lane(name)
        declared = self.roles.current(name)
        role, signature = (declared.role, declared.signature) if declared else self.by_name[name]
        return role if queue is None else role.within(queue), signature

    def kick(self, roles: Iterable[str]) -> None:
        """Wake up these prompt roles, after a commit that left them work.
        Never raises, because the work is committed.
        """
        try:
            self.enqueuer.kick(roles)
        except Exception as error:
            logger.warning("No wake-up could be sent; the workers' next poll makes up for it: %s", error)


#: The original, to notice a replacement in a subclass or on the class, which is then called.
_SEND_TASK = Celeriac.send_task

chords.adapt_chords(Celeriac)

if TYPE_CHECKING:
    # Celery has no types, so mypy takes its subclasses for anything. These make it check what the folders need.
    class _App(Celeriac, SeamApp, ResultsApp, WorkerApp): ...

    class _Backend(RowBackend, Backend): ...


__all__ = ["Celeriac", "Enqueued", "Task"]
