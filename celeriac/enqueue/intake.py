"""Turn a call (`.delay()`, `send_task`, by name) into a `NewTask`: derive its keys and check its arguments, write
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from sqlalchemy.exc import DBAPIError

from celeriac.enqueue.readiness import refuse_unready
from celeriac.enqueue.rows import NewTask
from celeriac.errors import ArgumentsTooLarge, BadArguments, EnqueueRefused, NotStorable, UnknownRole
from celeriac.roles import registry
from celeriac.roles.bounds import ANY_PRIORITY, CALL, outside
from celeriac.roles.keys import Hashed, Key, key_of, lock_of
from celeriac.roles.registry import Registered
from celeriac.roles.role import IN_CODE, Role, ruled
from celeriac.roles.signature import Signature
from celeriac.store.connections import Database
from celeriac.store.encoding import TooLarge, Unfit, encoded, json_text, refuse_larger, size_of
from celeriac.store.ids import fresh_id, fresh_ids, is_instants
from celeriac.store.sensitive import Sensitive

LookUp = Callable[[], Registered | None]

#: A day inside Python's range, since a row's time is read in the session's time zone; `celeriac.enqueue` has it, too.
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)

#: Seconds for which a definition read from `roles` is cached.
BELIEVED = 30.0


class ByName:
    """Roles that other code bases declared, read from the `roles` table."""

    def __init__(self, database: Database, wait: Callable[[LookUp], Registered | None] = lambda act: act()) -> None:
        """`wait` runs a function that waits for Postgres, without blocking the event loop of a caller who has one."""
        self.database = database
        self.wait = wait
        self._known: dict[str, tuple[float, Role, Signature]] = {}
        self._ruled: dict[str, tuple[float, Role, Role]] = {}

    def __getitem__(self, name: str) -> tuple[Role, Signature]:
        """Return the role of this name and its handler's signature. Raises UnknownRole."""
        until, *known = self._known.get(name, (0.0,))
        if time.monotonic() > until:
            role, signature = self._read(name)
            self._known[name] = (time.monotonic() + BELIEVED, role, signature)
            return role, signature
        return known[0], known[1]  # type: ignore[return-value]

    def ruled(self, role: Role, release: int) -> Role:
        """Return a role that this code declares, with the rules registered in SQL: this declaration may have fewer of
        them than that of the worker.

        If SQL cannot be read now, the rules that were read last apply. Raises NotReady, NoAnswer, and Contradiction for
        a declaration that contradicts one of its own release.
        """
        until, declared, known = self._ruled.get(role.name, (0.0, None, role))
        if declared is role and time.monotonic() < until:
            return known
        try:
            declaration = self._look_up(role.name)
        except DBAPIError as error:
            if declared is role:
                return known
            if error.statement is None and not self.database.has_spare():
                return role  # the row cannot be written either, and an error in the call itself is reported first
            refuse_unready(error)
            raise
        known = role
        if declaration is not None:
            definition, _, theirs = declaration
            known = ruled(role, definition, lambda k: _key(role.name, k, definition.get(k)), newer=theirs - release)
        self._ruled[role.name] = (time.monotonic() + BELIEVED, role, known)
        return known

    def _look_up(self, name: str) -> Registered | None:
        def look_up() -> Registered | None:
            with self.database.statement(limited=True) as connection:
                return registry.look_up(connection, name)

        return self.wait(look_up)

    def _read(self, name: str) -> tuple[Role, Signature]:
        try:
            declaration = self._look_up(name)
        except DBAPIError as error:
            refuse_unready(error)
            raise
        if declaration is None or "lane_of" in declaration[0]:
            raise UnknownRole(
                f"no role {name!r}: start a worker of the code that declares it, or check the spelling; "
                "nothing was enqueued"
            )
        if (successor := declaration[0].get("successor")) is not None:
            return self[successor]
        return from_definition(name, *declaration[:2])


