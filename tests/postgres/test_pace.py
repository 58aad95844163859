"""Whether a role falls behind: for ten counted minutes in a row more came than began."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from celeriac.insights.fleet.one_role import Pace, pace
from celeriac.store.connections import Database
from tests.postgres.finished import registered
from tests.processes import Rows

MINUTES = """INSERT INTO minutes (role, minute, enqueued, started, completed, failed)
    SELECT 'work', until - i * interval '1 minute', CAST(:came AS integer), CAST(:began AS integer), 0, 0
    FROM minutes_until, generate_series(1, 10) i WHERE i <> :but"""

pytestmark = pytest.mark.usefixtures("app")


@pytest.mark.parametrize(
    ("came", "began", "but", "falls"), [(3, 2, 0, True), (3, 2, 4, False), (3, 3, 0, False), (None, None, 0, False)]
)
def test_a_role_falls_behind_in_each_of_ten_minutes(
    database: Database, rows: Rows, came: int | None, began: int | None, but: int, falls: bool
) -> None:
    registered(rows, "work")
    rows("UPDATE minutes_until SET until = date_trunc('minute', now())")
    rows(MINUTES, came=came, began=began, but=but)
    with database.reading() as connection:
        assert pace(connection, "work")["work"].falls_behind is falls


def test_a_pace_is_what_the_role_declares(app: Celeriac, database: Database) -> None:
    @app.task(shared=False, role="slow", every=300.0, wait_objective=60.0)
    def slow() -> None: ...

    app.register_roles()
    with database.reading() as connection:
        assert pace(connection)["slow"] == Pace(300.0, 60.0, falls_behind=False)
