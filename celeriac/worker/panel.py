"""Remote control commands that act on rows, from Flower, `celery control` or another app.

Only this worker's mailbox gets these commands; Celery's registry stays as it is.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from celery import bootsteps
from celery.utils.functional import maybe_list
from celery.worker import control as stock
from celery.worker.consumer.control import Control
from sqlalchemy import Connection

from celeriac.errors import BadValue, NotAllowed, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.operate.cancel import Cancelled
from celeriac.operate.policies import limits_in_words, set_limits
from celeriac.operate.revoke import in_words, revoke, stamped
from celeriac.operate.sealed import SEAL, Seals
from celeriac.roles import limits
from celeriac.roles.rules import TICKET
from celeriac.run import shared
from celeriac.run.outcomes import storable
from celeriac.settings import LOOK
from celeriac.worker import remote
from celeriac.worker.holdings import SILENT_YET, Desk, Holdings

logger = logging.getLogger(__name__)

Command = Callable[..., Any]

#: Commands that write their own entry to the audit trail.
_NOTED_THEMSELVES = frozenset({
    "revoke", "terminate", "revoke_by_stamped_headers", "rate_limit", "time_limit", "enable_events", "disable_events",
})  # fmt: skip

#: Seconds between two log lines about refusals of the same command.
WARN_AGAIN = 60.0

#: Maximum number of a command's arguments in the audit trail; each is cut to 100 characters.
_MOST_NOTED = 10


def _noted(value: object) -> str:
    """Return a name or an argument as the audit trail keeps it."""
    return storable(str(value)[:100])


class PanelStep(bootsteps.StartStopStep):
    """Replaces the commands about tasks, before the mailbox is read for the first time."""

    requires = ("celery.worker.consumer.control:Control",)

    def create(self, c: Any) -> None:
        for step in c.steps:
            if isinstance(step, Control):
                node, panel = step.box.node, Panel(c)
                node.handlers = panel.guarded({**node.handlers, **panel.commands()})


class Panel:
    """One worker's commands. Those that need SQL run in other threads, and the hub's waits only briefly."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.app = consumer.app
        self.desk = Desk()
        self.holdings = Holdings(consumer, self.desk)
        self.warned: dict[str, float] = {}

    def guarded(self, handlers: Mapping[str, Command]) -> dict[str, Command]:
        """Wrap each of these handlers in a check that the settings allow it."""
        settings = self.app.settings
        key, hostname = settings.remote_control_key, self.consumer.hostname
        seals = None if key is None else Seals(key, hostname)
        return {
            name: partial(self._guarded, name, handler, settings.remote_control, seals)
            for name, handler in handlers.items()
        }

    def _guarded(
        self, name: str, handler: Command, level: str, seals: Seals | None, state: Any, /, **arguments: Any
    ) -> Any:
        """Check and run a command. An application's own command may have arguments of any name."""
        signature, acts = arguments.pop(SEAL, None), remote.level_of(name) != LOOK
        why = remote.refused(name, level)
        if why is None and seals is not None and acts:
            why = seals.wrong(name, arguments, signature)
        if why is not None:
            self._warn(name, why)
            return stock.nok(why)
        if acts and name not in _NOTED_THEMSELVES:
            self._note_of_worker(name, arguments)
        return handler(state, **arguments)

    def _warn(self, name: str, why: str) -> None:
        """Log a refusal, but not each one: Flower repeats some commands every few seconds."""
        now = time.monotonic()
        if now - self.warned.get(name, -math.inf) >= WARN_AGAIN:
            self.warned[name] = now
            logger.warning("Remote control: %s", why)

    def _note_of_worker(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Write the command to the audit trail; if Postgres does not answer in time, only the log has it."""
        logger.warning("Remote control: %s %s", name, dict(arguments) or "")
        some = islice(arguments.items(), _MOST_NOTED)
        change = Change(self.consumer.hostname, None, {_noted(key): _noted(value) for key, value in some})

        def note() -> None:
            with self.app.database.transaction() as connection:
                audit.note_remote_control(connection, name, "worker", [change], by=shared.worker_id())

        self.desk.ask(note)

    def commands(self) -> dict[str, Command]:
        ours = (self.enable_events, self.disable_events, self.registered, self.revoke, self.terminate,
                self.revoke_by_stamped_headers, self.rate_limit, self.time_limit)  # fmt: skip
        aliases = {"dump_tasks": self.registered}
        return {command.__name__: command for command in ours} | aliases | self.holdings.commands()

    # -- events, registry ------------------------------------------------------------------------------------------

    def enable_events(self, state: Any) -> Any:
        return self._switch_events("enable_events", partial(stock.enable_events, state))

    def disable_events(self, state: Any) -> Any:
        return self._switch_events("disable_events", partial(stock.disable_events, state))

    def _switch_events(self, name: str, switch: Callable[[], Any]) -> Any:
        """Note the command if it changes something: Flower enables events every five seconds."""
        before = wanted(self.consumer.event_dispatcher)
        reply = switch()
        heed(self.consumer)
        if wanted(self.consumer.event_dispatcher) != before:
            self._note_of_worker(name, {})
        return reply

    def registered(self, state: Any, *args: Any, **more: Any) -> list[str]:
        """Return the tasks it can run, without the engine's own ticket task."""
        return [line for line in stock.registered(state, *args, **more) if line.split(" ")[0] != TICKET]

    # -- limits ----------------------------------------------------------------------------------------------------

    def rate_limit(self, state: Any, task_name: Any, rate_limit: Any = None, **_: Any) -> Any:  # noqa: ARG002
        """Set the role's rate, which holds for all workers."""
        return self.desk.ask(lambda: self._set(task_name, rate_limit=rate_limit), SILENT_YET)

    def time_limit(self, state: Any, task_name: Any = None, hard: Any = None, soft: Any = None, **_: Any) -> Any:  # noqa: ARG002
        return self.desk.ask(lambda: self._set(task_name, timeout=soft or None, hard_timeout=hard or None), SILENT_YET)

    def _set(self, role: Any, **changes: Any) -> Any:
        audit.VIA.set("remote control")
        try:
            with self.app.database.transaction() as connection:
                change = set_limits(connection, role, by=shared.worker_id(), **changes)
                as_of = limits.as_of(connection)
        except (Unknown, BadValue, NotAllowed) as refused:
            return stock.nok(str(refused))
        shared.note_limits(as_of)
        logger.info("Limits set by remote control: %s", limits_in_words(change))
        return stock.ok(limits_in_words(change))

    # -- revoke ----------------------------------------------------------------------------------------------------

    def revoke(self, state: Any, task_id: Any, terminate: Any = False, **_: Any) -> Any:  # noqa: ARG002
        """Cancel tasks that do not run; with `terminate` (Flower sends 1), also request running ones to stop."""
        ids = maybe_list(task_id) or []
        return self.desk.ask(lambda: self._revoke(ids, bool(terminate)), SILENT_YET)

    def terminate(self, state: Any, signal: Any = None, task_id: Any = (), **_: Any) -> Any:  # noqa: ARG002
        return self.revoke(state, task_id, terminate=True)

    def revoke_by_stamped_headers(
        self, state: Any, headers: Any, terminate: Any = False, **_: Any,  # noqa: ARG002
    ) -> Any:  # fmt: skip
        if isinstance(headers, list):
            headers = dict(header.split("=", 1) for header in headers)
        return self.desk.ask(lambda: self._revoke_stamped(headers, bool(terminate)), SILENT_YET)

    def _revoke(self, ids: Any, terminate: bool) -> Any:
        done = revoke(self.app.database, ids, by=shared.worker_id(), terminate=terminate, note=_note_of_tasks)
        if done:
            logger.info("Revoked by remote control: %s", in_words(done))
        return stock.ok(in_words(done))

    def _revoke_stamped(self, headers: Any, terminate: bool) -> Any:
        with self.app.database.reading() as connection:
            ids = stamped(connection, headers)
        return self._revoke(ids, terminate)


def _note_of_tasks(connection: Connection, done: Mapping[str, Cancelled]) -> None:
    changes = [Change(task_id, None, {"status": how}) for task_id, how in done.items()]
    audit.note_remote_control(connection, "revoke", "task", changes, by=shared.worker_id())


class ElectionsStep(bootsteps.StartStopStep):
    """Makes gossip ignore elections: the winner calls a task, and whoever may write to Redis can forge one.

    Steps of users that require Gossip still learn which workers join, leave or are lost.
    """

    requires = ("celery.worker.consumer.gossip:Gossip",)

    def create(self, c: Any) -> None:
        c.gossip.event_handlers = dict.fromkeys(c.gossip.event_handlers, _ignore)
        c.gossip.election_handlers = {}


def _ignore(event: Any) -> None:
    """Ignore an event."""


class ListenersStep(bootsteps.StartStopStep):
    """Sets the flag that somebody listens to events as each connection starts, by `-E` or remote control."""

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, c: Any) -> None:
        heed(c)


def heed(consumer: Any) -> None:
    """Set the flag that somebody listens; to be called whenever events are enabled or disabled."""
    shared.tell(wanted(getattr(consumer, "event_dispatcher", None)))


def wanted(dispatcher: Any) -> bool:
    """Return whether Celery's own dispatcher would send events of tasks: without groups, it sends all events."""
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))