def from_definition(
    name: str, definition: Mapping[str, Any], parameters: list[dict[str, Any]]
) -> tuple[Role, Signature]:
    """Return a role that is declared elsewhere, with all that enqueuing needs."""
    plain = ("queue", "priority", "max_retries", "max_rounds", "timeout", "prompt", "window", "enabled_by")
    if definition.get("window_by_measure"):
        definition = {**definition, "window": None}
    options: dict[str, Any] = {k: definition[k] for k in plain} | {"adopt": definition.get("adopt", False)}
    options |= {k: _key(name, k, definition[k]) for k in ("fair_by", "lock_by", "unique_by")}
    priorities = tuple(definition.get("priority_range", ANY_PRIORITY))  # an older release registered none
    options["unique_while"] = definition.get("unique_while", "unfinished")
    role = Role(name=name, priority_range=priorities, queues=tuple(definition.get("queues", ())), **options)
    return role, Signature.from_description(parameters, role=name)


def _key(role: str, option: str, registered: str | None) -> Key | None:
    if registered != IN_CODE:
        return registered

    def refuse(_: Mapping[str, Any]) -> object:
        raise BadArguments(
            f"{role}: {option} is a function, which only the declaring code can call: give {GIVES[option]}; "
            "nothing was enqueued"
        )

    return refuse


def arguments_of(role: str, what: Any, limit: float) -> Any:
    """Return the arguments as the row keeps them. Raises NotStorable or ArgumentsTooLarge."""
    try:
        return encoded(what, limit)
    except Unfit as error:
        raise _refusal(role, error) from None


#: Bytes around both in `{"args": …, "kwargs": …}`; the limit is for the size of this whole document.
_AROUND = len('{"args": , "kwargs": }')


def _refusal(role: str, error: Unfit) -> EnqueueRefused:
    if isinstance(error, TooLarge):
        return ArgumentsTooLarge(
            f"{role}: the arguments take {error} (CELERIAC_MAX_ARGUMENT_BYTES): store the data and pass its key; "
            "nothing was enqueued"
        )
    return NotStorable(f"{role}: the arguments cannot be stored: {error}; nothing was enqueued")


#: Fields that are stored as text.
_TEXTS = frozenset({"task_id", "account", "lock_key", "unique_key"})

#: Fields that are stored as seconds.
_SECONDS = frozenset({"timeout", "delay", "expires_in"})

#: For each of these options of the role, the field of the row that it sets.
GIVES = {"fair_by": "account", "lock_by": "lock_key", "unique_by": "unique_key"}


class _NotYet(LookupError):
    """A key depends on an argument that is not known yet."""


class _Known(dict[str, Any]):
    """A call's arguments; reading the one named `unknown` raises _NotYet."""

    def __init__(self, arguments: Mapping[str, Any], unknown: str) -> None:
        super().__init__(arguments)
        self.unknown = unknown

    def __getitem__(self, name: str) -> Any:
        if name == self.unknown:
            raise _NotYet
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name == self.unknown else super().get(name, default)


def keys(
    role: Role, arguments: Mapping[str, Any], options: Mapping[str, Any], unknown: str | None = None
) -> dict[str, str | None]:
    """Return the keys that the call does not give itself; one made of the argument `unknown` is empty."""
    if unknown is not None:
        arguments = _Known(arguments, unknown)
    derive: dict[str, Callable[[], str | None]] = {
        "account": lambda: key_of(role.fair_by, arguments, role.name) or "",
        "lock_key": lambda: lock_of(role.lock_by, arguments, role.name),
        "unique_key": lambda: key_of(role.unique_by, arguments, role.name),
    }
    return {name: _unless_not_yet(name, key) for name, key in derive.items() if name not in options}


