"""What a filled database has of each kind, as statements are asked for it."""

from __future__ import annotations

import uuid
from hashlib import md5
from typing import Any

from sqlalchemy import Connection

from tests.postgres.backlog import TOKEN

Given = dict[str, Any]

SELECTED = 60


class Selected:
    """60 of what is there."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.accounts = self.found(
            f"SELECT DISTINCT account FROM celeriac.ready WHERE role = 'work' ORDER BY 1 LIMIT {SELECTED}"
        )
        self.running = self.found(f"SELECT unnest(ids) FROM celeriac.tickets WHERE token = '{TOKEN}'")
        self.silent = self.found("SELECT CAST(token AS text) FROM celeriac.tickets WHERE worker_pid = 2")
        self.failed = self.found(f"""SELECT id FROM celeriac.history WHERE task_id LIKE 'done-%%' AND status = 'failed'
            LIMIT {SELECTED}""")
        self.ready, self.heads = self.ids("ready"), self.ids("head")
        (self.schedule,) = self.found("SELECT id FROM celeriac.scheduled_jobs WHERE name = 'nightly'")
        (self.letter,) = self.found("SELECT max(id) FROM celeriac.dead_letters")
        self.barriers = [str(uuid.UUID(md5(f"{name}".encode()).hexdigest())) for name in
            ("wide", "body-1", "body-2", *(f"body-{i}" for i in range(3, SELECTED)))]  # fmt: skip
        self.keys = ["held", *(f"key-{i}" for i in range(SELECTED)), *(f"look-{i}" for i in range(20))]
        self.task_ids = [f"ready-{i}" for i in range(1, SELECTED)]
        # Where the long history is not: a fold costs what ended in its minute.
        (self.since, self.until) = connection.exec_driver_sql(
            "SELECT now() - interval '4 min', now() - interval '3 min'"
        ).one()
        (self.began, self.ahead) = connection.exec_driver_sql(
            "SELECT now() - interval '1 hour', now() + interval '1 minute'"
        ).one()

    def found(self, query: str) -> list[Any]:
        return list(self.connection.exec_driver_sql(query).scalars())

    def ids(self, prefix: str, n: int = SELECTED) -> list[int]:
        return self.found(f"SELECT id FROM celeriac.tasks WHERE task_id LIKE '{prefix}-%%' ORDER BY id LIMIT {n}")
