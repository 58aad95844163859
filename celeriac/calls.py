"""What a call may say beside its arguments: our options, and Celery's, so that an ordinary module runs unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, TypedDict

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from celeriac.errors import BadArguments
from celeriac.options import nearest


class BulkOptions(TypedDict, total=False):
    """What many calls may say as one. Durations in seconds."""

    priority: int
    countdown: float
    eta: datetime
    expires: float | datetime
    session: Session
    connection: Connection
    account: str
    lock_key: str
    unique_key: str
    timeout: float
    max_retries: int


class CallOptions(BulkOptions, total=False):
    """What a single call may say."""

    task_id: str


#: Celery's that a single call may say as well. The first line counts, or is refused where it cannot; the rest concerns
#: how a message travels, or what Celery tells itself of one: a row has no need of it.
CELERYS = frozenset({
    "shadow", "time_limit", "soft_time_limit", "link", "link_error", "chain", "chord", "group_id", "group_index",
    "queue", "exchange", "exchange_type", "routing_key",
    "add_to_parent", "argsrepr", "compression", "confirm_timeout", "content_encoding", "content_type", "declare",
    "delivery_mode", "event_dispatcher", "expiration", "headers", "ignore_result", "immediate", "kwargsrepr",
    "mandatory", "origin", "parent_id", "producer", "publisher", "replaced_task_nesting", "reply_to", "result_cls",
    "retries", "retry", "retry_policy", "root_id", "route_name", "router", "serializer", "stamped_headers", "task_type",
})  # fmt: skip

_BULK = frozenset(BulkOptions.__annotations__)
_OURS = frozenset(CallOptions.__annotations__)


def options_of_call(role: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A single call's options, with Celery's time limits as its `timeout`. Raises BadArguments for an unknown one."""
    stamps = options.get("stamped_headers") or ()
    _refuse_unknown(role, options.keys() - set(stamps) - CELERYS, _OURS, _OURS | CELERYS)
    limit = options.get("soft_time_limit") or options.get("time_limit")
    return {**options, "timeout": limit} if limit and options.get("timeout") is None else dict(options)


def refuse_unknown_of_bulk(role: str, options: Mapping[str, Any]) -> None:
    """Raises BadArguments for what is no option of a bulk."""
    _refuse_unknown(role, options.keys(), _BULK, _BULK)


def _refuse_unknown(role: str, given: Collection[str], ours: frozenset[str], known: frozenset[str]) -> None:
    for option in sorted(set(given) - ours):
        hint = nearest(option, sorted(known), told=sorted(ours))
        raise BadArguments(f"{role}: a call has no option {option!r}; {hint}; nothing was enqueued")
