"""Read plain Celery's messages strictly: bounded work, nothing trusted.

Celery's message protocols 1 and 2, as JSON. Anything else in a queue (pickle, YAML, a part of a workflow) becomes a
dead letter as it came; its body is not opened.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery.utils.saferepr import saferepr

from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.intake import new_task
from celeriac.enqueue.rows import NewTask
from celeriac.errors import EnqueueRefused, NotAdopted, NotReady
from celeriac.roles.bounds import LONGEST_NAME
from celeriac.roles.priorities import Priorities
from celeriac.roles.role import Role
from celeriac.roles.rules import TICKET
from celeriac.roles.signature import Signature
from celeriac.store import sensitive
from celeriac.store.encoding import Unfit, encoded, revived
from celeriac.store.redact import Secrets

#: The largest message that is read, and the largest size of a compressed body once it is unpacked (bytes).
MOST_BYTES = 1_000_000

#: The largest arguments that a dead letter shows beside the message itself (bytes).
SHOWN_BYTES = 65_536

#: The length (characters) to which Celery's senders cut their description of the arguments.
_SHOWN = 1024

#: Returns the role of this name and its handler's parameters; raises UnknownRole.
RoleNamed = Callable[[str], tuple[Role, Signature]]

#: kombu's name for zlib's format.
_ZLIB = "application/x-gzip"

_HIGHEST = 9

#: The fields in which a message names tasks that follow it or wait for it.
_WORKFLOW = ("callbacks", "errbacks", "chain", "chord")


@dataclass(frozen=True, slots=True)
class Call:
    """The call that a message stands for. `priority`: from 0 to 9, in its sender's order. `queue`: where it was
    sent.
    """

    name: str
    task_id: str
    args: list[Any]
    kwargs: dict[str, Any]
    eta: str | None
    expires: str | None
    timeout: float | None
    retries: int
    priority: int
    queue: str | None
    sender: str | None
    headers: dict[str, Any]


# -- what becomes of a message -----------------------------------------------------------------------------------------


def judge(
    payload: bytes, role_named: RoleNamed, limit: float, priorities: Priorities, queue: str | None = None
) -> NewTask | Letter | None:
    """Return the task that this message becomes, or a dead letter with the reason why it becomes none.

    `queue`: where the message was; the task gets the same if its role lists it. None: the message is a ticket, which
    has no row of its own and starts nothing here.
    """
    secrets = Secrets(())
    try:
        call = call_of(payload)
        role, signature = role_named(call.name)
        if (secret := sensitive.of(role.sensitive, signature.kinds)) is not None:
            secrets = secret.values(call.args, call.kwargs)
        if not role.adopt:
            raise NotAdopted(f"{call.name}: this role takes no messages of plain Celery (adopt=True is not declared)")
        call = call if queue is None else replace(call, queue=queue)
        return task_of(call, role, signature, limit, priorities.of_message(role, call.priority))
    except NotReady:
        raise  # the role is unknown because Postgres did not answer
    except EnqueueRefused as refused:
        # A refusal may quote arguments, which lists and the log must not show.
        letter = letter_of(payload, secrets.without(str(refused)))
        return None if letter.name == TICKET else letter


def task_of(call: Call, role: Role, signature: Signature, limit: float, priority: int) -> NewTask:
    """Return the row for this call. Raises EnqueueRefused."""
    try:
        return new_task(
            role, signature, call.task_id, call.args, call.kwargs, limit=limit, at=call.eta, expires_at=call.expires,
            timeout=call.timeout, retry_count=call.retries, priority=priority,
            queue=call.queue if call.queue in role.queues else None,
            headers=call.headers or None, enqueued_by=call.sender,
        )  # fmt: skip
    except EnqueueRefused:
        raise
    except Exception as error:  # a key's function is the role's own code, and the arguments are anybody's
        raise NotAdopted(f"{call.name}: {error!r}"[:500]) from error


def letter_of(payload: bytes, reason: str) -> Letter:
    """Return a dead letter with as much of the call as could be read."""
    fields, args, kwargs = _fields_and_arguments(payload)
    name, task_id, sender = (_printable(fields.get(field)) for field in ("task", "id", "origin"))
    return Letter(payload, reason, name, task_id, sender, _shown(args), _shown(kwargs))


# -- a message ---------------------------------------------------------------------------------------------------------


def call_of(payload: bytes) -> Call:
    """Return the call that the message stands for. Raises NotAdopted."""
    envelope = _envelope(payload)
    headers, properties = _object(envelope, "headers"), _object(envelope, "properties")
    content = (envelope.get("content-type"), str(envelope.get("content-encoding")).lower())
    if content != ("application/json", "utf-8"):
        raise NotAdopted(f"its content is {content[0]!r:.100} in {content[1]!r:.100}: send JSON in utf-8")
    body = _loads(_unpacked(envelope, headers, properties))
    fields, args, kwargs, follows = _by_protocol(headers, body)
    if workflow := [part for part in _WORKFLOW if follows.get(part)]:
        raise NotAdopted(f"it is part of a workflow ({workflow[0]}), and would be half run")
    args, kwargs = _revived(args), _revived(kwargs)
    return Call(
        name=_text(fields, "task"), task_id=_text(fields, "id"), args=args, kwargs=kwargs,
        eta=_time(fields, "eta"), expires=_time(fields, "expires"), timeout=_timeout(fields.get("timelimit")),
        retries=_count(fields.get("retries")), priority=_priority(properties.get("priority")),
        queue=_queue(properties.get("delivery_info")),
        sender=_printable(fields.get("origin")), headers=_kept(fields) | _masks(fields, args, kwargs),
    )  # fmt: skip


def _by_protocol(
    headers: Mapping[str, Any], body: Any
) -> tuple[Mapping[str, Any], list[Any], dict[str, Any], Mapping[str, Any]]:
    """Return the task's fields, its arguments and the tasks that follow it, from where protocol 2 or 1 has them."""
    match body:
        case [list(args), dict(kwargs), dict(embed)] if "task" in headers:
            return headers, args, kwargs, embed
        case {"task": _, "args": list(args), "kwargs": dict(kwargs)} if "task" not in headers:
            return body, args, kwargs, body
    raise NotAdopted("its body is none of Celery's message protocols 1 and 2")


