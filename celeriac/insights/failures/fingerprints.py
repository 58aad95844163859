"""The errors of failures, and the fingerprint by which they are grouped.

Two failures are of one kind if they have the same role, type of exception, message without what differs from task to
task (numbers, ids, quoted texts), and innermost own frame. Errors are cached: they never change, and are long to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from celeriac.store.messages import pattern_of

_TYPE = re.compile(r"([A-Za-z_][\w.]*): ")
_FRAME = re.compile(r'^  File "([^"]+)", line \d+, in (.+)$', re.MULTILINE)

#: Files that are not the user's own: those of the engine, of installed packages, of Python.
_OTHERS = (f"{Path(__file__).parents[1]}/", "/site-packages/", "/dist-packages/", "/lib/python", "<")

# A traceback is mostly stored out of line and compressed.
SAID = text("""
SELECT found.id, left(split_part(found.error_message, chr(10), 1), 500) AS message,
    right(found.result ->> 'traceback', 2000) AS traceback
FROM celeriac.history_with(CAST(:ids AS bigint[])) AS found
WHERE found.completed_at = ANY (CAST(:times AS timestamptz[]))
""")

#: Errors that were read already. They never change, so only new failures are read.
_known: dict[tuple[int, str, datetime], Said] = {}

#: Maximum number of errors that are kept.
KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure. `frame`: "file:function". `fingerprint`: a digest of the role and all of these."""

    type: str | None
    pattern: str
    frame: str | None
    fingerprint: str


class Said(NamedTuple):
    """A failure's `message` (the first line of its error) and kind."""

    message: str
    kind: Kind


def kind_of(role: str, message: str, traceback: str | None) -> Kind:
    """Return the kind of a failure: what it has in common with others like it."""
    said = _TYPE.match(message)
    kind = said and said[1]
    pattern, frame = pattern_of(message), own_frame(traceback)
    same = "\n".join((role, kind or "", pattern, frame or ""))
    return Kind(kind, pattern, frame, sha256(same.encode()).hexdigest()[:12])


def own_frame(traceback: str | None) -> str | None:
    """Return the innermost frame of the user's own code as "file:function", without its line, which changes."""
    frames = _FRAME.findall(traceback or "")
    own = [(file, function) for file, function in frames if not any(other in file for other in _OTHERS)]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}" if own else None


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
