"""The options a call may give beside its arguments: ours, and Celery's, so that an ordinary module runs unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from kombu.connection import Connection as BrokerConnection
from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from celeriac.enqueue.intake import arguments_of, moment
from celeriac.errors import BadArguments
from celeriac.roles.bounds import CALL, is_distance
from celeriac.roles.options import nearest
from celeriac.store.drivers import Bare, bare, way_into


class OfPsycopg(Protocol):
    """A connection of psycopg2 or psycopg, either of which may not be installed where types are checked."""

    def cursor(self) -> Any: ...


class OfAsyncpg(Protocol):
    """A connection of asyncpg, its own or one from a pool."""

    def is_in_transaction(self) -> bool: ...


if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    #: An object that holds a caller's transaction. Those of an event loop are for `adelay` and the other `a…` calls.
    Transaction: TypeAlias = (
        Session | scoped_session[Any] | Connection | OfPsycopg | OfAsyncpg
        | AsyncSession | async_scoped_session[Any] | AsyncConnection
    )  # fmt: skip


class BulkOptions(TypedDict, total=False):
    """The options that one call for many tasks may give. Durations in seconds."""

    priority: int
    countdown: float
    eta: datetime | str
    expires: float | datetime | str
    session: Transaction
    connection: Transaction
    account: str
    lock_key: str
    unique_key: str
    timeout: float
    max_retries: int
    queue: str


class CallOptions(BulkOptions, total=False):
    """The options that a call for a single task may give."""

    task_id: str


#: Celery's options that a call may give. Those in the first two lines take effect, or are refused where they cannot;
#: the others are about how a message travels, and change nothing for a row.
CELERYS = frozenset({
    "shadow", "time_limit", "soft_time_limit", "link", "link_error", "chain", "chord", "group_id", "group_index",
    "replaced_task_nesting", "exchange", "exchange_type", "routing_key", "retries",
    "add_to_parent", "argsrepr", "compression", "confirm_timeout", "content_encoding", "content_type", "declare",
    "delivery_mode", "event_dispatcher", "expiration", "headers", "ignore_result", "immediate", "kwargsrepr",
    "mandatory", "origin", "parent_id", "producer", "publisher", "reply_to", "result_cls",
    "retry", "retry_policy", "root_id", "route_name", "router", "serializer", "stamped_headers",
    "task_type", "throw",
})  # fmt: skip

_BULK = frozenset(BulkOptions.__annotations__)
_OURS = frozenset(CallOptions.__annotations__)


def options_of_call(role: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a single call's options, with Celery's time limits as its `timeout`.
    Raises BadArguments for an unknown one.

    `route_name` is dropped: it would send `celery.map` to the queue of the task it maps, but a role has its own queue.
    """
    stamps = options.get("stamped_headers") or ()
    _refuse_unknown(role, options.keys() - set(stamps) - CELERYS, _OURS, _OURS | CELERYS)
    retries = options.get("retries")
    if retries is not None and not CALL["retries"].fits(retries):
        raise BadArguments(f"{role}: retries={retries!r:.100}: give {CALL['retries'].right}; nothing was enqueued")
    limit = options.get("soft_time_limit") or options.get("time_limit")
    own = {option: value for option, value in options.items() if option != "route_name"}
    return {**own, "timeout": limit} if limit and own.get("timeout") is None else own


