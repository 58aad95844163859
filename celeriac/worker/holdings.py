"""Celery's `inspect` for rows: this worker's running and reserved tasks, and those that wait for their time."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from celery.utils.functional import maybe_list
from celery.worker.control import nok
from celery.worker.state import reserved_requests
from kombu.utils.json import dumps

from celeriac.insights.fleet import held
from celeriac.insights.fleet.held import Row
from celeriac.roles.role import Role
from celeriac.run import journal, redaction, shared
from celeriac.settle.outcome import masked
from celeriac.store.encoding import legible
from celeriac.store.failures import in_a_line, is_passing
from celeriac.store.sensitive import without_masks

#: Makes a task's entry in an answer, from its row, `active` or `reserved`, and its description.
Place = Callable[[Row, str, dict[str, Any]], Any]

#: Replaces arguments that are too large for an answer.
LEFT_OUT = {"args": "...", "kwargs": "..."}

#: The priority that Celery shows in `scheduled`: its timer's. A task's own is in its delivery info.
OF_TIMERS = 6


class Holdings:
    """The `inspect` commands of one worker. Lists have at most `held.MOST` rows."""

    def __init__(self, consumer: Any, desk: Desk) -> None:
        self.consumer = consumer
        self.app = consumer.app
        self.desk = desk

    def commands(self) -> dict[str, Callable[..., Any]]:
        ours = (self.active, self.reserved, self.scheduled, self.query_task, self.revoked)
        aliases = {"active": "dump_active", "reserved": "dump_reserved", "scheduled": "dump_schedule",
                   "revoked": "dump_revoked"}  # fmt: skip
        named = {command.__name__: command for command in ours}
        return named | {alias: named[name] for name, alias in aliases.items()}

    def active(self, state: Any, safe: bool = False, **_: Any) -> Any:  # noqa: ARG002
        """Return the tasks that processes run now."""
        return self.desk.ask(lambda: [info for word, info in self._held(safe) if word == "active"])

    def reserved(self, state: Any, **_: Any) -> Any:  # noqa: ARG002
        """Return the tasks of this worker's tickets that do not run yet."""
        return self.desk.ask(lambda: [info for word, info in self._held() if word == "reserved"])

    def scheduled(self, state: Any, **_: Any) -> Any:  # noqa: ARG002
        """Return the tasks of this worker's queues that wait for their time: planned, to be retried, snoozed."""
        return self.desk.ask(self._scheduled)

    def query_task(self, state: Any, ids: Any, **_: Any) -> Any:  # noqa: ARG002
        wanted = [i for i in maybe_list(ids) or () if isinstance(i, str) and i.isprintable()]
        return self.desk.ask(lambda: self._query(wanted[: held.MOST]))

    def revoked(self, state: Any, **_: Any) -> Any:  # noqa: ARG002
        """Return the ids of the last cancelled tasks of this worker's roles."""
        return self.desk.ask(self._cancelled)

    def _held(self, safe: bool = False) -> list[tuple[str, dict[str, Any]]]:
        with self.app.database.reading() as connection:
            rows = held.held(connection, shared.worker_id(), tokens_at_hand())
        return self._answer(rows, safe=safe)

    def _scheduled(self) -> list[dict[str, Any]]:
        with self.app.database.reading() as connection:
            rows = held.later(connection, [role.lane for role in self._roles()])
        return self._answer(
            rows, lambda row, _, info: {"eta": row["scheduled_for"].isoformat(), "priority": OF_TIMERS, "request": info}
        )

    def _query(self, ids: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        with self.app.database.reading() as connection:
            rows = held.which_of(
                connection, ids, shared.worker_id(), tokens_at_hand(), [role.lane for role in self._roles()]
            )
        pairs = self._answer(
            rows, lambda row, word, info: (row["task_id"], ("active" if word == "active" else row["word"], info))
        )
        return dict(pairs)

    def _cancelled(self) -> list[str]:
        with self.app.database.reading() as connection:
            return fitting(held.cancelled(connection, sorted({role.name for role in self._roles()})), str)

    def _roles(self) -> list[Role]:
        return self.app.roles.of_queues(self.app.amqp.queues.consume_from)

    def _answer(
        self, rows: Sequence[Row], place: Place = lambda _, word, info: (word, info), *, safe: bool = False
    ) -> Any:
        """Return an entry for each row. Too large arguments are shown as events show them, or not at all."""
        running = shared.current(processes(self.consumer.pool))
        rows = [row | self._shown(row) for row in rows]

        def form(arguments: Callable[[Row], dict[str, Any]]) -> Callable[[Row], Any]:
            return lambda row: place(
                row, "active" if row["id"] in running else "reserved", self._info(row, running) | arguments(row)
            )

        return fitting(rows, form(partial(_arguments, safe=safe)), form(_shown), form(lambda _: LEFT_OUT))

    def _shown(self, row: Row) -> Row:
        """Return the row's arguments and headers, with sensitive ones masked; nothing if its role declares none."""
        secret = redaction.of_name(self.app.roles, row["role"])
        if secret is None:
            return {}
        args, kwargs = secret.call(row["args"], row["kwargs"])
        return {"args": args, "kwargs": kwargs, "headers": without_masks(row["headers"])}

    def _info(self, row: Row, running: Mapping[int, shared.Current]) -> dict[str, Any]:
        current, declared = running.get(row["id"]), self.app.roles.get(row["role"])
        return {
            "id": row["task_id"],
            "name": (row["headers"] or {}).get("shadow") or row["role"],
            "type": row["role"],
            "hostname": shared.node(),
            "time_start": current.began if current else None,
            "acknowledged": current is not None,
            "delivery_info": {
                "exchange": "", "routing_key": row["queue"] or (declared.role.queue if declared else row["role"]),
                "priority": self.app.roles.priorities.turned(row["priority"]), "redelivered": row["losses"] > 0,
            },
            "worker_pid": row["worker_pid"],
        }  # fmt: skip


def _arguments(row: Row, *, safe: bool) -> dict[str, Any]:
    if safe or masked(row["headers"]):
        return _shown(row)
    return {"args": legible(row["args"]), "kwargs": legible(row["kwargs"])}


def _shown(row: Row) -> dict[str, str]:
    return journal.arguments(row["args"], row["kwargs"], row["headers"])


def processes(pool: Any) -> list[int]:
    """Return the pids of a pool's processes, or this one's if tasks run in it."""
    try:
        info = pool.info if pool else {}
    except AttributeError:  # Celery's prefork pool has no info once it has stopped
        info = {}
    return list(info.get("processes") or [os.getpid()])


def tokens_at_hand() -> list[str]:
    """Return the tokens of tickets that this worker has taken from Redis and may not have begun."""
    return [token for _, _, token in (request.args for request in list(reserved_requests)) if token]


logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum bytes of JSON in a reply: its envelope, in base64, may have 1,000,000 (`seam/envelope.py`).
ROOM = 600_000


def fitting(rows: Sequence[T], *forms: Callable[[T], Any], room: int = ROOM) -> list[Any]:
    """Return each row in the first of its forms that fits its share of `room` bytes, or in the last one, until all are
    used. The number of omitted rows is logged: the list has no place for it.
    """
    answer: list[Any] = []
    share = room // max(1, len(rows))
    for row in rows:
        form, size = _first_within(share, row, forms)
        if size > room:
            logger.warning(
                "inspect shows %d of %d tasks: more would be too large for an answer", len(answer), len(rows)
            )
            break
        room -= size
        answer.append(form)
    return answer


def _first_within(share: int, row: T, forms: Sequence[Callable[[T], Any]]) -> tuple[Any, int]:
    for make in forms:
        form = make(row)
        size = len(dumps(form))
        if size <= share:
            break
    return form, size


#: Seconds that the hub's thread waits for a query.
PATIENCE = 0.5

#: Maximum number of queries that wait for Postgres; more are refused.
MOST = 5

SILENT = f"Postgres has not answered within {PATIENCE:g} s"
SILENT_YET = f"{SILENT}; the query goes on"


class Desk:
    """Runs the queries of control replies, each in a thread of its own, so that the hub's thread waits only briefly."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MOST)

    def ask(self, question: Callable[[], Any], silence: str = SILENT) -> Any:
        """Return the query's result, or Celery's error reply if it takes too long; it is completed nevertheless."""
        if not self._free.acquire(blocking=False):
            logger.warning("A remote control command was refused: Postgres has not answered the last %d", MOST)
            return nok(SILENT)
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: answer.put(self._answered(question)), name="celeriac-desk", daemon=True
        ).start()  # fmt: skip
        try:
            return answer.get(timeout=PATIENCE)
        except queue.Empty:
            return nok(silence)

    def _answered(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as error:
            logger.warning("A remote control command failed: %s", in_a_line(error), exc_info=not is_passing(error))
            return nok(in_a_line(error))
        finally:
            self._free.release()
