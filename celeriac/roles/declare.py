"""Turn the options of `@app.task(…)` into a Role, checked at import."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from celery.app.task import Task as CeleryTask

from celeriac.errors import ConfigurationError
from celeriac.roles.attributes import checks_arguments, said_by
from celeriac.roles.backoff import Backoff
from celeriac.roles.bounds import is_duration, seconds
from celeriac.roles.options import (
    CELERY_OPTIONS,
    OPTIONS,
    RETRY_OPTIONS,
    refuse_misspelt,
    refuse_sensitive_keys,
    refuse_unknown_parameters,
)
from celeriac.roles.priorities import Priorities
from celeriac.roles.role import Role
from celeriac.roles.routes import queue_of_key, refuse_broadcast, routed
from celeriac.roles.rules import TICKET
from celeriac.roles.signature import Signature
from celeriac.settings import is_on
from celeriac.store import sensitive
from celeriac.store.role_names import parts_of_lane
from celeriac.store.sensitive import Sensitive


@dataclass(frozen=True)
class Declared:
    """A role with its handler's signature. `is_empty`: the handler does nothing, like a stub's. `successor`: the role
    of which this one's name is an alias.
    """

    role: Role
    signature: Signature
    is_empty: bool = False
    successor: str | None = None

    @classmethod
    def from_task(cls, task: CeleryTask) -> Declared:
        said = said_by(type(task)) | dict(getattr(task, "role_options", None) or {})
        role = role_of(task.name, said, task)
        handler = getattr(task, "_orig_run", task.run)
        signature = Signature.of(handler, role=role.name)
        signature.lenient = not checks_arguments(task)
        refuse_unknown_parameters(role, signature)
        return cls(role, signature, _does_nothing(handler))

    @cached_property
    def lanes(self) -> list[Role]:
        """The role, and the role within each of its queues."""
        return self.role.lanes

    @cached_property
    def sensitive(self) -> Sensitive | None:
        """The parts of its calls that no surface shows."""
        return sensitive.of(self.role.sensitive, self.signature.kinds)

    def row(self) -> dict[str, Any]:
        """Return it as a row of `roles`."""
        definition = self.role.definition() | ({"successor": self.successor} if self.successor else {})
        return {
            "role": self.role.lane, "definition": definition, "parameters": self.signature.describe(),
            "is_empty": self.is_empty,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """Return it as rows of `roles`: its own, and one for each further queue, with the name of the role whose lane
        it is.
        """
        lanes = [replace(self, role=self.role.within(queue)).row() for queue in self.role.queues[1:]]
        return [self.row()] + [row | {"definition": row["definition"] | {"lane_of": self.role.name}} for row in lanes]

    def under(self, alias: str) -> Declared:
        """Return this role under a former name: tasks that wait under that name are run by the same handler from the
        same queue.
        """
        return replace(self, role=replace(self.role, name=alias, lane=alias, aliases=()), successor=self.role.name)


def _nothing() -> None: ...


def _documented_nothing() -> None:
    """Nothing."""


_NOTHING = {f.__code__.co_code for f in (_nothing, _documented_nothing)}


def _does_nothing(handler: Callable[..., Any]) -> bool:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return code is not None and code.co_code in _NOTHING and code.co_consts[-1] is None


class Roles:
    """The roles this code declares, by name. `tasks()` returns the tasks of Celery's app, which are all declared by
    then; `former()` returns the role of each alias.
    """

    def __init__(
        self,
        tasks: Callable[[], Mapping[str, CeleryTask]],
        priorities: Priorities,
        former: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._tasks = tasks
        self.priorities = priorities
        self._former = former
        self._known: dict[str, Declared] = {}
        self._lanes: dict[str, Declared] = {}

    def of(self, task: CeleryTask) -> Role:
        return self._declared(task).role

    def get(self, name: str) -> Declared | None:
        if name in _NO_ROLES:
            return None
        known = self._known.get(name)  # looked up here first, since Celery's own registry takes a lock
        if known is None and (task := self._tasks().get(name)) is not None:
            known = self._declared(task)
        if known is None and (successor := self._former().get(name)) is not None:
            known = self._known[name] = self._declared(self._tasks()[successor]).under(name)
        return known

    def of_lane(self, lane: str) -> Declared | None:
        """Return the role as `get` does, by the name that a ticket has: that of a lane."""
        if (known := self._known.get(lane)) is not None:
            return known
        name, queue = parts_of_lane(lane)
        declared = self.get(name)
        if declared is None or queue is None:
            return declared
        if lane not in self._lanes and queue in declared.role.queues:
            self._lanes[lane] = replace(declared, role=declared.role.within(queue))
        return self._lanes.get(lane)

    def current(self, name: str) -> Declared | None:
        """Return the role as `get` does, under its current name."""
        declared = self._known.get(name) or self.get(name)
        return declared if declared is None or declared.successor is None else self.get(declared.successor)

    def all(self) -> list[Declared]:
        """Return all roles, also under their former names."""
        known = [self.get(name) for name in sorted({*self._tasks(), *self._former()})]
        return [declared for declared in known if declared is not None]

    def own(self) -> list[Declared]:
        """Return the roles under their current names."""
        return [declared for declared in self.all() if declared.successor is None]

    def of_queues(self, queues: Collection[str]) -> list[Role]:
        """Return the roles whose tickets wait in these queues; for a role with several queues, its lanes there."""
        return [lane for declared in self.all() for lane in declared.lanes if lane.queue in queues]

    def _declared(self, task: CeleryTask) -> Declared:
        if task.name not in self._known:
            self._known[task.name] = Declared.from_task(task)
        return self._known[task.name]


#: The equivalent of Celery's defaults, for a task that is declared without `role=`.
CELERYS = {"keep": timedelta(days=1), "timeout": None}

#: Celery's own tasks that rows do not need. The others (for maps, for `replace`) run where Celery would run them.
_NO_ROLES = (
    TICKET, "celery.backend_cleanup", "celery.chord_unlock", "celery.group", "celery.chain", "celery.chord",
    "celery.chunks",
)  # fmt: skip


def declare(
    options: Mapping[str, Any], default_name: str = "unnamed", handler: Callable[..., Any] | None = None,
    base: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Split the decorator's options into Celery's and ours (`role_options`). Raises ConfigurationError. `base`: the
    task's class; its own attributes are not taken for misspelt options.
    """
    ours = {k: v for k, v in options.items() if k in OPTIONS | RETRY_OPTIONS}
    celerys = {k: v for k, v in options.items() if k not in ours and k != "role"}
    name = _name(options.get("role"), options.get("name"))
    role_name = default_name if name is None else name
    for option in celerys.keys() - CELERY_OPTIONS:
        if not hasattr(base, option):
            refuse_misspelt(option, role_name)
    ours.setdefault("by_name", options.get("role") is not None)
    role = role_of(role_name, ours | _limits(celerys.get("soft_time_limit"), celerys.get("time_limit"), ours), None)
    if handler is not None:
        refuse_unknown_parameters(role, Signature.of(handler, role=role_name, bound=bool(celerys.get("bind"))))
    name_option = {} if name is None else {"name": name}
    # Priority is not passed on: Celery has deprecated it as an attribute of tasks, and warns for each task.
    passed = {k: v for k, v in ours.items() if k == "max_retries"} | {"_has_role": options.get("role") is not None}
    return celerys | name_option | passed | {"role_options": ours}


