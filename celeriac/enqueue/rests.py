"""Store the links of long chains that no task's row carries yet, in the transaction of the row that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, text

from celeriac.enqueue.rows import NewTask

# The same may be sent again, by whoever did not hear that it was committed.
KEEP = text("""
INSERT INTO celeriac.chain_rests (chain, place, workflow, links)
SELECT CAST(:chain AS uuid), CAST(nth AS integer) - 1, CAST(:workflow AS text), block
FROM jsonb_array_elements(CAST(:blocks AS jsonb)) WITH ORDINALITY AS b (block, nth)
ON CONFLICT DO NOTHING
""")


def keep(connection: Connection, tasks: Iterable[NewTask]) -> None:
    """Store what these tasks' rows do not carry of their chains; most have none."""
    for task in tasks:
        if (rest := task.rest) is not None:
            blocks = {"chain": rest.chain, "workflow": rest.workflow, "blocks": json.dumps(rest.blocks)}
            connection.execute(KEEP, blocks)