def options_of_bulk(role: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of NewTask that a bulk's options set for all of its rows. Raises BadArguments."""
    _refuse_unknown(role, options.keys(), _BULK, _BULK)
    plain = {k: v for k, v in options.items() if k not in (*TIMES, "session", "connection")}
    return plain | dict(_field(option, time) for option, time in times(role, options).items())


def _field(option: str, time: float | datetime) -> tuple[str, float | str]:
    if isinstance(time, datetime):
        return ("at" if option == "eta" else "expires_at"), time.isoformat()
    return ("delay" if option == "countdown" else "expires_in"), time


def _refuse_unknown(role: str, options: Collection[str], ours: frozenset[str], known: frozenset[str]) -> None:
    for option in sorted(set(options) - ours):
        hint = nearest(option, sorted(known), listed=sorted(ours))
        raise BadArguments(f"{role}: a call has no option {option!r}; {hint}; nothing was enqueued")


# -- what a message says of a call -------------------------------------------------------------------------------------

#: Celery's own headers; any other header of a message is the call's.
_CELERYS_HEADERS = frozenset({
    "lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit", "root_id",
    "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting", "stamped_headers",
    "stamps",
})  # fmt: skip


def said_beside(
    headers: Mapping[str, Any], *, ignores: bool | None, hard: float | None, limit: float
) -> dict[str, Any]:
    """Return the options that the row keeps in its headers: whether the result is ignored, the hard time limit, the
    call's own headers.

    `ignores` and `hard`: the task's own values, None if not known here;
    the row keeps only what differs from them. Raises EnqueueRefused.
    """
    said: dict[str, Any] = {}
    if headers.get("ignore_result") not in (None, ignores):
        said["ignore_result"] = bool(headers["ignore_result"])
    asked = (headers.get("timelimit") or (None,))[0]
    if asked and asked != hard:
        said["time_limit"] = asked
    if own := {name: value for name, value in headers.items() if name not in _CELERYS_HEADERS}:
        said["headers"] = arguments_of(headers["task"], own, limit)
    return said


# -- times -------------------------------------------------------------------------------------------------------------

_SECONDS, _TIME = "seconds, at most 100 years away", "a datetime or an ISO 8601 time"

#: The options for when a call is due and when it is too late, and the values each may have.
TIMES: Mapping[str, str] = {"countdown": _SECONDS, "eta": _TIME, "expires": f"{_SECONDS}, {_TIME}"}


def times(role: str, options: Mapping[str, Any]) -> dict[str, float | datetime]:
    """Return the call's options among TIMES: each is seconds from the database's now, or an instant. Raises
    BadArguments.
    """
    return {option: _time(role, option, options[option]) for option in TIMES if options.get(option) is not None}


def _time(role: str, option: str, value: Any) -> float | datetime:
    if option != "eta" and is_distance(value):
        return float(value)
    if option != "countdown" and isinstance(value, str | date):
        return moment(role, option, value if isinstance(value, str) else value.isoformat())
    raise BadArguments(f"{role}: {option}={value!r:.100}: give {TIMES[option]}; nothing was enqueued")


# -- transactions ------------------------------------------------------------------------------------------------------


def transaction_of(role: str, session: Any, connection: Any) -> Session | Connection | Bare | None:
    """Return the caller's transaction, or None. A broker's connection, which Celery's option of that name may be, has
    none.

    Raises BadArguments for anything else, and for a connection of an event loop, because nothing can be awaited here.
    """
    option, value = ("connection", connection) if session is None else ("session", session)
    if value is None or isinstance(value, Session | Connection):
        return value
    if isinstance(value, scoped_session):
        return transaction_of(role, value(), None)
    if isinstance(value, BrokerConnection):
        return None
    if (own := bare(value)) is not None:
        return own
    if way_into(value) is not None:
        raise BadArguments(
            f"{role}: {option} is an {type(value).__name__}, which belongs to an event loop: await `.adelay(…)`, "
            "`.aapply_async(…)` or `.abulk(…)`; nothing was enqueued"
        )
    raise BadArguments(
        f"{role}: {option}={value!r:.100}: give a session or connection of SQLAlchemy, psycopg2, psycopg or asyncpg; "
        "nothing was enqueued"
    )


# -- many --------------------------------------------------------------------------------------------------------------

_ARGUMENTS = "give a tuple of positional or a mapping of keyword arguments"


def each(role: str, calls: Iterable[Any]) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """Yield each call's positional and keyword arguments; the calls are read completely first. Raises BadArguments."""
    if not isinstance(calls, Iterable):
        raise BadArguments(f"{role}: {calls!r:.100} has no calls in it: {_ARGUMENTS} for each; nothing was enqueued")
    for place, call in enumerate(list(calls)):
        yield _arguments(role, place, call)


def _arguments(role: str, place: int, call: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if type(call) is tuple:  # the usual case; an isinstance check against an abstract class takes a microsecond
        return call, {}
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, Sequence) and not isinstance(call, str | bytes):
        return tuple(call), {}
    raise BadArguments(f"{role}: call {place} is {call!r:.100}: {_ARGUMENTS}; nothing was enqueued")
