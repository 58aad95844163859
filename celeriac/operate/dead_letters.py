"""Dead letters: dispose of plain Celery's messages that became no task."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.errors import Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change

TAKE = text("""
DELETE FROM celeriac.dead_letters WHERE id = :id RETURNING name, task_id, sender, reason, size, message
""")


def take(connection: Connection, letter: int) -> Row[Any]:
    """Delete the letter from the table in this transaction and return it. Raises Unknown."""
    row = connection.execute(TAKE, {"id": letter}).one_or_none()
    if row is None:
        raise Unknown(f"there is no dead letter {letter}")
    return row


def ended(connection: Connection, action: str, letter: int, row: Row[Any], after: Any, *, by: str, why: str) -> Change:
    """Write the audit row of a letter that was replayed or discarded."""
    before = {"name": row.name, "task_id": row.task_id, "sender": row.sender, "reason": row.reason}
    change = Change(str(letter), before, after)
    audit.write(connection, action, "dead_letter", [change], by=by, why=why)
    return change


def discard(connection: Connection, letter: int, *, by: str, why: str = "") -> Change:
    """Delete a letter that nobody wants. Raises Unknown."""
    return ended(connection, "discard", letter, take(connection, letter), None, by=by, why=why)
