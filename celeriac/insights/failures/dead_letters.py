"""Dead letters: messages of plain Celery apps that became no task."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue, Unknown
from celeriac.insights.tasks.redaction import of_roles
from celeriac.store.redact import HIDDEN
from celeriac.store.sensitive import Sensitive

MOST = 1_000

#: Maximum bytes of a message that are shown.
SHOWN = 65_536

# With a name the order is by -id: by id, Postgres could walk the primary key, past all other names.
LIST = text("""
SELECT id, at, name, task_id, sender, args, kwargs, reason, size FROM celeriac.dead_letters
WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY id DESC LIMIT :most
""")

LIST_OF = text("""
SELECT id, at, name, task_id, sender, args, kwargs, reason, size FROM celeriac.dead_letters
WHERE name = :name AND -id > -coalesce(CAST(:before AS bigint), 9223372036854775807)
ORDER BY -id LIMIT :most
""")

LETTER = text("""
SELECT id, at, name, task_id, sender, args, kwargs, reason, size, substr(message, 1, :shown) AS message
FROM celeriac.dead_letters WHERE id = :id
""")


def dead_letters(
    connection: Connection, *, name: str | None = None, limit: int = 100, before: int | None = None
) -> list[dict[str, Any]]:
    """Return dead letters, newest first: those for one task (its `name`) or all. Raises BadValue."""
    if not 1 <= limit <= MOST + 1:  # one more row than a page shows whether there is a next page
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    statement, of = (LIST, {}) if name is None else (LIST_OF, {"name": name})
    rows = connection.execute(statement, of | {"before": before, "most": limit}).mappings()
    return _redacted(connection, [dict(row) for row in rows])


def dead_letter(connection: Connection, letter: int) -> dict[str, Any]:
    """Return a dead letter with its message as text, up to the first 64 kB. Raises Unknown."""
    row = connection.execute(LETTER, {"id": letter, "shown": SHOWN}).mappings().one_or_none()
    if row is None:
        raise Unknown(f"there is no dead letter {letter}")
    message = bytes(row["message"]).decode(errors="backslashreplace")
    return _redacted(connection, [dict(row) | {"message": message}])[0]


def _redacted(connection: Connection, letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hide secrets: if the role has any, a message's whole text is hidden, and so are arguments that are a text."""
    secret = of_roles(connection, {letter["name"] for letter in letters if letter["name"]})
    return [_without(letter, secret.get(letter["name"])) for letter in letters]


def _without(letter: dict[str, Any], secret: Sensitive | None) -> dict[str, Any]:
    if secret is None:
        return letter
    args, kwargs = letter["args"], letter["kwargs"]
    reason = secret.values(args, kwargs).without(letter["reason"])
    args = secret.args(args) if isinstance(args, list) else args and HIDDEN
    kwargs = secret.kwargs(kwargs) if isinstance(kwargs, dict) else kwargs and HIDDEN
    message = {"message": HIDDEN} if "message" in letter else {}
    return letter | {"args": args, "kwargs": kwargs, "reason": reason} | message
