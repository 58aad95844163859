"""`@app.task`, typed: its tasks have the handler's own parameters, and unknown options are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from celery.utils.imports import symbol_by_name

from celeriac.roles.declare import declare
from celeriac.roles.keys import Key
from celeriac.seam.task import Task

P = ParamSpec("P")
R = TypeVar("R")

Errors = type[BaseException] | tuple[type[BaseException], ...] | list[type[BaseException]]
Seconds = float | timedelta


class TaskOptions(TypedDict, total=False):
    """Options of `@app.task`: the role's (see `celeriac.roles.role`) and Celery's. Durations in seconds."""

    role: str
    name: str
    base: type
    queue: str
    # The role's options.
    queues: tuple[str, ...]
    fair_by: Key | None
    lock_by: Key | None
    unique_by: Key | None
    unique_while: Literal["unfinished", "due"]
    priority: int
    priority_range: tuple[int, int]
    batch_size: int
    window: int | None
    every: Seconds
    prompt: bool
    chunk: int | Literal["auto"]
    chunk_target: Seconds
    max_rounds: int
    round_delay: Seconds
    timeout: Seconds | None
    hard_timeout: Seconds | None
    stale_after: Seconds
    wait_objective: Seconds | None
    max_losses: int
    memory_per_task: int | None
    keep: timedelta | Literal["forever"] | None
    enabled_by: str | None
    adopt: bool
    by_name: bool
    sensitive: tuple[str, ...] | None
    aliases: tuple[str, ...]
    # Retries, by Celery's names.
    autoretry_for: Errors
    dont_autoretry_for: Errors
    max_retries: int | None
    retry_kwargs: Mapping[str, Any]
    retry_backoff: Seconds | None
    retry_backoff_max: Seconds
    retry_jitter: float
    default_retry_delay: float
    # Celery's other options.
    time_limit: float | None
    soft_time_limit: float | None
    expires: float | datetime | None
    ignore_result: bool
    store_errors_even_if_ignored: bool
    serializer: str
    compression: str | None
    rate_limit: str | int | None
    track_started: bool
    send_events: bool
    acks_late: bool
    acks_on_failure_or_timeout: bool
    reject_on_worker_lost: bool
    throws: Errors
    trail: bool
    typing: bool
    shared: bool
    lazy: bool
    abstract: bool
    filter: Callable[[Any], Any]
    Strategy: str
    Request: str | type
    resultrepr_maxsize: int
    pydantic: bool
    pydantic_strict: bool
    pydantic_context: Mapping[str, Any]
    pydantic_dump_kwargs: Mapping[str, Any]
    exchange: str
    routing_key: str
    delivery_mode: int | str
    mandatory: bool


class TaskDecorator:
    """The mixin that gives an app its `task`."""

    task_cls: Any

    @overload
    def task(self, handler: Callable[P, R], /, **options: Unpack[TaskOptions]) -> Task[P, R]: ...
    @overload
    def task(
        self, *, bind: Literal[True], **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...
    @overload
    def task(
        self, *, bind: Literal[False] = False, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, *handlers: Any, **options: Any) -> Any:
        """Declare a task: `@app.task` or `@app.task(role=…, …)`. A wrong option raises ConfigurationError at once."""
        celerys: Any = super()
        if not options or not all(map(callable, handlers)):
            return celerys.task(*handlers, **options)

        def decorate(handler: Any) -> Any:
            name = celerys.gen_task_name(getattr(handler, "__name__", "unnamed"), handler.__module__)
            base = symbol_by_name(options.get("base") or self.task_cls)
            return celerys.task(**declare(options, name, handler, base))(handler)

        return decorate(*handlers) if handlers else decorate