def _name(role: Any, name: Any) -> Any:
    if None not in (role, name) and role != name:
        raise ConfigurationError(f"role {role!r}: name={name!r}: the role's name is the task's; give one of them")
    chosen = name if role is None else role
    if chosen == TICKET:
        raise ConfigurationError(f"role {chosen!r}: that name belongs to the tickets; give another")
    return chosen


def role_of(name: str, options: Mapping[str, Any], task: CeleryTask | None) -> Role:
    """Return the role. `task` supplies what Celery has as attributes:
    time limits, its queue (or route), its retry count.
    """
    plain = {k: v for k, v in options.items() if k in OPTIONS}
    if task is not None:
        _refuse_strategy(name, task)
        has_role = getattr(task, "_has_role", False)
        app_wide = ({} if has_role else CELERYS) | task.app.usual_role_options()
        plain.setdefault("rate_limit", task.rate_limit)
        plain.setdefault("max_retries", task.max_retries)
        plain |= _limits(task.soft_time_limit, task.time_limit, plain)
        usual = "" if has_role else task.app.conf.task_default_queue
        queues = plain.get("queues") or ()
        route = routed(task, by_call=bool(queues))
        plain.setdefault("priority", getattr(task, "priority", None) or route.priority or 0)
        plain = _in_rows_order(app_wide | plain, task.app.roles.priorities)
        key, exchange = getattr(task, "routing_key", None), getattr(task, "exchange", None)
        own = getattr(task, "queue", None) or queue_of_key(task.app.conf, key, exchange)
        plain["queue"] = own or route.queue or ("" if queues else usual)
        if plain["queue"] in queues:
            plain["queues"] = (plain["queue"], *(queue for queue in queues if queue != plain["queue"]))
        if task.app.conf.task_queues:
            refuse_broadcast(name, task.app.conf, (plain["queue"], *queues))
        if task.app.conf.task_routes:
            _refuse_usual(name, task.app.conf.task_default_queue, plain.get("queues") or ())
    role = Role(
        name=name,
        retry_for=_errors(name, "autoretry_for", options.get("autoretry_for", ())),
        dont_retry_for=_errors(name, "dont_autoretry_for", options.get("dont_autoretry_for", ())),
        backoff=_backoff(name, options),
        **(plain | _retry_limit(name, options)),
    )
    is_on(role.enabled_by)  # raises for a value that is neither true nor false
    refuse_sensitive_keys(role)
    return role


