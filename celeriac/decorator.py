"""`@app.task`, typed: what it makes knows the handler's own parameters, and refuses options that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from celeriac.declare import declare
from celeriac.roles import Key
from celeriac.task import Task

P = ParamSpec("P")
R = TypeVar("R")

Errors = type[BaseException] | tuple[type[BaseException], ...] | list[type[BaseException]]


class TaskOptions(TypedDict, total=False):
    """What `@app.task` takes: the role's options (see `celeriac.roles.Role`) and Celery's. Durations in seconds."""

    role: str
    name: str
    base: type
    queue: str
    # The role.
    fair_by: Key | None
    lock_by: Key | None
    unique_by: Key | None
    priority: int
    batch_size: int
    window: int
    every: float
    eager: bool
    chunk: int | Literal["auto"]
    chunk_target: float
    max_tries: int
    round_delay: float
    timeout: float | None
    hard_timeout: float | None
    stale_after: float
    max_losses: int
    keep: timedelta | Literal["forever"] | None
    enabled_by: str | None
    by_name: bool
    # Retries, by Celery's names.
    autoretry_for: Errors
    dont_autoretry_for: Errors
    max_retries: int | None
    retry_kwargs: Mapping[str, Any]
    retry_backoff: float | bool
    retry_backoff_max: float
    retry_jitter: float | bool
    default_retry_delay: float
    # The rest of Celery's.
    time_limit: float | None
    soft_time_limit: float | None
    expires: float | datetime | None
    ignore_result: bool
    serializer: str
    rate_limit: str | int | None
    track_started: bool
    acks_late: bool
    throws: Errors
    typing: bool
    shared: bool
    lazy: bool


class TaskDecorator:
    """Gives an app its `task`."""

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, *, bind: Literal[True], **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...
    @overload
    def task(
        self, *, bind: Literal[False] = False, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, *args: Any, **options: Any) -> Any:
        """`@app.task` or `@app.task(role=…, …)`. Raises ConfigurationError at once for an option that is wrong."""
        if options:
            options = declare(options)
        return super().task(*args, **options)  # type: ignore[misc]
