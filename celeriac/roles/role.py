"""The role: what kind of work a task is, declared once, where its handler is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from celeriac.errors import ConfigurationError, Contradiction
from celeriac.roles.backoff import Backoff
from celeriac.roles.bounds import ANY_PRIORITY, outside, seconds, wrong
from celeriac.roles.keys import Key
from celeriac.roles.rates import burst, per_second, rate
from celeriac.roles.rules import DURATIONS, RULES
from celeriac.settings import SWITCH
from celeriac.store.role_names import lane_of

#: The widest window by measure, however short the tasks are; an older release takes it for the role's window.
WIDEST = 2000


def days(n: float) -> timedelta:
    """Return `n` days, for `keep=days(30)`."""
    return timedelta(days=n)


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """The whole configuration of one kind of work. Durations are seconds unless they are timedeltas.

    `fair_by`, `lock_by`, `unique_by` say how the handler's arguments give the account, the entity lock and the unique
    key (see `Key`; only a function cannot be used from other code bases). A call's priority must lie in
    `priority_range` (lowest, highest). With `unique_while="due"` a task that is planned for later takes the key of that
    time alone, none from a task that may start now. `window` bounds how many tasks are claimed or running at once;
    None: what the live slots run and will begin within about a second, by measured seconds a task
    (celeriac/dispatch/window.py). `every` is how often beat's pass runs; `prompt` dispatches after each enqueue and
    settle, too. `chunk` is the rows per ticket: a number, or "auto" (measured: about `chunk_target` seconds of work a
    ticket). `max_rounds` rounds of `max_retries` + 1 attempts, `round_delay` apart; an error of a class in
    `dont_autoretry_for` ends them all. `keep` is how long a finished row stays: a timedelta (0: gone at once, however
    it ended), `FOREVER`, or None (gone with its success; one that failed or was cancelled stays as long as events). At
    `timeout` a run gets SoftTimeLimitExceeded, at `hard_timeout` its process is stopped; without a `hard_timeout`,
    `CELERIAC_TIME_LIMIT_GRACE_MS` after `timeout`. `stale_after` is the lease: a running task whose worker is silent
    for so long is rescued (at least a second); after `max_losses` of them it fails. `queue` is where its tickets wait
    in Redis; the default is the role's name. `queues` are those that a call may name; a call that names none waits in
    the first. Each has its own window, passes and turns of accounts: it is a *lane*, the name that state tables,
    tickets and passes have in place of the role's. `wait_objective` is how long a task that could start may wait before
    an alert fires; None: `CELERIAC_ALERT_WAIT_MS`. `memory_per_task` (megabytes) caps how many run at once in a worker,
    by the memory it has; None caps nothing. `rate_limit` ("10/m", or a number a second) bounds how many begin, over all
    workers, with a burst of one period. `adopt` accepts messages of plain Celery apps for this role: then everybody who
    may write to Redis can enqueue. `by_name` stores positional arguments under their parameters' names, so that SQL can
    select by them. `sensitive` names parameters, or keys within their values, that no surface shows; () means that none
    is. `aliases` are names that the role had before: calls, links, schedules and messages by one of them become tasks
    of this role, and those that wait under one are run by its handler, from its queue.
    """

    name: str
    queue: str = ""
    queues: tuple[str, ...] = ()
    lane: str = ""
    fair_by: Key | None = None
    lock_by: Key | None = None
    unique_by: Key | None = None
    unique_while: Literal["unfinished", "due"] = "unfinished"
    priority: int = 0
    priority_range: tuple[int, int] = ANY_PRIORITY
    batch_size: int = 1000
    window: int | None = None
    every: float = 30.0
    prompt: bool = True
    chunk: int | Literal["auto"] = "auto"
    chunk_target: float = 0.2
    max_retries: int | None = 3
    max_rounds: int = 1
    round_delay: float = 0.0
    retry_for: tuple[type[BaseException], ...] = ()
    dont_retry_for: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None
    timeout: float | None = 300.0
    hard_timeout: float | None = None
    stale_after: float = 600.0
    wait_objective: float | None = None
    max_losses: int = 3
    memory_per_task: int | None = None
    keep: timedelta | Literal["forever"] | None = timedelta(days=30)
    enabled_by: str | None = None
    rate_limit: str | float | None = None
    adopt: bool = False
    by_name: bool = True
    sensitive: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option in DURATIONS:
            object.__setattr__(self, option, seconds(getattr(self, option)))
        if problem := wrong(RULES, {option: getattr(self, option) for option in RULES}):
            raise ConfigurationError(f"role {self.name!r}: {problem}")
        if fitting := outside(self.priority_range, self.priority):
            raise ConfigurationError(f"role {self.name!r}: priority={self.priority}: give {fitting}")
        limit = rate(self.rate_limit)
        object.__setattr__(self, "rate_limit", limit)
        if limit and not self.prompt and per_second(limit) * self.every > burst(limit):
            raise ConfigurationError(
                f"role {self.name!r}: rate_limit={limit!r} is never reached with prompt=False: a pass each "
                f"{self.every:g} seconds begins {burst(limit):g}; leave prompt as it is, or say batch_size"
            )
        if not self.queue:
            object.__setattr__(self, "queue", self.queues[0] if self.queues else self.name)
        if self.queues and self.queue not in self.queues:
            raise ConfigurationError(
                f"role {self.name!r}: queue={self.queue!r} is none of its queues={self.queues!r}: name it there as well"
            )
        if not self.lane:
            object.__setattr__(self, "lane", self.name)

    def within(self, queue: str | None) -> Role:
        """Return the role as its tasks of this queue have it; None: those that name no queue."""
        return self if queue is None else replace(self, queue=queue, queues=(), lane=lane_of(self.name, queue))

    @property
    def lanes(self) -> list[Role]:
        """The role itself, and the role within each of its queues, also the first: tasks may have named that one when
        it was not the first.
        """
        return [self, *map(self.within, self.queues[1:] + self.queues[:1])]

    def enabled(self, environ: Mapping[str, str] | None = None) -> bool:
        """Return False only if `enabled_by` names a variable that is set to false, 0, no or off.

        Any other value is refused where the role is declared, not here: an enqueue that is written must not fail.
        """
        if self.enabled_by is None:
            return True
        variables = os.environ if environ is None else environ
        return SWITCH.get(variables.get(self.enabled_by, "").strip().lower(), True)

    @property
    def is_asked_for_keys(self) -> bool:
        """True if a key comes from a function of the role's own, which may be slow."""
        return any(map(callable, (self.fair_by, self.lock_by, self.unique_by)))

    @property
    def is_measured(self) -> bool:
        """True if its tickets or its window depend on how long its tasks take."""
        return self.chunk == "auto" or self.window is None

    @property
    def keeps_successes(self) -> bool:
        """True if a success leaves a row; if not, its workers count how its tasks ended."""
        return bool(self.keep)

    @property
    def time_limit(self) -> float | None:
        """Seconds from a run's start to its deadline, if its row has no `timeout` of its own."""
        return min((limit for limit in (self.timeout, self.hard_timeout) if limit is not None), default=None)

    def grace(self, timeout: float | None, otherwise: float, hard: float | None = None) -> float:
        """Return the seconds from the deadline of a row with this `timeout` of its own until its process is stopped.

        `hard`: the row's own hard limit. `otherwise`: returned if there is no hard limit, or the deadline lies beyond
        it. 0: the deadline is the hard limit.
        """
        deadline = self.time_limit if timeout is None else timeout
        hard = self.hard_timeout if hard is None else hard
        if hard is None or deadline is None or deadline > hard:
            return otherwise
        return hard - deadline

    def definition(self) -> dict[str, Any]:
        """Return what other code bases need to enqueue by name, and surfaces to explain the role; stored in `roles`."""
        keep = self.keep.total_seconds() if isinstance(self.keep, timedelta) else self.keep
        plain = ("queue", "priority", "batch_size", "every", "prompt", "chunk", "max_retries", "max_rounds")
        more = ("round_delay", "timeout", "hard_timeout", "stale_after", "max_losses", "memory_per_task", "enabled_by",
            "rate_limit", "adopt", "wait_objective", "unique_while")  # fmt: skip
        bounds = {"priority_range": list(self.priority_range), "window": self.window or WIDEST}
        bounds |= {"window_by_measure": self.window is None}
        keys = {name: _registered(getattr(self, name)) for name in ("fair_by", "lock_by", "unique_by")}
        backoff = asdict(self.backoff) if self.backoff else None
        queues = {"queues": list(self.queues)} if self.queues else {}
        return {name: getattr(self, name) for name in plain + more} | bounds | keys | queues | {
            "keep": keep, "backoff": backoff, "sensitive": list(self.sensitive or ()),
        }  # fmt: skip


