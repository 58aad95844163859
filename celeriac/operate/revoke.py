"""Revoke: Celery's word for cancelling. Without `terminate` only what does not run is cancelled.

Every worker hears of a revoke that is broadcast and says it here: said again, it changes nothing.
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

# Asked once the tasks are held: none of them starts meanwhile.
REVOCABLE = text("""
SELECT t.task_id FROM celeriac.tasks t
WHERE t.task_id = ANY (CAST(:task_ids AS text[])) AND t.cancel_requested_at IS NULL
    AND (:terminate OR t.id <> ALL (ARRAY(
        SELECT unnest(ids) FROM celeriac.tickets WHERE worker_id IS NOT NULL)))
""")

# The index has stamped tasks alone.
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

#: Tasks a transaction.
BATCH = 200

#: Ids an answer names.
MOST_NAMED = 200


def revoke(
    database: Database, task_ids: Sequence[str], *, by: str, terminate: bool, why: str = "revoked",
    note: Note | None = None,
) -> dict[str, Cancelled]:  # fmt: skip
    """What became of each that was cancelled, or asked to stop. Those that are over, or run and may, are left out.

    `note`: writes in the same transaction who had it done.
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
    """For whoever asked by remote control."""
    ended = [task_id for task_id, how in done.items() if how == "cancelled"]
    asked = [task_id for task_id, how in done.items() if how == "asked"]
    said = [f"cancelled: {_named(ended)}"] if ended else []
    said += [f"asked to stop: {_named(asked)}"] if asked else []
    return "; ".join(said) or "nothing to cancel: none of these tasks waits, or runs and was to be stopped"


def _named(ids: Sequence[str]) -> str:
    """An answer is one message, and one that is too large is dropped."""
    more = len(ids) - MOST_NAMED
    return ", ".join(ids[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def stamped(connection: Connection, stamps: Mapping[str, Any]) -> list[str]:
    """The unfinished tasks with one of these stamps: by header, a value or several."""
    lists = {header: list(s) if isinstance(s, list | tuple | set) else [s] for header, s in stamps.items()}
    return list(connection.execute(STAMPED, {"stamps": json.dumps(lists)}).scalars())


def _batches(values: Sequence[Any]) -> Iterator[list[str]]:
    """What can be an id at all: whoever broadcasts may say anything."""
    ids = list(dict.fromkeys(i for i in values if is_text(i)))
    return (ids[n : n + BATCH] for n in range(0, len(ids), BATCH))
