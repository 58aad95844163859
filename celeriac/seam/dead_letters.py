"""Replay: a dead letter becomes the task it was meant to be, once its reason is mended."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from celeriac.enqueue import adopted
from celeriac.enqueue.foreign import call_of, task_of
from celeriac.errors import NotAdopted
from celeriac.operate import dead_letters
from celeriac.operate.audit import Change
from celeriac.seam.app import SeamApp


def replay(app: SeamApp, connection: Connection, letter: int, *, by: str, why: str = "") -> Change:
    """Make the dead letter a task in this transaction, also of a role that adopts no messages: an operator decided it.

    The change's `after` is null if a message with that id became a task before. Raises Unknown; EnqueueRefused if the
    message still fits no role: then the letter stays.
    """
    row = dead_letters.take(connection, letter)
    if row.size > len(row.message):
        raise NotAdopted(f"of its {row.size:,} bytes only the first {len(row.message):,} are kept")
    call = call_of(bytes(row.message))
    role, signature = app.role_named(call.name)
    priority = app.roles.priorities.of_message(role, call.priority)
    task = task_of(call, role, signature, app.settings.max_argument_bytes, priority)
    try:
        is_new = bool(adopted.adopt(connection, [task]))
    except (DataError, IntegrityError) as error:
        raise NotAdopted(f"{call.name}: Postgres refused it: {_reason(error)}") from error
    after = {"role": task.role, "task_id": task.task_id} if is_new else None
    return dead_letters.ended(connection, "replay", letter, row, after, by=by, why=why)


def _reason(error: DBAPIError) -> str:
    """Return Postgres' reason as one line, without the row's values."""
    diagnosed = getattr(error.orig, "diag", None)
    return getattr(diagnosed, "message_primary", None) or "it gives no reason"
