"""The seam on the enqueuing side: where Celery publishes a message, a row is inserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celeriac.enqueue.insert import NewTask, Receipt
from celeriac.enqueue.intake import arguments_of, is_distance, moment, new_task, refuse_canvas
from celeriac.errors import BadArguments, BadValue
from celeriac.run import run as running

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Where the call that is being published ended: Celery has no way to hand it back.
receipt: ContextVar[Receipt | None] = ContextVar("celeriac receipt", default=None)

#: Celery would describe the arguments for the message's readers, at a cost: a row has the arguments themselves.
NO_REPR = {"argsrepr": "", "kwargsrepr": ""}


#: What a call says of how its task is shown: its name, and its arguments where these are nobody's business.
SHOWN = ("shadow", *NO_REPR)


class RowProducer:
    """Stands where Celery expects a kombu producer; its `publish` inserts."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app

    @property
    def connection(self) -> RowProducer:
        return self

    @contextmanager
    def _reraise_as_library_errors(self) -> Iterator[None]:
        yield

    def publish(
        self, body: Any, *, headers: Mapping[str, Any] | None = None, bound: Any = None,
        celeriac_clock: Mapping[str, float] | None = None, celeriac_named: bool = True, **properties: Any,
    ) -> None:  # fmt: skip
        if not headers or not isinstance(body, tuple):
            return  # an event about publishing, for which rows have no need
        args, kwargs, embed = body
        name, task_id, clock = headers["task"], headers["id"], celeriac_clock or {}
        refuse_canvas(name, headers, embed)
        run = running.current()
        if run is not None and task_id == run.task.task_id:
            run.retry_asked = _retry_asked(headers, clock, args, kwargs)
            return
        properties["is_named"] = celeriac_named
        task = self._task(name, task_id, args, kwargs, headers, clock, properties)
        receipt.set(self.app.enqueuer.insert([task], bound)[0])

    def _task(
        self, name: str, task_id: str, args: Any, kwargs: Any, headers: Mapping[str, Any],
        clock: Mapping[str, float], properties: Mapping[str, Any],
    ) -> NewTask:  # fmt: skip
        role, signature = self.app.role_named(name)
        queue = _queue(properties)
        if queue and queue not in (role.queue, role.name) and queue != self.app.conf.task_default_queue:
            raise BadArguments(f"{name}: its queue is {role.queue!r}, set where the role is declared; not {queue!r}")
        run = running.current()
        given = {
            k: properties.get(k)
            for k in ("priority", "account", "lock_key", "unique_key", "timeout", "max_retries", "is_named")
        }
        return new_task(
            role, signature, task_id, args, kwargs, limit=self.app.settings.max_argument_bytes,
            delay=clock.get("countdown"), at=headers.get("eta"),
            expires_in=clock.get("expires"), expires_at=headers.get("expires"),
            headers={name: headers[name] for name in SHOWN if headers.get(name)} or None,
            parent_id=run.task.id if run else None, enqueued_by=self.app.process_name, **given,
        )  # fmt: skip


def _queue(properties: Mapping[str, Any]) -> str | None:
    """Where Celery would send it: a topic's routing key is not its queue's name."""
    declared = properties.get("declare")
    return declared[0].name if declared else properties.get("routing_key")


def _retry_asked(headers: Mapping[str, Any], clock: Mapping[str, float], args: Any, kwargs: Any) -> running.RetryAsked:
    body = arguments_of(headers["task"], {"args": list(args), "kwargs": dict(kwargs)}, float("inf"))
    delay = clock.get("countdown")
    if delay is not None and not is_distance(delay):
        raise BadValue(f"{headers['task']}: retry(countdown={delay!r:.100}): give seconds, at most 100 years")
    eta = headers.get("eta")
    at = None if eta is None else moment(headers["task"], "eta", eta).isoformat()
    return running.RetryAsked(delay, at, body["args"], body["kwargs"])
