"""Gates: tasks that keep a chord's body waiting while members are still being enqueued.

The header of a chord may be a slow generator. Its members start as they come, while a gate counts as one more
unfinished member. The gate is removed in the transaction that enqueues the last members. If the enqueuing process dies
before that, the gate expires and the body fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from celeriac.enqueue.rows import NewTask
from celeriac.store import look
from celeriac.store.ids import fresh_id
from celeriac.store.plans import lookups

#: Seconds that a gate waits for the last members before it expires.
AT_THE_LATEST = 3600.0

# This also writes the number of results to the body's row: it was not known when the body was enqueued.
CLOSE = text("""
WITH gate AS MATERIALIZED (
    SELECT id, barrier FROM celeriac.tasks WHERE task_id = ANY (CAST(:gates AS text[]))
), left_rooms AS MATERIALIZED (
    SELECT celeriac.leave(ARRAY(SELECT id FROM gate))
), gone AS (
    DELETE FROM celeriac.tasks
    WHERE id = ANY (ARRAY(SELECT id FROM gate)) AND (SELECT count(*) FROM left_rooms) = 1
    RETURNING barrier
), counted AS (
    UPDATE celeriac.tasks t SET headers = jsonb_set(headers, '{canvas,places}', to_jsonb(CAST(:places AS integer)))
    WHERE t.id = ANY (ARRAY(SELECT b.id FROM celeriac.barriers b JOIN gate g ON g.barrier = b.barrier))
), to_join AS (
    INSERT INTO celeriac.joins (barrier) SELECT DISTINCT barrier FROM gone
)
SELECT DISTINCT CAST(barrier AS text) FROM gone
""")


def gate(member: NewTask) -> NewTask:
    """Return the gate to enqueue with the first member, while the last one is not known yet."""
    return NewTask(
        task_id=fresh_id(), role=member.role, args="[]", kwargs="{}", headers={"canvas": {"gate": True}},
        delay=AT_THE_LATEST, expires_in=AT_THE_LATEST, enqueued_by=member.enqueued_by, workflow=member.workflow,
        barrier=member.barrier, is_named=False, is_part=True,
    )  # fmt: skip


def close(connection: Connection, gates: Sequence[str], places: int) -> None:
    """Remove the gates and write the number of results to the body, which is checked after the commit."""
    with lookups(connection):
        barriers = connection.execute(CLOSE, {"gates": list(gates), "places": places}).scalars().all()
    look.ask_joins(connection, barriers)
