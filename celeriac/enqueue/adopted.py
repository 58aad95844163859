"""Adopt: turn plain Celery's messages into tasks or dead letters, each message once, however often it comes.

A message leaves Redis only after the commit, so it comes again if its adopter was killed in between. The ledger
`adopted` remembers its id for as long as that can happen, even when the task itself is gone because its role keeps no
successes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, text

from celeriac.enqueue import outbox
from celeriac.enqueue.rows import NewTask

#: The largest message that is kept whole, and how much is kept of a larger one (bytes).
MOST_KEPT, BEGINNING = 2**24, 2**16

# INVARIANT: there is one adopter at a time; others would read the same messages and write nothing.
TURN = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac adopted', 0))")

# Ordered by id, so that an adopter and somebody who replays dead letters never deadlock.
NOTE = text("""
INSERT INTO celeriac.adopted (task_id)
SELECT DISTINCT task_id FROM unnest(CAST(:task_ids AS text[])) AS wanted (task_id) ORDER BY task_id
ON CONFLICT DO NOTHING
RETURNING task_id
""")

BURY = text("""
INSERT INTO celeriac.dead_letters (digest, name, task_id, sender, args, kwargs, reason, size, message)
VALUES (:digest, :name, :task_id, :sender, CAST(:args AS jsonb), CAST(:kwargs AS jsonb), :reason, :size, :message)
ON CONFLICT (digest) DO NOTHING
""")


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that becomes no task, and what is known of it; its arguments may be the sender's own `repr` of them."""

    message: bytes
    reason: str
    name: str | None = None
    task_id: str | None = None
    sender: str | None = None
    args: Any = None
    kwargs: Any = None

    def row(self) -> dict[str, Any]:
        whole = len(self.message) <= MOST_KEPT
        return {
            "digest": sha256(self.message).digest(),
            "name": self.name,
            "task_id": self.task_id,
            "sender": self.sender,
            "args": None if self.args is None else json.dumps(self.args),
            "kwargs": None if self.kwargs is None else json.dumps(self.kwargs),
            "reason": self.reason.replace("\x00", "").encode(errors="replace").decode()[:1000],
            "size": len(self.message),
            "message": self.message if whole else self.message[:BEGINNING],
        }


def has_turn(connection: Connection) -> bool:
    """Return whether no other transaction is adopting; then none can until this one ends."""
    return bool(connection.execute(TURN).scalar_one())


def adopt(connection: Connection, tasks: Sequence[NewTask]) -> set[str]:
    """Enqueue those tasks whose ids were not adopted before, and return their lanes."""
    if not tasks:
        return set()
    new = set(connection.execute(NOTE, {"task_ids": [task.task_id for task in tasks]}).scalars())
    fresh = [task for task in tasks if task.task_id in new]
    if fresh:
        outbox.enqueue_or_put(connection, fresh)
    return {task.lane for task in fresh}


def bury(connection: Connection, letters: Iterable[Letter]) -> None:
    """Write each of these messages as a dead letter, once, however often it comes."""
    if rows := sorted((letter.row() for letter in letters), key=itemgetter("digest")):
        connection.execute(BURY, rows)
