"""Outcome: what a run came to, as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celeriac.store.started import Started
from celeriac.store.states import COMPLETED

#: Not a stored status: the task is released, which counts the loss.
LOST = "lost"

#: The kind of what another task has come in the place of.
REPLACED = "replaced"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run came to; never changed, and not frozen only as that costs a microsecond.

    `kind` names the event it leaves, if the row alone does not tell.

    `status` pending means again: `delay` seconds from now (or `at`), with these counts and, if given, new arguments.
    `keep` False leaves no history. Status LOST: the run came to nothing, as if its worker had gone. `is_spread`: the
    worker has told whoever waits in its workflow that it failed. `progress`: instead of what the row has.
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


class Success(Outcome):
    """A success and nothing else, as most are: all have in common what stands here, so that each is quickly made.

    `dataclasses.replace` and copies are not for it: what is more than a success is an `Outcome`.
    """

    __slots__ = ()

    status = COMPLETED
    kind = error = delay = at = args = kwargs = is_spread = progress = None

    def __init__(self, task: Started, result: Any, keep: bool) -> None:
        self.task = task
        self.result = result
        self.keep = keep
        self.retry_count = task.retry_count
        self.tries = task.tries


def is_plain(outcome: Outcome) -> bool:
    """Whether it is a success and nothing else: those have a statement of their own."""
    return outcome.status == COMPLETED and outcome.kind is None and outcome.progress is None
