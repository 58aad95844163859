"""An app's operations on existing tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import Probe, Publisher
from celeriac.enqueue.intake import GIVES, new_task, refuse_priority
from celeriac.errors import BadArguments
from celeriac.operate import PATIENCE, cancel, edit, hasten, prioritise
from celeriac.operate.audit import Change
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.settings import Settings
from celeriac.store import look, sensitive
from celeriac.store.connections import Database
from celeriac.store.encoding import revived
from celeriac.store.failures import retry_deadlocks
from celeriac.store.ids import fresh_id

if TYPE_CHECKING:
    from celeriac.insights import Why


class Steering:
    """The mixin of an app with these operations."""

    if TYPE_CHECKING:
        settings: Settings

        @property
        def publisher(self) -> Publisher: ...
        @property
        def database(self) -> Database: ...
        @property
        def process_name(self) -> str: ...
        @property
        def dispatcher(self) -> Dispatcher: ...
        def kick(self, roles: Iterable[str]) -> None: ...
        def role_named(self, name: str) -> tuple[Role, Signature]: ...
        def role_declared(self, name: str) -> tuple[Role, Signature]: ...

    def cancel(self, task_id: str, *, by: str = "", why: str = "cancelled") -> str | None:
        """Cancel a task.

        Returns 'cancelled' if it is done, 'asked' if its worker has to stop the task first, None if no unfinished task
        has this id.
        Raises BadArguments for anything but a text: a row's number is no task_id.
        """
        _refuse_no_text(task_id)
        with self.database.transaction() as connection:
            return cancel.cancel(connection, task_id, by=by or self.process_name, why=why)

    def prioritise(
        self, task_id: str, priority: int, *, only_raise: bool = False, by: str = "", session: Session | None = None
    ) -> bool:
        """Give an unfinished task another priority, in the caller's transaction if there is one; return whether it did.

        In a caller's transaction, claimed and running tasks are left alone: their worker would have to wait for the
        commit. Raises BadArguments for a priority outside the role's `priority_range`, and as `cancel` does.
        """
        _refuse_no_text(task_id)
        with nullcontext(session.connection()) if session else self.database.transaction() as connection:
            held = prioritise.hold(connection, task_id, only_waiting=session is not None)
            if held is None or held.priority == priority or (only_raise and held.priority > priority):
                return False
            refuse_priority(self.role_declared(held.role)[0], priority)
            prioritise.prioritise(connection, {held.id: priority}, by=by or self.process_name)
            return True

    def hasten(self, task_id: str, *, by: str = "") -> bool:
        """Make a scheduled task due now, planned or between two attempts; return whether there was one.

        Raises BadArguments as `cancel` does.
        """
        _refuse_no_text(task_id)
        with self.database.transaction() as connection:
            role = hasten.hasten(connection, task_id, by=by or self.process_name)
        self.kick([role] if role else [])
        return role is not None

    def edit(self, task: int | str, arguments: Mapping[str, Any], *, by: str = "", why: str = "") -> Change:
        """Replace these arguments of a waiting task by name. `task`: as for `why`.

        Raises Unknown; IllegalMove if it no longer waits; an enqueue's errors for its arguments; BadArguments if its
        account, lock key or unique key would change: then cancel it and enqueue anew.
        """
        from celeriac.insights import get  # as below

        with self.database.reading() as connection:
            row = get(connection, _exactly(task))
            args, had = edit.call_of(connection, row["id"]) or (row["args"], row["kwargs"])
        role, signature = self.role_named(row["role"])
        args, before = revived(args), revived(had)
        was, is_now = (
            new_task(role, signature, fresh_id(), args, kwargs, limit=self.settings.max_argument_bytes)
            for kwargs in (before, before | sensitive.kept(dict(arguments), before))
        )
        if others := [key for key in GIVES.values() if getattr(was, key) != getattr(is_now, key)]:
            raise BadArguments(f"{role.name}: {', '.join(others)} would be another: cancel it, and enqueue anew")
        kwargs, by = is_now.kwargs, by or self.process_name

        def act() -> Change:
            with self.database.transaction(patience=PATIENCE) as connection:
                return edit.edit(connection, [row["id"]], had, kwargs, by=by, why=why).one()

        return retry_deadlocks(act)

    def why(self, task: int | str) -> Why:
        """Explain why a task has not started, as an ordered list of checks. Raises Unknown.

        `task`: the number of its row, or its task_id, a text.
        """
        from celeriac.insights import why  # an app that only enqueues needs no insights

        with self.database.reading() as connection:
            return why(connection, _exactly(task), self.probe)

    @property
    def probe(self) -> Probe:
        """The probe of tickets in Redis."""
        return Probe(self.publisher, self.settings.ticket_grace)

    def dispatch(self, name: str) -> int:
        """Run one pass of a role declared here; return the number of published tasks.

        Before it, lock keys that callers' transactions left without a holder are handed over.
        """
        with self.database.transaction() as connection:
            look.look(connection)
        return sum(map(self.dispatcher.dispatch, self.role_declared(name)[0].lanes))


def _exactly(task: int | str) -> int | str:
    """Return an unambiguous name: in Python a number is a row's, and a text is a task_id, even if it is all digits."""
    return f"task_id={task}" if isinstance(task, str) else task


def _refuse_no_text(task_id: object) -> None:
    if not isinstance(task_id, str):
        raise BadArguments(f"task_id={task_id!r:.100}: give a task_id, a text (`result.id`), no row's number")