def _refuse_secret_keys(
    role: Role, arguments: Mapping[str, Any], made: Mapping[str, str | None], unknown: str | None
) -> None:
    """Raise BadArguments if one of these keys depends on a sensitive argument: every surface shows keys."""
    hidden = Sensitive(frozenset(role.sensitive or ())).within(arguments)
    if unknown is not None:
        made = {name: key for name, key in made.items() if key}  # the others are empty, whatever the arguments
        arguments, hidden = _Known(arguments, unknown), _Known(hidden, unknown)
    options = {"account": role.fair_by, "lock_key": role.lock_by, "unique_key": role.unique_by}
    plain = {name: None if isinstance(key, Hashed) else key for name, key in options.items() if name in made}
    for name, key in plain.items():
        try:
            same = key is None or key_of(key, hidden, role.name) == key_of(key, arguments, role.name)
        except Exception:
            same = False
        if not same:
            raise BadArguments(
                f"{role.name}: its {name} would be made of what is sensitive, and every surface shows keys: declare it "
                "with Hashed(…); nothing was enqueued"
            )


def _unless_not_yet(name: str, key: Callable[[], str | None]) -> str | None:
    try:
        return key()
    except _NotYet:
        return "" if name == "account" else None


def new_task(
    role: Role, signature: Signature, task_id: str | None, args: Any, kwargs: Any, *, limit: float,
    lenient: bool = False, unknown: str | None = None, may_be_instants: bool = False,
    enqueued_by: str | None = None, **options: Any,
) -> NewTask:  # fmt: skip
    """Return the row for a call; `options` are fields of NewTask that the call overrides. Raises EnqueueRefused.
    `task_id` None: it gets a new one.

    `lenient`: arguments that do not fit the handler are accepted, and the task fails as it starts, so that its workflow
    goes on to the errbacks. `unknown`: the parameter whose argument comes later; no key is made of it.
    `may_be_instants`: the task id may be one of a schedule's.
    """
    if task_id is None:
        said = _said(role, options) | {"task_id": fresh_id(), "is_named": False}
        return NewTask(
            enqueued_by=enqueued_by, **said | _own(role, signature, args, kwargs, said, limit, lenient, unknown)
        )
    if not may_be_instants and is_instants(str(task_id)):
        raise BadArguments(
            f"{role.name}: task_id={task_id!r:.100}: give another: what ends in @ and an instant are ids of schedules; "
            "nothing was enqueued"
        )
    said = _said(role, {"task_id": task_id} | options)
    return NewTask(enqueued_by=enqueued_by, **said | _own(role, signature, args, kwargs, said, limit, lenient, unknown))


def new_tasks(
    role: Role, signature: Signature, calls: Iterable[tuple[Any, Mapping[str, Any]]], *, limit: float, batch: int,
    **options: Any,
) -> Iterator[list[NewTask]]:  # fmt: skip
    """Make rows as `new_task` does, for calls that differ in their arguments alone; each gets an id of its own.

    They are made lazily, `batch` at a time; an error concerns the call that was just reached.
    """
    said = _said(role, {"is_named": False} | options)
    coming = (_own(role, signature, args, kwargs, said, limit) for args, kwargs in calls)
    batches = iter(lambda: list(islice(coming, batch)), [])
    return (
        [NewTask(task_id=i, **said, **own) for i, own in zip(fresh_ids(len(some)), some, strict=True)]
        for some in batches
    )


