"""The messages and tracebacks of failures, cached: they never change, and reading them takes long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from celeriac.insights.failures.fingerprints import Kind, kind_of

# A traceback is mostly stored out of line and compressed.
SAID = text("""
SELECT found.id, left(split_part(found.error_message, chr(10), 1), 500) AS message,
    right(found.result ->> 'traceback', 2000) AS traceback
FROM celeriac.history_with(CAST(:ids AS bigint[])) AS found
WHERE found.completed_at = ANY (CAST(:times AS timestamptz[]))
""")


class Said(NamedTuple):
    """A failure's `message` (the first line of its error) and kind."""

    message: str
    kind: Kind


#: Errors that were read already. They never change, so only new failures are read.
_known: dict[tuple[int, str, datetime], Said] = {}

#: Maximum number of errors that are kept.
KEPT = 20_000


def said_by(connection: Connection, rows: Sequence[Any]) -> list[Said]:
    """Return the error of each row (id, task_id, role, account, completed_at); one statement reads the uncached."""
    known = [_known.get((i, task_id, completed_at)) for i, task_id, _, _, completed_at in rows]
    new = [row for row, said in zip(rows, known, strict=True) if said is None]
    fresh = _read(connection, new) if new else {}
    _known.update(fresh)
    for key in list(_known)[: len(_known) - KEPT] if len(_known) > KEPT else ():
        _known.pop(key, None)
    return [
        said or fresh[i, task_id, completed_at]
        for (i, task_id, _, _, completed_at), said in zip(rows, known, strict=True)
    ]


def _read(connection: Connection, new: Sequence[Any]) -> dict[tuple[int, str, datetime], Said]:
    parameters = {"ids": [row.id for row in new], "times": [row.completed_at for row in new]}
    texts = {i: (message or "", traceback) for i, message, traceback in connection.execute(SAID, parameters)}
    fresh: dict[tuple[int, str, datetime], Said] = {}
    for i, task_id, role, _, completed_at in new:
        message, traceback = texts.get(i, ("", None))
        fresh[i, task_id, completed_at] = Said(message, kind_of(role, message, traceback))
    return fresh