def _envelope(payload: bytes) -> dict[str, Any]:
    if len(payload) > MOST_BYTES:
        raise NotAdopted(f"{len(payload):,} bytes are more than the {MOST_BYTES:,} that are read")
    envelope = _loads(payload)
    if not isinstance(envelope, dict):
        raise NotAdopted("it is no object")
    return envelope


def _unpacked(envelope: Mapping[str, Any], headers: Mapping[str, Any], properties: Mapping[str, Any]) -> bytes:
    body, encoding = envelope.get("body"), properties.get("body_encoding")
    if not isinstance(body, str):
        raise NotAdopted("its body is no text")
    try:
        packed = base64.b64decode(body, validate=True) if encoding == "base64" else body.encode()
    except ValueError as error:
        raise NotAdopted(f"its body is not {encoding or 'utf-8'}: {error}"[:200]) from None
    match headers.get("compression"):
        case None:
            return packed
        case compression if compression == _ZLIB:
            return _inflated(packed)
        case other:
            raise NotAdopted(f"its body is compressed by {other!r:.100}: send gzip, or nothing compressed")


def _inflated(packed: bytes) -> bytes:
    inflate = zlib.decompressobj()
    try:
        unpacked = inflate.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise NotAdopted(f"its body is not compressed as it says: {error}") from None
    if not inflate.eof:
        raise NotAdopted(f"its body is cut off, or unpacks to more than the {MOST_BYTES:,} bytes that are read")
    return unpacked


