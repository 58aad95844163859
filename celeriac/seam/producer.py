"""The seam on the enqueuing side: a producer that inserts a row where Celery would publish a message."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from weakref import WeakSet

from celery.canvas import maybe_signature
from kombu.entity import Exchange
from kombu.messaging import Producer
from sqlalchemy.exc import DBAPIError

from celeriac.canvas import rests
from celeriac.canvas.parts import RESULTS, Part, is_uuid, part_of
from celeriac.enqueue.calls import said_beside
from celeriac.enqueue.intake import arguments_of, moment, new_task, other_queue
from celeriac.enqueue.rows import NewTask, Receipt, Rest
from celeriac.errors import BadArguments, BadValue, ConfigurationError, EnqueueRefused, NotReady
from celeriac.roles.bounds import is_distance
from celeriac.roles.role import Role
from celeriac.roles.routes import queue_of_key
from celeriac.run import coroutines, lease, originals
from celeriac.run import run as running
from celeriac.run.outcomes import RetryAsked
from celeriac.seam.app import SeamApp
from celeriac.seam.stream import Stream
from celeriac.seam.transport import Transport
from celeriac.store.connections import Database
from celeriac.store.ids import fresh_id

#: The receipt of the call being published, as Celery has no way to return it.
receipt: ContextVar[Receipt | None] = ContextVar("celeriac receipt", default=None)

#: The producer of the canvas being published.
_unit: ContextVar[RowProducer | None] = ContextVar("celeriac unit", default=None)

#: Keeps Celery from building texts of the arguments, which cost time: a row has the arguments themselves.
NO_REPR = {"argsrepr": "", "kwargsrepr": ""}


#: Options for how a task is shown: another name, and texts in place of private arguments.
SHOWN = ("shadow", *NO_REPR)


def headers_of(app: SeamApp, call: Callable[[RowProducer], Any]) -> Any:
    """Return the headers that a call's row would have, after all listeners on Celery's way; inserts no row."""
    producer = RowProducer(app)
    call(producer)
    return producer.tasks[0].headers if producer.tasks else None


#: Celery's task that schedulers enqueue each night, for backends whose results do not expire by themselves.
CLEANUP = "celery.backend_cleanup"

#: Headers of Celery's canvases, which choose their tasks' ids. An id that a caller chose stands for one task for ever.
_CANVAS = ("group", "chain", "chord", "awaits")


#: Databases known to allow storing links of long chains apart from their rows (see `may_store_rests`).
_store_rests: WeakSet[Database] = WeakSet()


@contextmanager
def unit(app: SeamApp, enclosing: Any) -> Iterator[RowProducer]:
    """Publish all rows of a canvas in one transaction, or none."""
    outer = enclosing if isinstance(enclosing, RowProducer) else _unit.get()
    if outer is not None and outer.app is app:
        yield outer
        return
    producer = RowProducer(app)
    token = _unit.set(producer)
    try:
        yield producer
    except BaseException:
        if producer.stream is not None:
            producer.stream.break_off()
        raise
    finally:
        _unit.reset(token)
    producer.insert()


def members_come(barrier: str) -> None:
    """Record that the header of the chord being published is a generator."""
    if (publishing := _unit.get()) is not None:
        publishing.members_come(barrier)


def keep_shape(barrier: str, shape: list[Any]) -> None:
    """Record which members of the chord are groups."""
    if (publishing := _unit.get()) is not None:
        publishing.shapes[barrier] = shape


def count_places(barrier: str, places: int) -> None:
    """Record how many results the task at the barrier gets."""
    if (publishing := _unit.get()) is not None:
        publishing.places[barrier] = places


class RowProducer(Producer):
    """A producer in place of kombu's. The tasks published through it are inserted when its unit ends.

    A chord's body is published with the first member, which carries its signature; it waits at the members' barrier.
    """

    def __init__(self, app: SeamApp) -> None:
        self.app = app
        self.tasks: list[NewTask] = []
        self.bound: Any = None
        self.awaits: str | None = None
        self.bodies: set[str] = set()
        self.label: str | None = None
        self.places: dict[str, int] = {}
        self.shapes: dict[str, Any] = {}
        self.members: set[tuple[str, str]] = set()
        self.merged: Counter[str] = Counter()
        self.stream: Stream | None = None
        self.began = time.monotonic()

    @property
    def connection(self) -> RowProducer:
        return self

    @contextmanager
    def _reraise_as_library_errors(self) -> Iterator[None]:
        yield

    #: Attributes that kombu's producer reads of itself.
    exchange, auto_declare, transport, _channel = Exchange(""), False, Transport, None

    def publish(self, body: Any, **properties: Any) -> None:  # type: ignore[override]
        """Accept a task. A `publish` of kombu's that instrumentation replaced is called, and leads to `_publish`.

        A message that is not a task is a user's own and goes to the broker.
        """
        if not _is_task(body, properties.get("headers")):
            exchange = properties.get("exchange")
            # Celery's event of a publication is dropped: rows are reported by their own events.
            if getattr(exchange, "name", exchange) != self.app.conf.event_exchange:
                self._send(body, properties)
            return
        if originals.publish_is_celerys():
            self._accept(body, **properties)
            return
        self._properties = properties
        Producer.publish(self, body, **{**properties, "retry": False, "expiration": None})

    def _send(self, body: Any, properties: Mapping[str, Any]) -> None:
        with self.app.producer_pool.acquire(block=True) as producer:
            producer.publish(body, **properties)

    def _prepare(self, body: Any, *_: Any) -> tuple[Any, None, None]:
        """Return the body as it is: a row needs no encoding of its own."""
        return body, None, None

    def _publish(self, body: Any, _priority: Any, _type: Any, _encoding: Any, headers: Any, *_: Any) -> None:
        self._accept(body, **{**self._properties, "headers": headers})

    def _accept(
        self, body: Any, *, headers: Mapping[str, Any], bound: Any = None,
        celeriac_clock: Mapping[str, float] | None = None, celeriac_named: bool = True, **properties: Any,
    ) -> None:  # fmt: skip
        if headers["task"] == CLEANUP:
            return  # a sweep prunes expired results
        args, kwargs, embedded = body
        clock = celeriac_clock or {}
        run = running.current()
        if run is not None and headers["id"] == run.task.task_id and not run.replaced:
            asked = _retry_asked(headers, clock, args, kwargs, self._limit_of(run, args, kwargs))
            run.retry_asked = replace(asked, queue=self._queue_of_retry(run, properties))
            if run.is_retried_apart:
                self.tasks.append(self._apart(run, body, headers, clock, properties))
            return
        self.bound = self.bound if bound is None else bound
        self.label = self.label or _label(run) or headers["id"]
        part = part_of(headers, embedded)
        if part is not None and part.body is not None:
            self._publish_body(part)
        properties["is_named"] = celeriac_named
        try:
            self.tasks.append(self._task(args, kwargs, headers, clock, properties, part))
        except EnqueueRefused as refused:
            if run is None or not run.is_linking or isinstance(refused, NotReady):
                raise
            self.app.backend.refuse(run, refused, headers, args, kwargs, embedded, part)
        if part is not None and part.barrier is not None:
            self._count(part.barrier, headers["id"])
        if self.stream is not None and self.stream.flush(self.tasks):
            self.tasks = []

    def _apart(
        self, run: running.Run, body: Any, headers: Mapping[str, Any], clock: Mapping[str, float],
        properties: Mapping[str, Any],
    ) -> NewTask:  # fmt: skip
        """Return a retry as a task of its own. The run itself ends with its handler's return value.

        The new task belongs to the run's workflow, with its errbacks and expiry. It also gets the run's unique key,
        unless its arguments give one: the run's row is gone when this one is inserted.
        """
        args, kwargs, embedded = body
        self.label = self.label or _label(run)
        said = {**properties, "is_named": False}
        part = part_of({}, {"errbacks": embedded.get("errbacks")})
        task = self._task(args, kwargs, {**headers, "id": fresh_id()}, clock, said, part)
        with self.app.database.statement() as connection:
            unique_key, expires_at = lease.bounds(connection, run.task.id)
        return replace(
            task, retry_count=run.task.retry_count + 1, max_retries=run.task.max_retries, priority=run.task.priority,
            account=run.task.account or task.account, lock_key=run.task.lock_key or task.lock_key,
            unique_key=task.unique_key or unique_key, expires_at=expires_at,
        )  # fmt: skip

    def _queue_of(self, role: Role, properties: Mapping[str, Any]) -> str | None:
        """Return the queue that the call or its route names; None if Celery's router chose its default."""
        queue = _queue(self.app.conf, properties)
        is_named = properties.get("celeriac_queued") and queue in role.queues
        return None if queue == self.app.conf.task_default_queue and not is_named else queue or None

    def _queue_of_retry(self, run: running.Run, properties: Mapping[str, Any]) -> str | None:
        """Return the other queue that the retry names ("": the role's first); None if the task stays in its queue."""
        role = self.app.role_declared(run.role.name)[0]
        queue = self._queue_of(role, properties)
        return None if queue in (None, run.role.queue) else other_queue(role, queue) or ""

    def _limit_of(self, run: running.Run, args: Any, kwargs: Any) -> float:
        """Return the maximum bytes of a retry's arguments: a call's, or infinite for the call's own arguments."""
        is_same = list(args) == run.task.args and dict(kwargs) == run.task.kwargs
        return float("inf") if is_same else self.app.settings.max_argument_bytes

    def _count(self, barrier: str, member: str) -> None:
        """Count a member. One with another's id is merged into that one and has no result of its own."""
        self.merged[barrier] += (barrier, member) in self.members
        self.members.add((barrier, member))

    def members_come(self, barrier: str) -> None:
        """Enqueue members as they are generated; in a caller's transaction, or a run's, all together at the end."""
        if self.stream is None and self.bound is None and running.current() is None and self.app.ambient() is None:
            self.stream = Stream(self.app, barrier, self.began)

    def _said(self, role: Role, headers: Mapping[str, Any]) -> dict[str, Any]:
        ignores = getattr(self.app.tasks.get(role.name), "ignore_result", None)
        limit = self.app.settings.max_argument_bytes
        return said_beside(headers, ignores=ignores, hard=role.hard_timeout, limit=limit)

    def insert(self) -> None:
        """Insert all published tasks. A chord's body gets the number of its results."""
        places = {barrier: n - self.merged[barrier] for barrier, n in self.places.items()}
        for task in self.tasks:
            if task.awaits in places and task.headers:
                task.headers["canvas"]["places"] = places[task.awaits]
        if self.stream is not None and self.stream.gates:
            self.stream.end(self.tasks, places.get(self.stream.barrier, 0))
        elif self.tasks:
            receipts = self.app.enqueuer.insert(self.tasks, self.bound)
            receipt.set(receipts[0])

    def _publish_body(self, part: Part) -> None:
        if part.barrier is None or part.barrier in self.bodies:
            return
        self.bodies.add(part.barrier)
        outer, self.awaits = self.awaits, part.barrier
        try:
            maybe_signature(dict(part.body or {}), app=self.app).apply_async((RESULTS,))
        finally:
            self.awaits = outer

    def _task(
        self, args: Any, kwargs: Any, headers: Mapping[str, Any], clock: Mapping[str, float],
        properties: Mapping[str, Any], part: Part | None,
    ) -> NewTask:  # fmt: skip
        name = headers["task"]
        run = running.current()
        is_after = run is not None and run.is_linking
        role, signature = (self.app.role_between_releases if is_after else self.app.role_named)(name)
        is_link = run is not None and headers["id"] in run.links
        fields = {
            k: properties.get(k)
            for k in ("priority", "account", "lock_key", "unique_key", "timeout", "max_retries", "is_named")
        }
        fields["queue"] = self._queue_of(role, properties)
        fields["retry_count"] = headers.get("retries") or None
        fields["priority"] = self.app.roles.priorities.of_call(role, fields["priority"])
        delay = clock.get("countdown")
        canvas: dict[str, Any] = {} if part is None else dict(part.request)
        unknown = None
        if self.awaits is not None:
            canvas |= {"awaits": self.awaits, "shape": self.shapes.get(self.awaits)}
            canvas |= {"joins": _place_of_results(role.by_name and signature.nameable, signature.names, args)}
            unknown = signature.names[0] if canvas["joins"] and signature.names else None
            args = [None if value == RESULTS else value for value in args]
            canvas |= {"delay": delay} if delay is not None else {}
            delay = None
        label = self.label if canvas or is_link or (run and run.workflow) else None
        kept = self._said(role, headers) | _kept(name, headers, canvas, label, _eta(headers, clock.get("countdown")))
        rest = self._cut(kept.get("canvas", {}), label)
        return new_task(
            role, signature, headers["id"], args, kwargs, limit=self.app.settings.max_argument_bytes,
            unknown=unknown, delay=delay, at=headers.get("eta"), lenient=bool(canvas),
            expires_in=clock.get("expires"), expires_at=headers.get("expires"),
            headers=kept or None,
            parent_id=run.task.id if run else None, enqueued_by=self.app.process_name,
            workflow=label, is_part=bool(canvas) or is_link,
            may_be_instants=run is not None and headers["id"] == run.task.task_id,
            again=is_uuid(headers["id"]) and (is_link or any(canvas.get(sign) for sign in _CANVAS)),
            barrier=part.barrier if part else None, place=part.place if part else None, awaits=self.awaits, rest=rest,
            **fields,
        )  # fmt: skip

    @cached_property
    def may_store_rests(self) -> bool:
        """True if links of long chains may be stored apart from their rows; checked once for all calls of a unit.

        False while a worker of an older release may be live, or if Postgres does not answer. The process remembers a
        True.
        """
        database = self.app.database
        if database not in _store_rests and coroutines.aside(lambda: _may_store_rests(database)):
            _store_rests.add(database)
        return database in _store_rests

    def _cut(self, canvas: dict[str, Any], label: str | None) -> Rest | None:
        """Remove from a row's canvas the links of a long chain that are stored apart, and return them."""
        if label is None or not rests.is_long(canvas.get("chain")) or not self.may_store_rests:
            return None
        canvas["chain"], rest = rests.cut(canvas["chain"], label)
        return rest