#: The options that derive a row's keys from a call's arguments.
KEYS = ("fair_by", "lock_by", "unique_by")


def ruled(role: Role, definition: Mapping[str, Any], taken: Callable[[str], Key | None], *, newer: int) -> Role:
    """Return the role with the keys that are registered in SQL, `taken` by their option, in place of those it does not
    declare.

    `newer`: by how many releases SQL's declaration is newer. A newer one's keys win over those declared here; an older
    one's never do. Raises Contradiction if one of the same release differs.
    """
    changes: dict[str, Any] = {}
    for option in KEYS:
        mine, known = _registered(getattr(role, option)), definition.get(option)
        if mine == known or (known is None and newer <= 0) or (mine is not None and newer < 0):
            continue
        if mine is not None and newer == 0:
            raise Contradiction(
                f"{role.name}: declared here with {option}={mine!r}, and with {option}={known!r} by the code that "
                "serves it: declare the same, or leave it out; nothing was enqueued"
            )
        changes[option] = taken(option)
    if "unique_by" in changes or (role.unique_while == "unfinished" and newer >= 0):
        changes["unique_while"] = definition.get("unique_while", "unfinished")
    return replace(role, **changes) if changes else role


#: Stands in a registered definition for a key that only the declaring code can derive.
IN_CODE = "<in code>"


def _registered(key: Key | None) -> str | None:
    return IN_CODE if callable(key) else key
