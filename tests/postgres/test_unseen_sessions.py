"""What a login may not see of others' sessions is told beside what it sees; the printed statement lets it see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import make_url

from celeriac import Celeriac, Settings
from celeriac.alerts.judgement import judge
from celeriac.doctor.examine import Finding, examine
from celeriac.metrics.exporter import Exporter
from celeriac.store.connections import Database
from tests.conftest import Servers

LOGIN = f"celeriac_reader_{os.getpid()}"

#: As somebody has who reads the engine's tables, and nothing of the server.
MADE = f"""
CREATE ROLE {LOGIN} LOGIN PASSWORD 'secret';
GRANT USAGE ON SCHEMA celeriac TO {LOGIN};
GRANT SELECT ON ALL TABLES IN SCHEMA celeriac TO {LOGIN};
"""


@pytest.fixture
def reader(database: Database, servers: Servers, database_url: str, redis_url: str) -> Iterator[Celeriac]:
    with database.transaction() as connection:
        connection.exec_driver_sql(MADE)
    url = make_url(database_url).set(username=LOGIN, password="secret").render_as_string(hide_password=False)
    app = Celeriac("reader", settings=Settings(database_url=url, redis_url=redis_url), set_as_current=False)
    yield app
    app.publisher.close()
    app.database.dispose()
    with database.transaction() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {LOGIN}; DROP ROLE {LOGIN}")


def found(app: Celeriac) -> dict[str, Finding]:
    return {one.check: one for one in examine(app) if one.check in ("old transactions", "speed")}


def test_what_a_login_may_not_see_of_others_sessions_is_told(
    reader: Celeriac, servers: Servers, database: Database
) -> None:
    """It is no problem: a healthy system whose logins are apart is well."""
    reader.settings = replace(reader.settings, alert_transaction=0.0)
    with database.transaction() as other:
        other.exec_driver_sql("CREATE TABLE written (n integer)")
        cure = f"GRANT pg_read_all_stats TO {LOGIN};"
        told = f"; of other logins' sessions it is not known: {cure}"
        assert {(one.ok, one.says.endswith(told)) for one in found(reader).values()} == {(True, True)}
        servers.execute(cure)
        assert not found(reader)["speed"].says.endswith(told)
        assert "is open for" in found(reader)["old transactions"].says


def test_a_transaction_of_ones_own_is_told_by_a_login_that_sees_no_other(reader: Celeriac) -> None:
    reader.settings = replace(reader.settings, alert_transaction=0.0)
    with reader.database.transaction() as mine:
        mine.exec_driver_sql("SELECT txid_current()")
        assert not found(reader)["old transactions"].ok


def test_an_alert_about_what_could_be_seen_ends_all_the_same(reader: Celeriac) -> None:
    with reader.database.transaction() as connection:
        judged = judge(connection, reader)
    assert {"slow_postgres", "held_snapshot"} <= {*judged.unseen} & {*judged.judged}
    assert judged.unread == []


def test_a_figure_of_sessions_that_are_not_seen_is_left_out_and_is_not_0(
    reader: Celeriac, servers: Servers, database: Database
) -> None:
    names = (b"celeriac_postgres_crowd_ratio ", b"celeriac_oldest_transaction_seconds ")
    with database.transaction() as other:
        other.exec_driver_sql("CREATE TABLE written (n integer)")
        told = Exporter(reader).text()
        assert [name in told for name in names] == [False, False]
        assert b'celeriac_group_unread{group="snapshot"} 0.0' in told
        assert b'celeriac_group_unread{group="postgres"} 0.0' in told
        servers.execute(f"GRANT pg_read_all_stats TO {LOGIN};")
        told = Exporter(reader).text()
        assert [name in told for name in names] == [True, True]