def _may_store_rests(database: Database) -> bool:
    try:
        with database.statement(limited=True) as connection:
            return rests.may_begin(connection)
    except DBAPIError:
        return False


def _is_task(body: Any, headers: Any) -> bool:
    return isinstance(body, tuple) and isinstance(headers, Mapping) and "task" in headers and "id" in headers


def _label(run: running.Run | None) -> str | None:
    """Return the workflow of tasks that a run publishes; None if it has none yet. A replacement's is its task's id."""
    if run is None:
        return None
    return run.workflow or (run.task.task_id if run.replaced else None)


def _eta(headers: Mapping[str, Any], delay: float | None) -> str | None:
    """Return the eta for the handler's request, by this machine's clock: the database sets the due time only later."""
    return headers.get("eta") or (delay and (datetime.now(UTC) + timedelta(seconds=delay)).isoformat()) or None


def _kept(
    name: str, headers: Mapping[str, Any], canvas: Mapping[str, Any], label: str | None, eta: str | None
) -> dict[str, Any]:
    """Return the part of the message that the row keeps beside its arguments."""
    kept: dict[str, Any] = {name: headers[name] for name in SHOWN if headers.get(name)}
    kept |= {"workflow": label} if label else {}
    if canvas:
        kept |= {"eta": eta} if eta else {}
        kept["canvas"] = arguments_of(name, {k: v for k, v in canvas.items() if v is not None}, float("inf"))
    elif headers.get("parent_id") or headers.get("root_id") not in (None, headers["id"]):
        kept |= {"root_id": headers["root_id"], "parent_id": headers["parent_id"]}
    return kept