def _loads(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise NotAdopted(f"it is no JSON: {error}"[:200]) from None


def _revived(value: Any) -> Any:
    """Return the value with dates and the like in place of kombu's notation for them."""
    try:
        return revived(value)
    except Exception as error:  # it may quote an argument, and whose role keeps which secret is not known yet
        raise NotAdopted(f"its arguments are not in kombu's notation: {type(error).__name__}") from None


# -- its fields --------------------------------------------------------------------------------------------------------


def _object(envelope: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    value = envelope.get(part)
    if not isinstance(value, dict):
        raise NotAdopted(f"its {part} are no object")
    return value


def _text(fields: Mapping[str, Any], field: str) -> str:
    value = fields.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise NotAdopted(f"its {field} is {value!r:.100}: give 1 to {LONGEST_NAME} printable characters")
    return value


def _time(fields: Mapping[str, Any], field: str) -> str | None:
    """Return the field's text; `new_task` parses it, as it does for every call."""
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise NotAdopted(f"its {field} is {value!r:.100}: give an ISO 8601 time")
    return value


def _timeout(timelimit: Any) -> Any:
    """Return the soft limit, else the hard one, from Celery's pair (hard, soft), where 0 means none."""
    match timelimit:
        case None:
            return None
        case [hard, soft]:
            return soft or hard or None
    raise NotAdopted(f"its timelimit is {timelimit!r:.100}: give a pair of seconds")


def _count(retries: Any) -> int:
    if retries is None:
        return 0
    if type(retries) is not int or not 0 <= retries < 2**31:
        raise NotAdopted(f"its retries are {retries!r:.100}: give a whole number")
    return retries


def _priority(priority: Any) -> int:
    if priority is None:
        return 0
    if type(priority) is not int:
        raise NotAdopted(f"its priority is {priority!r:.100}: give 0 to {_HIGHEST}")
    return max(0, min(priority, _HIGHEST))


def _queue(delivery_info: Any) -> str | None:
    return _printable(delivery_info.get("routing_key")) if isinstance(delivery_info, dict) else None


def _kept(fields: Mapping[str, Any]) -> dict[str, Any]:
    kept = {field: _printable(fields.get(field)) for field in ("shadow", "root_id", "parent_id")}
    return {field: value for field, value in kept.items() if value}


def _masks(fields: Mapping[str, Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, str]:
    """Return the sender's descriptions of the arguments, unless they are just what Celery writes by default."""
    usual = {saferepr(arguments, _SHOWN) for arguments in (args, tuple(args), kwargs)}
    said = {name: fields[name] for name in ("argsrepr", "kwargsrepr") if isinstance(fields.get(name), str)}
    return {} if usual.issuperset(said.values()) else {name: _clean(text[:_SHOWN]) for name, text in said.items()}


# -- for people --------------------------------------------------------------------------------------------------------


def _fields_and_arguments(payload: bytes) -> tuple[Mapping[str, Any], Any, Any]:
    """Return fields and arguments of any payload; if its body cannot be read, the sender's descriptions of the
    arguments.
    """
    try:
        envelope = _envelope(payload)
        headers = _object(envelope, "headers")
    except NotAdopted:
        return {}, None, None
    said = (headers, headers.get("argsrepr"), headers.get("kwargsrepr"))
    if envelope.get("content-type") != "application/json":
        return said
    try:
        body = _loads(_unpacked(envelope, headers, _object(envelope, "properties")))
        fields, args, kwargs, _ = _by_protocol(headers, body)
        masks = _masks(fields, _revived(args), _revived(kwargs))
    except NotAdopted:
        return said
    if masks:
        return fields, masks.get("argsrepr"), masks.get("kwargsrepr")
    return fields, args, kwargs


def _printable(value: Any) -> str | None:
    """Return as much of a text as Postgres and a terminal accept; None if there is none."""
    if not isinstance(value, str):
        return None
    return _clean(value[:LONGEST_NAME]) or None


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)


def _shown(value: Any) -> Any:
    try:
        return encoded(value, SHOWN_BYTES)
    except Unfit:
        return None