def _refuse_usual(role: str, usual: str, queues: tuple[str, ...]) -> None:
    """Raise ConfigurationError if the app's default queue is one of the role's, but not the first: routers also answer
    with it for calls they leave alone.
    """
    if usual in queues[1:]:
        raise ConfigurationError(
            f"role {role!r}: queues={queues!r}: what task_routes leaves alone is sent to {usual!r} "
            "(task_default_queue): name it first, or give task_default_queue another name"
        )


def _refuse_strategy(role: str, task: CeleryTask) -> None:
    """Raise ConfigurationError for a `Strategy` that consumes messages itself, as celery-batches does."""
    if task.Strategy != CeleryTask.Strategy and getattr(task.Strategy, "__func__", None) is not CeleryTask.Strategy:
        raise ConfigurationError(
            f"role {role!r}: Strategy of {type(task).__mro__[1].__name__}: a worker gets no message of a task that it "
            "could collect or hold back: keep the items in a table, and enqueue a task with unique_by=ONE and a "
            "countdown that takes all there are"
        )


def _in_rows_order(options: dict[str, Any], priorities: Priorities) -> dict[str, Any]:
    turned = {"priority": priorities.turned(options["priority"])}
    if "priority_range" in options:
        turned["priority_range"] = priorities.turned_range(options["priority_range"])
    return options | turned


def _limits(soft: Any, hard: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return Celery's time limits, if there are any, for our own options that are not given. In Celery 0 means none."""
    if soft is None and hard is None:
        return {}
    limits = {"timeout": soft or None, "hard_timeout": hard or None}
    return {k: v for k, v in limits.items() if k not in options}


def _retry_limit(role: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limit in `retry_kwargs`, Celery's other way to set `max_retries`, for `autoretry_for` alone; it wins
    if both are set.
    """
    retry_kwargs = options.get("retry_kwargs")
    if retry_kwargs is not None and not isinstance(retry_kwargs, Mapping):
        raise ConfigurationError(f"role {role!r}: retry_kwargs={retry_kwargs!r}: give a dict of options of `retry()`")
    return {k: v for k, v in (retry_kwargs or {}).items() if k == "max_retries" and options.get("autoretry_for")}


def _errors(role: str, option: str, value: Any) -> tuple[type[BaseException], ...]:
    errors = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(e, type) and issubclass(e, BaseException) for e in errors):
        raise ConfigurationError(f"role {role!r}: {option}={value!r}: give a tuple of exception classes")
    return errors


def _backoff(role: str, options: Mapping[str, Any]) -> Backoff | None:
    base, maximum = seconds(options.get("retry_backoff", False)), seconds(options.get("retry_backoff_max", 600))
    jitter = options.get("retry_jitter", True)
    for option, value in (("retry_backoff", 1 if base is True else base or 0), ("retry_backoff_max", maximum)):
        if not is_duration(value):
            raise ConfigurationError(
                f"role {role!r}: {option}={value!r}: give seconds or a timedelta, at most 100 years"
            )
    if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise ConfigurationError(f"role {role!r}: retry_jitter={jitter!r}: give True, False or a fraction up to 1")
    return Backoff(base=float(base), maximum=float(maximum), jitter=jitter) if base else None
