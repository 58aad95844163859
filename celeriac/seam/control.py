"""Celery's `app.control`, for tasks that are rows: its commands on tasks are done in SQL at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from celery.app.control import Control as StockControl
from celery.result import AsyncResult, ResultSet
from celery.utils.functional import maybe_list
from click import ClickException

from celeriac.errors import BadArguments, BadValue, NotAllowed, NotSupported, Unknown
from celeriac.operate.cancel import Cancelled, cancel_all
from celeriac.operate.policies import limits_in_words, set_limits
from celeriac.operate.revoke import in_words, revoke, stamped
from celeriac.operate.sealed import SEAL, seal
from celeriac.seam.app import SeamApp
from celeriac.seam.no_redis import NeedsRedis
from celeriac.seam.waiting import seen_alone
from celeriac.settings import LOOK

#: The type of an argument of Celery's that has no effect: a signal would be for the process, which goes on.
Ignored = Any


#: Options of `broadcast`, beside the command's own arguments.
_OPTIONS = ("reply", "timeout", "limit", "callback", "channel", "pattern", "matcher")


class PurgeRefused(ClickException, NotSupported):
    """A refusal that Celery's command line prints in a line."""


class Control(StockControl):
    """`revoke` needs no worker: it is done when it returns, and raises if Postgres does not answer."""

    app: SeamApp

    def broadcast(
        self, command: str, arguments: Any = None, destination: Any = None, connection: Any = None, **options: Any
    ) -> Any:
        """Broadcast as Celery does, and sign commands that change something if `CELERIAC_REMOTE_CONTROL_KEY` is set.

        Celery's other options are passed on. Raises NeedsRedis if there is no Redis.
        """
        if not self.app.settings.has_redis:
            raise NeedsRedis
        known = {name: options.pop(name) for name in _OPTIONS if name in options}
        arguments = {**(arguments or {}), **options}
        if (key := self.app.settings.remote_control_key) is not None and _acts(command):
            arguments[SEAL] = seal(key, command, arguments, destination)
        return super().broadcast(command, arguments, destination, connection, **known)

    def revoke(
        self, task_id: Any, destination: Ignored = None, terminate: bool = False, signal: Ignored = None,  # noqa: ARG002
        reply: bool = False, **_: Ignored,
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Cancel tasks that do not run; with `terminate` also ask running ones to stop. With `reply`, return the
        results.

        `task_id`: a task's id or its result, or several. Raises BadArguments for anything else.
        """
        ids = [one for each in maybe_list(task_id) or () for one in _ids_of(each)]
        done = revoke(self.app.database, ids, by=self.app.process_name, terminate=bool(terminate))
        done |= self._revoke_in_ambient([task_id for task_id in ids if task_id not in done])
        return [{self.app.process_name: {"ok": in_words(done)}}] if reply else None

    def _revoke_in_ambient(self, ids: list[str]) -> Mapping[str, Cancelled]:
        """Cancel, in the transaction that a framework has open here, those that it alone has."""
        ambient = self.app.ambient()
        if not ids or ambient is None or ambient.connection is None:
            return {}
        alone = seen_alone(self.app.database, ambient.connection, ids)
        return cancel_all(ambient.connection, sorted(alone), by=self.app.process_name, why="revoked") if alone else {}

    def revoke_by_stamped_headers(
        self, headers: Mapping[str, Any], destination: Ignored = None, terminate: bool = False, signal: Ignored = None,
        **more: Any,
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Revoke the unfinished tasks with one of these stamps."""
        with self.app.database.reading() as connection:
            task_ids = stamped(connection, headers)
        return self.revoke(task_ids, destination, terminate, signal, **more)

    def purge(self, connection: Any = None) -> int:  # noqa: ARG002 - Celery's signature
        """Raise PurgeRefused: Redis holds tickets only, which come back, as their tasks are in Postgres."""
        raise PurgeRefused(PURGE)

    discard_all = purge

    def rate_limit(
        self, task_name: str, rate_limit: Any, destination: Any = None, reply: bool = False, **_: Ignored,
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Set the role's rate limit over all workers.

        Raises Unknown and BadValue; with `reply`, returns them as answers.
        """
        return self._set(task_name, reply, destination, rate_limit=rate_limit)

    def time_limit(
        self, task_name: str, soft: Any = None, hard: Any = None, destination: Any = None, reply: bool = False,
        **_: Ignored,
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Set the role's time limits in all workers.

        Raises Unknown and BadValue; with `reply`, returns them as answers.
        """
        return self._set(task_name, reply, destination, timeout=soft or None, hard_timeout=hard or None)

    def _set(self, role: str, reply: bool, destination: Any, **changes: Any) -> list[dict[str, Any]] | None:
        """Change the role.

        With `reply`, return an answer for each worker concerned, by the names that Flower expects.
        """
        try:
            with self.app.database.transaction() as connection:
                change = set_limits(connection, role, by=self.app.process_name, **changes)
        except (Unknown, BadValue, NotAllowed) as refused:
            if not reply:
                raise
            said = {"error": str(refused)}
        else:
            said = {"ok": limits_in_words(change)}
        return [{name: said} for name in maybe_list(destination) or [self.app.process_name]] if reply else None


def _acts(command: str) -> bool:
    from celeriac.worker import remote  # which imports Celery's whole worker

    return remote.level_of(command) != LOOK


PURGE = (
    "purge: queues in Redis hold tickets, the tasks are in Postgres, so nothing was removed; cancel tasks with "
    "`celeriac tasks cancel …`, `app.cancel(id)` or `app.control.revoke(ids)`"
)


def _ids_of(task: object) -> list[str]:
    if isinstance(task, str):
        return [task]
    if isinstance(task, UUID):
        return [str(task)]
    if isinstance(task, AsyncResult):
        return [task.id]
    if isinstance(task, ResultSet):
        return [one for result in task.results for one in _ids_of(result)]
    raise BadArguments(f"revoke({task!r:.100}): give a task_id, a text, or a task's result; nothing was revoked")