def _said(role: Role, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row's fields that do not depend on the call's arguments: the call's options, or else the role's."""
    usual = {"priority": role.priority, "max_retries": role.max_retries, "max_rounds": role.max_rounds}
    said = _checked(role.name, {k: v for k, v in options.items() if v is not None}) if options else {}
    if "priority" in said:
        refuse_priority(role, said["priority"])
    if (queue := said.get("queue")) is not None:
        said["queue"] = other_queue(role, queue)
    return usual | said | {"role": role.name}


def other_queue(role: Role, queue: Any) -> str | None:
    """Return the queue, or None if it is the role's first. Raises BadArguments for one that the role does not list."""
    name = getattr(queue, "name", queue)  # kombu's own queues have one
    if name == role.queue:
        return None
    if name in role.queues:
        return str(name)
    has = f"queues are {', '.join(map(repr, role.queues))}" if role.queues else f"queue is {role.queue!r}"
    raise BadArguments(
        f"{role.name}: its {has}, set where the role is declared; not {name!r:.100}: declare the task with "
        f"queue={name!r:.100}, or list it there among `queues`; nothing was enqueued"
    )


def _own(
    role: Role, signature: Signature, args: Any, kwargs: Any, said: Mapping[str, Any], limit: float,
    lenient: bool = False, unknown: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the row's fields that depend on the call's arguments. Raises EnqueueRefused."""
    try:
        arguments = signature.bind(tuple(args), kwargs)
    except BadArguments:
        if not lenient and not signature.lenient:
            raise
        arguments = None
    if arguments is not None and role.by_name and signature.nameable:
        named = dict(zip(signature.names, args, strict=False))
        args, kwargs = (), named | dict(kwargs) if kwargs else named
    own: dict[str, Any] = {}
    try:
        own["args"] = json_text(list(args), within=1) if args else "[]"
        own["kwargs"] = json_text(kwargs if type(kwargs) is dict else dict(kwargs), within=1) if kwargs else "{}"
        if _AROUND + len(own["args"]) + len(own["kwargs"]) > limit:  # letters are escaped: they take fewer bytes
            refuse_larger(_AROUND + size_of(own["args"]) + size_of(own["kwargs"]), limit)
    except Unfit as error:
        raise _refusal(role.name, error) from None
    if arguments is not None and not (role.fair_by is role.lock_by is role.unique_by is None):
        made = keys(role, arguments, said, unknown)
        if role.sensitive:
            _refuse_secret_keys(role, arguments, made, unknown)
        if role.unique_while == "due" and made.get("unique_key") is not None:
            made["unique_key"] = f"{made['unique_key']}{_planned(role.name, said)}"
        own |= _checked(role.name, made)
    return own


def _planned(role: str, said: Mapping[str, Any]) -> str:
    """Return the end of a planned task's unique key, its time; `celeriac.enqueue` writes an instant in the same way."""
    if (delay := said.get("delay", 0)) > 0:
        return f" in {delay:g} s"
    if (at := said.get("at")) is None or (instant := moment(role, "at", at)) <= datetime.now(UTC):
        return ""
    return f"@{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def refuse_priority(role: Role, priority: int) -> None:
    """Raise BadArguments for a priority outside the role's range."""
    if right := outside(role.priority_range, priority):
        raise BadArguments(f"{role.name}: priority={priority}: give {right}; nothing was written")


def _checked(role: str, row: dict[str, Any]) -> dict[str, Any]:
    """Check values here, because Postgres would refuse them late and break the caller's transaction."""
    for option, value in row.items():
        if value is None:
            continue
        if option in _TEXTS:
            row[option] = str(value)
        elif option in ("at", "expires_at"):
            row[option] = moment(role, option, value).isoformat()
        if (rule := CALL.get(option)) is not None and not rule.fits(row[option]):
            raise BadArguments(f"{role}: {option}={value!r:.100}: give {rule.right}; nothing was enqueued")
        if option in _SECONDS:
            row[option] = float(value)  # for a subclass the driver would send the subclass's own notation
    return row


def moment(role: str, option: str, value: Any) -> datetime:
    """Parse an ISO 8601 time; without a zone it is UTC. Raises BadArguments."""
    try:
        instant = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadArguments(f"{role}: {option}={value!r:.100}: give an ISO 8601 time; nothing was enqueued") from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if not EARLIEST <= instant <= LATEST:
        raise BadArguments(f"{role}: {option}={value!r:.100}: give a time in the years 1 to 9999; nothing was enqueued")
    return instant
