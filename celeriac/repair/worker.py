"""Release a dead worker's tasks now; the rescue sweep does so only after their role's `stale_after`."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.repair.rescue import TICKETS
from celeriac.run import traces
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.shell import argument
from celeriac.store.states import RUNNING

#: A worker that reported within so many seconds is alive.
LIVES = 60.0

HEARD_OF = text("""
SELECT CAST(extract(epoch FROM statement_timestamp() - greatest(
    (SELECT last_heartbeat_at FROM celeriac.workers WHERE worker_id = :worker_id AND status <> 'stopped'),
    (SELECT max(heartbeat_at) FROM celeriac.tickets WHERE worker_id = :worker_id))) AS double precision) AS seconds,
    (SELECT coalesce(sum(cardinality(ids)), 0) FROM celeriac.tickets WHERE worker_id = :worker_id) AS tasks,
    EXISTS (SELECT FROM celeriac.workers WHERE worker_id = :worker_id) AS is_known
""")


def held(connection: Connection, worker_id: str, *, silent: float) -> int:
    """Count the tasks held by a worker that is believed dead.

    Raises Unknown, and IllegalMove for one that reported within the last `silent` seconds.
    """
    heard = connection.execute(HEARD_OF, {"worker_id": worker_id}).one()
    if not heard.is_known and not heard.tasks:
        raise Unknown(f"there is no worker {worker_id!r}")
    if heard.seconds is not None and heard.seconds < silent:
        raise IllegalMove(
            f"worker {worker_id!r} reported {max(0.0, heard.seconds):.0f} s ago, so it lives: let it end with "
            f"`celeriac workers decommission {argument(worker_id)}`; nothing was changed"
        )
    return int(heard.tasks)


def rescue_worker(
    database: Database, worker_id: str, *, silent: float = LIVES, operator: str, patience: float | None = None
) -> Counter[str]:
    """Release a dead worker's tasks; return how many of each role: they wait again, or fail if lost too often.

    A late finish of theirs changes nothing. `patience`: as for `Database.transaction`. Raises as `held`.
    """
    freed: Counter[str] = Counter()
    while True:
        with database.transaction(patience=patience) as connection:
            if not freed:
                held(connection, worker_id, silent=silent)
            tokens = release.of_process(connection, worker_id, None)[:TICKETS]
            done = traces.spare(connection, database.url, tokens)
            done += release.release(
                connection, tokens, started=True, kind="rescue", why="its worker is dead", by=operator, loss=True
            )
            changes = [Change(str(f.id), {"status": RUNNING}, {"status": f.becomes}) for f in done]
            audit.write(connection, "recover-stale", "task", changes, by=operator)
        freed.update(f.role for f in done)
        if not done:
            return freed
