"""A time that names no zone is UTC, whatever the database's own zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import make_url

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

DUE = "SELECT scheduled_for AT TIME ZONE 'UTC' FROM worker_tasks ORDER BY id"


def test_a_retry_waits_for_the_same_time_as_an_enqueue(
    app: Celeriac, database: Database, database_url: str, rows: Rows
) -> None:
    rows(f"ALTER DATABASE {make_url(database_url).database} SET timezone = 'America/New_York'")
    when = datetime.now(UTC).replace(tzinfo=None, microsecond=0) + timedelta(days=1)

    @app.task(role="work", bind=True, shared=False, max_retries=3)
    def work(self: Any) -> None:
        raise self.retry(eta=when)

    work.apply_async(eta=when)
    work.delay()
    run_ticket(app, work.name, *claimed(database, "work"))
    assert rows(DUE) == [(when,), (when,)]
