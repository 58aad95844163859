"""Gates: what keeps a chord's body waiting while members are still being enqueued.

The header of a chord may be a generator that takes its time. Its members begin as they come, and a gate counts as one
that has not finished. It goes with the last members, in one transaction. If whoever enqueues dies before that, the gate
expires, and the body fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from celeriac.enqueue.rows import NewTask
from celeriac.store import look
from celeriac.store.ids import fresh_id
from celeriac.store.plans import lookups

#: After so long (seconds) without an end a gate gives up.
AT_THE_LATEST = 3600.0

# The body is told how many results it gets: nobody knew when it was enqueued.
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
    """Beside the first member that is enqueued before the last one is known."""
    return NewTask(
        task_id=fresh_id(), role=member.role, args="[]", kwargs="{}", headers={"canvas": {"gate": True}},
        delay=AT_THE_LATEST, expires_in=AT_THE_LATEST, enqueued_by=member.enqueued_by, workflow=member.workflow,
        barrier=member.barrier, is_named=False, is_part=True,
    )  # fmt: skip


def close(connection: Connection, gates: Sequence[str], places: int) -> None:
    """They go; the body gets so many results, and is looked at after the commit."""
    with lookups(connection):
        barriers = connection.execute(CLOSE, {"gates": list(gates), "places": places}).scalars().all()
    look.ask_joins(connection, barriers)
