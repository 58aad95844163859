"""A task that a run owns, and the outcome of the run as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from celeriac.store.states import COMPLETED

#: Not a stored status: a task with this outcome is released, and the release counts the loss.
LOST = "lost"

#: The kind of a task that another task has replaced.
REPLACED = "replaced"


class Started(NamedTuple):
    """A task this worker owns until it settles it or loses its ticket. `expired`: it may not begin any more."""

    id: int
    task_id: str
    account: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any] | None
    retry_count: int
    max_retries: int | None
    tries: int
    max_rounds: int
    losses: int
    priority: int
    timeout: float | None
    parent_id: int | None
    lock_key: str | None
    enqueued_by: str | None
    expired: bool | None
    role: str
    token: str


def masked(headers: Mapping[str, Any] | None) -> bool:
    """Return whether the call itself brings the texts by which its arguments are shown (`argsrepr`, `kwargsrepr`)."""
    return headers is not None and ("argsrepr" in headers or "kwargsrepr" in headers)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of a run. Once the run has it, nothing changes it; frozen, it would cost a microsecond more.

    `kind`: the event to record, if the row alone does not show it. Status pending means that the task runs again,
    `delay` seconds from now (or at `at`), with these counts and, if given, new arguments. Status LOST: the run came to
    nothing, as if its worker had gone. `keep` False leaves no history. `is_spread`: the worker has already released the
    tasks of its workflow that wait for it, as failed. `progress` replaces the row's. `queue`: another of the role's
    queues; "" is its first.
    """

    task: Started
    status: str
    kind: str | None = None
    result: Any = None
    error: str | None = None
    delay: float | None = None
    at: str | None = None
    retry_count: int = 0
    tries: int = 0
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    keep: bool = True
    is_spread: bool | None = None
    progress: Any = None
    queue: str | None = None

    @property
    def is_plain(self) -> bool:
        """True for a success and nothing more: those have a statement of their own."""
        return self.status == COMPLETED and self.kind is None and self.progress is None

    @property
    def has_other_arguments(self) -> bool:
        """Return whether the task runs again with others than it had."""
        return (self.args, self.kwargs) not in ((None, None), (self.task.args, self.task.kwargs))


class Success(Outcome):
    """A plain success, as most outcomes are. Common values are class attributes, so that each is made quickly. Do not
    use `dataclasses.replace` or copies on it: a success with any other value is an `Outcome`.
    """

    __slots__ = ()

    is_plain = True
    status = COMPLETED
    kind = error = delay = at = args = kwargs = is_spread = progress = queue = None

    def __init__(self, task: Started, result: Any, keep: bool) -> None:
        self.task = task
        self.result = result
        self.keep = keep
        self.retry_count = task.retry_count
        self.tries = task.tries
