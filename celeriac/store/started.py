"""A started task, as it travels from the ticket through the run to its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from celeriac.store.redact import HIDDEN


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
    """Return whether the call sets itself how its arguments are shown (Celery's `argsrepr`, `kwargsrepr`)."""
    return headers is not None and ("argsrepr" in headers or "kwargsrepr" in headers)


def without_masks(headers: Any) -> Any:
    """Return headers with what the call itself shows of its arguments hidden, for a role that has secrets: a stock
    sender describes tuples and the like with all their values, and a sender's masks may be of more than the secrets.
    """
    return {**headers, "argsrepr": HIDDEN, "kwargsrepr": HIDDEN} if masked(headers) else headers
