"""Celery's worker, configured by environment variables: which roles it serves, and how many tasks at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import click
from celery.apps.worker import Worker as StockWorker
from celery.utils.imports import load_extension_class_names, symbol_by_name

from celeriac.errors import ConfigurationError
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.roles.rules import TICKET
from celeriac.settings import OFF
from celeriac.store.role_names import is_built_in
from celeriac.worker import pools
from celeriac.worker.app import WorkerApp
from celeriac.worker.limits import tasks_that_fit
from celeriac.worker.memory import collect_less_often, memory
from celeriac.worker.stops import Stops

logger = logging.getLogger(__name__)


class CannotStart(ConfigurationError, click.ClickException):
    """The worker cannot start: Celery's command line prints the message and exits with status 1."""


PURGE = (
    "--purge: queues in Redis hold tickets, the tasks are in Postgres, so it would remove none: cancel tasks with "
    "`celeriac tasks cancel …` or `celeriac tasks cancel --later …`, and start the worker without it"
)


class Worker(StockWorker):
    """Celery's worker. `WORKER_ROLE` sets the queues if `-Q` does not; `memory_per_task` caps the concurrency."""

    app: WorkerApp
    concurrency: int
    quiet: bool
    pool_cls: type
    purge: bool
    scheduler: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        """Make the worker. Raises CannotStart."""
        try:
            super().__init__(*args, **options)
        except ConfigurationError as error:
            raise CannotStart(str(error)) from error

    def setup_instance(self, **options: Any) -> None:
        _ = self.app.redis_url, self.app.database
        if getattr(self, "purge", False):
            raise ConfigurationError(PURGE)
        self._refuse_to_adopt()
        if self.app.settings.remote_control == OFF:
            self.app.conf.worker_enable_remote_control = False
        self.quiet = self.quiet or self.app.settings.log_format == "json"  # Celery's banner is not JSON
        if options.get("beat"):  # checked here: beat gets its own process, whose end nobody would notice
            aliases = dict(load_extension_class_names("celery.beat_schedulers"))
            check = getattr(symbol_by_name(self.scheduler, aliases=aliases), "check", None)
            if check is not None:
                check(self.app)
        super().setup_instance(**options)

    def _refuse_to_adopt(self) -> None:
        """Raise ConfigurationError if a role adopts messages of plain Celery apps and no Redis is configured."""
        adopting = [declared.role.name for declared in self.app.roles.all() if declared.role.adopt]
        if adopting and not self.app.settings.has_redis:
            raise ConfigurationError(f"REDIS_URL=none: {', '.join(adopting)} adopt from Redis: declare adopt=False")

    def setup_queues(self, include: Any, exclude: Any = None) -> None:
        super().setup_queues(include or queues_of(self.app.roles, self.app.settings.worker_role), exclude)

    def tasklist(self, *args: Any, **more: Any) -> str:
        """Return the lines of the tasks it can run, without the engine's own ticket task."""
        lines = super().tasklist(*args, **more).splitlines()
        return "\n".join(line for line in lines if not line.endswith(f" {TICKET}"))

    def install_platform_tweaks(self, worker: Any) -> None:
        super().install_platform_tweaks(worker)
        Stops(worker).listen()

    def on_init_blueprint(self) -> None:
        super().on_init_blueprint()
        kind = pools.kind_of(self.pool_cls)
        pools.refuse_hard_limits(kind, self.app.roles.of_queues(self.app.amqp.queues.consume_from))
        pools.refuse_autoscale(kind, self.options.get("autoscale"))
        self._leave_limits_to_rows()
        self._keep_to_memory()
        pools.prepare(kind)
        self.pool_cls = pools.instead_of(self.pool_cls)
        collect_less_often()
        if kind in pools.KINDS:
            self.app.database.widen(pools.connections(kind, self.concurrency))

    def _leave_limits_to_rows(self) -> None:
        """Unset Celery's own time limits: its pool would apply a task's limit to a ticket, which carries several tasks.

        Raises ConfigurationError for a limit given on the command line.
        """
        for limit in ("time_limit", "soft_time_limit"):
            if getattr(self, limit) not in (None, self.app.conf[f"task_{limit}"]):
                raise ConfigurationError(
                    f"--{limit.replace('_', '-')}: a ticket carries several tasks; give {limit} where a task is "
                    f"declared, or task_{limit} in the app's configuration"
                )
            setattr(self, limit, None)

    def _keep_to_memory(self) -> None:
        demanding = most_demanding(self.app.roles, set(self.app.amqp.queues.consume_from))
        if demanding is None or demanding.memory_per_task is None:
            return
        limit = memory(self.app.settings.memory_limit_mb).limit_mb
        fit = tasks_that_fit(limit, demanding.memory_per_task)
        if self.concurrency > fit:
            logger.warning(
                "%d tasks at once, not %d: %s takes %g MB a task, and the limit is %.0f MB",
                fit, self.concurrency, demanding.name, demanding.memory_per_task, limit,
            )  # fmt: skip
            self.concurrency = fit
        if self.options.get("autoscale"):
            self.options["autoscale"] = tuple(min(fit, int(n)) for n in self.options["autoscale"])


def queues_of(roles: Roles, wanted: str | None) -> list[str]:
    """Return the queues of the roles in `wanted`, the setting `WORKER_ROLE`. Raises ConfigurationError."""
    names = [name.strip() for name in (wanted or "").split(",") if name.strip()]
    return [queue for name in names for queue in _queues_of(roles, name, wanted)]


def _queues_of(roles: Roles, name: str, wanted: str | None) -> Iterable[str]:
    declared = roles.get(name)
    if declared is None:
        known = ", ".join(d.role.name for d in roles.all() if not is_built_in(d.role.name))
        raise ConfigurationError(f"WORKER_ROLE={wanted!r}: no role {name!r}; there are: {known}")
    return declared.role.queues or (declared.role.queue,)


def most_demanding(declared: Roles, queues: set[str]) -> Role | None:
    """Return the role in these queues with the most memory per task; None if none declares that."""
    roles = [role for role in declared.of_queues(queues) if role.memory_per_task]
    return max(roles, key=lambda role: role.memory_per_task or 0, default=None)
