"""Where the systems before this one ran, their tables are there already, and stay as they are."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from celeriac.store.migrate import migrate
from models import DispensaryCrawlJob, JobRunLog, JobSchedule
from tests.conftest import APPLICATION


def test_tables_of_the_old_systems_are_taken_over_with_what_they_hold(empty_url: str) -> None:
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        for model in (JobSchedule, JobRunLog, DispensaryCrawlJob):
            model.__table__.create(connection)  # type: ignore[attr-defined]
        connection.execute(text("INSERT INTO job_schedules (job_name) VALUES ('resync')"))
    migrate(engine, APPLICATION)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT job_name, enabled FROM job_schedules")).all() == [("resync", True)]
    engine.dispose()
