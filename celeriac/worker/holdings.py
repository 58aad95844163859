"""Celery's `inspect` for rows: the tasks that run in this worker, those it holds, and those that wait for their
time.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
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

#: Returns a task's entry in an answer from its row, whether it is active or reserved, and its description.
Place = Callable[[Row, str, dict[str, Any]], Any]

#: Stands for arguments that are too large for an answer.
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
        """Return the other tasks of this worker's tickets."""
        return self.desk.ask(lambda: [info for word, info in self._held() if word == "reserved"])

    def scheduled(self, state: Any, **_: Any) -> Any:  # noqa: ARG002
        """Return the tasks of this worker's queues that wait for their time: planned, to be retried, snoozed."""
        return self.desk.ask(self._scheduled)

    def query_task(self, state: Any, ids: Any, **_: Any) -> Any:  # noqa: ARG002
        wanted = [i for i in maybe_list(ids) or () if isinstance(i, str) and i.isprintable()]
        return self.desk.ask(lambda: self._query(wanted[: held.MOST]))

    def revoked(self, state: Any, **_: Any) -> Any:  # noqa: ARG002
        """Return the ids of the tasks of this worker's roles that were cancelled last."""
        return self.desk.ask(self._cancelled)

    def _held(self, safe: bool = False) -> list[tuple[str, dict[str, Any]]]:
        with self.app.database.reading() as connection:
            rows = held.held(connection, shared.worker_id(), _tokens())
        return self._answer(rows, safe=safe)

    def _scheduled(self) -> list[dict[str, Any]]:
        with self.app.database.reading() as connection:
            rows = held.later(connection, [role.lane for role in self._roles()])
        return self._answer(
            rows, lambda row, _, info: {"eta": _iso(row["scheduled_for"]), "priority": OF_TIMERS, "request": info}
        )

    def _query(self, ids: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        with self.app.database.reading() as connection:
            rows = held.which_of(connection, ids, shared.worker_id(), _tokens(), [role.lane for role in self._roles()])
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
        """Return an entry for each row. `place` makes it from whether the task runs and from the fields of Celery's own
        requests.

        Arguments that are too large for the answer are shown as events show them, or not at all.
        """
        running = shared.current(processes(self.consumer.pool))
        rows = [row | self._shown(row) for row in rows]

        def form(arguments: Callable[[Row], dict[str, Any]]) -> Callable[[Row], Any]:
            return lambda row: place(
                row, "active" if row["id"] in running else "reserved", self._info(row, running) | arguments(row)
            )

        return fitting(rows, form(partial(_arguments, safe=safe)), form(_shown), form(lambda _: LEFT_OUT))

    def _shown(self, row: Row) -> Row:
        """Return the row's arguments without those its role calls sensitive."""
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


def _tokens() -> list[str]:
    """Return the tokens of tickets that this worker has taken from Redis and may not have begun."""
    return [token for _, _, token in (request.args for request in list(reserved_requests)) if token]


def _iso(when: datetime) -> str:
    return when.isoformat()


logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of JSON in a reply. It travels as base64 in an envelope of which 1,000,000 bytes are read (`seam/envelope.py`).
ROOM = 600_000


def fitting(rows: Sequence[T], *forms: Callable[[T], Any], room: int = ROOM) -> list[Any]:
    """Return each row in the first of its forms that fits its share of the space, or in the last one, as long as there
    is space. The number of omitted rows is logged, because a list has no place to mention it.
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


#: Seconds that the hub waits for an answer.
PATIENCE = 0.5

#: Maximum number of queries that wait for Postgres; more are refused.
MOST = 5

SILENT = f"Postgres has not answered within {PATIENCE:g} s"
SILENT_YET = f"{SILENT}; the query goes on"


class Desk:
    """Runs queries for the hub's thread, each in a thread of its own."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MOST)

    def ask(self, question: Callable[[], Any], silence: str = SILENT) -> Any:
        """Return the answer, or Celery's error reply if that takes too long; the query is completed nevertheless."""
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
