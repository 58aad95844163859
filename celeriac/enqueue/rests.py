"""Store the links of long chains that no task's row carries yet, in the transaction of the row that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, text

from celeriac.enqueue.rows import NewTask, Rest

#: Blocks in one statement, of many chains or of one that has more.
BLOCKS = 1000

# The same may be sent again, by whoever did not hear that it was committed.
KEEP = text("""
INSERT INTO celeriac.chain_rests (chain, place, workflow, links)
SELECT r.chain, CAST(nth AS integer) - 1, r.workflow, block
FROM jsonb_to_recordset(CAST(:rests AS jsonb)) AS r (chain uuid, workflow text, blocks jsonb),
    jsonb_array_elements(r.blocks) WITH ORDINALITY AS b (block, nth)
ON CONFLICT DO NOTHING
""")


def keep(connection: Connection, tasks: Iterable[NewTask]) -> None:
    """Store what these tasks' rows do not carry of their chains; most have none."""
    rests: list[Rest] = []
    blocks = 0
    for task in tasks:
        if task.rest is not None:
            rests.append(task.rest)
            blocks += len(task.rest.blocks)
            if blocks >= BLOCKS:
                _keep(connection, rests)
                rests, blocks = [], 0
    if rests:
        _keep(connection, rests)


def _keep(connection: Connection, rests: Iterable[Rest]) -> None:
    stored = [{"chain": rest.chain, "workflow": rest.workflow, "blocks": rest.blocks} for rest in rests]
    connection.execute(KEEP, {"rests": json.dumps(stored)})
