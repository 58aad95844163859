"""Revoke: Celery's word for cancelling. Without `terminate` only tasks that do not run are cancelled.

Every worker receives a broadcast revoke and executes it here; repeating it changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from celeriac.operate.cancel import Cancelled, cancel_all
from celeriac.roles.bounds import is_text
from celeriac.store.connections import Database
from celeriac.store.failures import retry_deadlocks
from celeriac.store.plans import lookups

HOLD = text("""
SELECT count(*) FROM celeriac.hold(
    ARRAY(SELECT id FROM celeriac.tasks WHERE task_id = ANY (CAST(:task_ids AS text[]))), false)
""")

# Runs once the tasks are locked, so none of them starts meanwhile.
REVOCABLE = text("""
SELECT t.task_id FROM celeriac.tasks t
WHERE t.task_id = ANY (CAST(:task_ids AS text[])) AND t.cancel_requested_at IS NULL
    AND (:terminate OR t.id <> ALL (ARRAY(
        SELECT unnest(ids) FROM celeriac.tickets WHERE worker_id IS NOT NULL)))
""")

# The index has only tasks with stamps.
STAMPED = text("""
SELECT task_id FROM celeriac.tasks t
WHERE headers #> '{canvas,stamps}' IS NOT NULL AND EXISTS (
    SELECT FROM jsonb_each(CAST(:stamps AS jsonb)) AS wanted (header, stamps),
        LATERAL (SELECT t.headers #> ARRAY['canvas', 'stamps', header] AS given) AS its,
        jsonb_array_elements(
            CASE jsonb_typeof(given) WHEN 'array' THEN given ELSE jsonb_build_array(given) END) AS stamp (value)
    WHERE wanted.stamps @> stamp.value)
ORDER BY id
""")

Note = Callable[[Connection, Mapping[str, Cancelled]], None]

#: Tasks in one transaction.
BATCH = 200

#: Most ids named in a reply.
MOST_NAMED = 200


def revoke(
    database: Database, task_ids: Sequence[str], *, by: str, terminate: bool, why: str = "revoked",
    note: Note | None = None,
) -> dict[str, Cancelled]:  # fmt: skip
    """Revoke tasks and return which were cancelled, and which were requested to stop. Tasks that are over, or may run
    on, are omitted. `note`: records the requester in the same transaction.
    """
    done: dict[str, Cancelled] = {}
    for some in _batches(task_ids):
        done |= retry_deadlocks(lambda: _revoke(database, some, by=by, terminate=terminate, why=why, note=note))  # noqa: B023
    return done


def _revoke(
    database: Database, task_ids: Sequence[str], *, by: str, terminate: bool, why: str, note: Note | None
) -> Mapping[str, Cancelled]:
    with database.transaction() as connection:
        with lookups(connection):
            connection.execute(HOLD, {"task_ids": list(task_ids)})
            wanted = {"task_ids": list(task_ids), "terminate": terminate}
            revocable = list(connection.execute(REVOCABLE, wanted).scalars())
        done = cancel_all(connection, revocable, by=by, why=why) if revocable else {}
        if done and note is not None:
            note(connection, done)
        return done


def in_words(done: Mapping[str, Cancelled]) -> str:
    """Return the reply to a remote control command."""
    ended = [task_id for task_id, how in done.items() if how == "cancelled"]
    asked = [task_id for task_id, how in done.items() if how == "asked"]
    said = [f"cancelled: {_named(ended)}"] if ended else []
    said += [f"asked to stop: {_named(asked)}"] if asked else []
    return "; ".join(said) or "nothing to cancel: none of these tasks waits, or runs and was to be stopped"


def _named(ids: Sequence[str]) -> str:
    """Join ids, up to a bound: a reply is one message, and one that is too large is dropped."""
    more = len(ids) - MOST_NAMED
    return ", ".join(ids[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def stamped(connection: Connection, stamps: Mapping[str, Any]) -> list[str]:
    """Return the unfinished tasks with one of these stamps: by header, one value or several."""
    lists = {header: list(s) if isinstance(s, list | tuple | set) else [s] for header, s in stamps.items()}
    return list(connection.execute(STAMPED, {"stamps": json.dumps(lists)}).scalars())


def _batches(values: Sequence[Any]) -> Iterator[list[str]]:
    """Return batches of those values that can be ids: a broadcast may contain anything."""
    ids = list(dict.fromkeys(i for i in values if is_text(i)))
    return (ids[n : n + BATCH] for n in range(0, len(ids), BATCH))
