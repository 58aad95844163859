"""A database is as one that has just been migrated, also where its template was made yesterday."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import create_engine, text

from celeriac.store.migrate import migrate
from celeriac.testing.servers import DAYS_AHEAD, Servers, today
from tests.processes import Rows

DAYS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'celeriac.history'::regclass ORDER BY 1"

SHIFT = """
SELECT celeriac.drop_history_day(CAST(:today AS date) + :ahead), celeriac.add_history_day(CAST(:today AS date) - 1)
"""


def test_a_template_of_yesterday_has_todays_days(servers: Servers) -> None:
    with servers.template(migrate) as template:
        with servers.cloned(template) as url:
            fresh = Rows(url)
            wanted = fresh(DAYS)
            fresh.close()
        engine = create_engine(servers.database(template))
        with engine.begin() as connection:
            connection.execute(text(SHIFT), {"today": today(), "ahead": DAYS_AHEAD})
        engine.dispose()
        servers.made[template] = today() - timedelta(days=1)
        with servers.cloned(template) as url:
            renewed = Rows(url)
            assert renewed(DAYS) == wanted
            renewed.close()
        assert servers.made[template] == today()