def _place_of_results(by_name: bool, names: list[str], args: Any) -> bool | str | None:
    """Return where a body takes its results: True for its first parameter, or a parameter's name; None: nowhere."""
    if not args or args[0] != RESULTS:
        return None
    return names[0] if by_name and names else True


def _queue(conf: Any, properties: Mapping[str, Any]) -> str | None:
    """Return the queue to which Celery would send it; with a topic exchange the routing key is not the queue's name."""
    if declared := properties.get("declare"):
        return str(declared[0].name)
    return queue_of_call(conf, properties.get("routing_key"), properties.get("exchange"))


def queue_of_call(conf: Any, key: Any, exchange: Any = None) -> Any:
    """Return the queue for a call's routing key: the one bound to the topic, or the one of that name.

    Raises BadArguments if the key leads to several.
    """
    try:
        return queue_of_key(conf, key, exchange) or key
    except ConfigurationError as error:
        raise BadArguments(str(error)) from None


def _retry_asked(
    headers: Mapping[str, Any], clock: Mapping[str, float], args: Any, kwargs: Any, limit: float
) -> RetryAsked:
    body = arguments_of(headers["task"], {"args": list(args), "kwargs": dict(kwargs)}, limit)
    delay = clock.get("countdown")
    if delay is not None and not is_distance(delay):
        raise BadValue(f"{headers['task']}: retry(countdown={delay!r:.100}): give seconds, at most 100 years")
    eta = headers.get("eta")
    at = None if eta is None else moment(headers["task"], "eta", eta).isoformat()
    return RetryAsked(delay, at, body["args"], body["kwargs"])
