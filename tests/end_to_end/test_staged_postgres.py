"""Staged incidents of Postgres itself: transactions without a session, a standby's, and a schema of another release."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from celeriac.doctor import examine
from celeriac.insights.why.blockers import blockers
from faults.standby import Standby
from tests.end_to_end.staging import Staged
from tests.processes import Rows, until

pytestmark = pytest.mark.usefixtures("well")


@pytest.fixture(scope="module")
def settings_of_postgres() -> dict[str, str]:
    return {"max_prepared_transactions": "10"}


def cure_of(staged: Staged, subject: str) -> str:
    (cure,) = [str(one.cure) for one in examine(staged.module.app) if one.says.startswith(f"{subject}: ")]
    return cure


def test_a_prepared_transaction_that_holds_a_tasks_row(staged: Staged) -> None:
    """It has no process, and nobody waits for it: `why` of the task names it as well."""
    staged.broken("hangs")
    task = staged.module.report.delay()
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    with staged.psql(
        "UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'", "PREPARE TRANSACTION 'it''s'"
    ):
        pass
    staged.names("held_lock", "prepared it's", "rows or tables of ", "those of 1 tasks that should go on")
    assert "prepared it's" in staged.command("why", task.id).stdout
    staged.rows(re.findall(r"ROLLBACK PREPARED '.*?';", cure_of(staged, "prepared it's"))[0])
    staged.is_over("held_lock")


def test_a_prepared_transaction_that_has_locked_a_table(staged: Staged) -> None:
    with staged.psql("LOCK TABLE celeriac.tasks IN ACCESS EXCLUSIVE MODE", "PREPARE TRANSACTION 'forgotten'"):
        pass
    staged.names("locked_table", "prepared forgotten", "rows or tables of tasks")
    staged.rows("COMMIT PREPARED 'forgotten'")
    staged.is_over("locked_table")


def test_only_the_prepared_transaction_that_is_waited_for_is_in_the_way(staged: Staged) -> None:
    def met() -> list[tuple[str, int]]:
        with staged.module.app.database.statement() as connection:
            return [(one.name, one.waiting) for one in blockers(connection) if not one.pid]

    staged.rows("INSERT INTO account_policies (account, weight) VALUES ('waits', 1)")
    touches = "UPDATE celeriac.account_policies SET weight = 2 WHERE account = 'waits'"
    for name, statement in (("beside", "LOCK TABLE celeriac.tasks IN ROW EXCLUSIVE MODE"), ("before", touches)):
        with staged.psql(statement, f"PREPARE TRANSACTION '{name}'"):
            pass
    waiting = threading.Thread(target=staged.rows, args=(touches,))
    waiting.start()
    try:
        until(lambda: ("before", 1) in met(), "it to be open for two seconds, and waited for")
        assert met() == [("before", 1)]
    finally:
        for name in ("before", "beside"):
            staged.rows(f"ROLLBACK PREPARED '{name}'")
        waiting.join()
        staged.rows("DELETE FROM account_policies WHERE account = 'waits'")


def test_a_prepared_transaction_that_keeps_what_is_dead(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    app = staged.module.app
    monkeypatch.setattr(app, "settings", replace(app.settings, alert_transaction=3.0))
    with staged.psql("CREATE TABLE public.written (n integer)", "PREPARE TRANSACTION 'forgotten'"):
        pass
    staged.is_first("held_snapshot", "Postgres", "forgotten ", "prepared", "nothing that died since can be vacuumed")
    staged.rows("ROLLBACK PREPARED 'forgotten'")
    staged.is_over("held_snapshot")


class Feeding(Standby):
    """A standby with a slot, that reports what its queries still read."""

    def _run_initdb(self, home: Path) -> None:
        super()._run_initdb(home)
        lines = ("primary_slot_name = 'reports'", "hot_standby_feedback = on", "wal_receiver_status_interval = 1")
        with (home / "postgresql.auto.conf").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


@contextmanager
def report_on_a_standby(staged: Staged, folder: Path) -> Iterator[None]:
    """A transaction there that has read, and goes on."""
    staged.rows("SELECT pg_create_physical_replication_slot('reports')")
    standby = Feeding(folder, staged.postgres)
    standby.start()
    rows = Rows(standby.url)
    try:
        with rows.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            connection.exec_driver_sql("SELECT count(*) FROM celeriac.tasks")
            yield
    finally:
        rows.close()
        standby.stop()


def test_a_standby_whose_slot_keeps_what_is_dead(staged: Staged, tmp_path: Path) -> None:
    """It has an id and no time: it is as old as the minutes that were counted since."""
    with report_on_a_standby(staged, tmp_path):
        until(lambda: staged.rows("SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL"), "the slot to hold an id")
        staged.rows("INSERT INTO celeriac.minutes (role, minute) SELECT 'work', now() - interval '20 minutes'")
        staged.is_first("held_snapshot", "Postgres", "reports ", "slot", "is open for 18 min")
        (cure,) = re.findall(r"SELECT pg_drop_replication_slot\('.*?'\);", cure_of(staged, "Postgres"))
    until(lambda: staged.rows("SELECT FROM pg_replication_slots WHERE NOT active"), "the standby to be gone")
    staged.rows(cure)
    staged.is_over("held_snapshot")


def test_a_schema_that_is_behind_the_code(staged: Staged) -> None:
    """The former release's: this code's last revision has not been applied."""
    (last,) = staged.rows("SELECT version_num, runs_from FROM celeriac.version")
    former = f"celeriac_{int(str(last[0])[-4:]) - 1:04}"
    staged.rows("UPDATE celeriac.version SET version_num = :former", former=former)
    try:
        staged.names("schema_behind", "the schema", f"lacks {last[0]}, which this code has")
        assert "`celeriac migrate`" in cure_of(staged, "the schema")
    finally:
        staged.rows("UPDATE celeriac.version SET version_num = :last", last=last[0])
    staged.is_over("schema_behind")


def test_a_schema_that_lacks_what_status_reads_is_named_and_nothing_else(staged: Staged) -> None:
    """No error hides what is wrong, where a table that this code reads is not there yet."""
    (last,) = staged.rows("SELECT version_num, runs_from FROM celeriac.version")
    staged.rows("UPDATE celeriac.version SET version_num = 'celeriac_0001'")
    staged.rows("ALTER TABLE celeriac.beats RENAME TO beats_to_come")
    try:
        lines = staged.status(whole=True).splitlines()
        assert lines[0].startswith("wrong     schema_behind the schema: lacks celeriac_0002, ")
        assert "unknown   beats: the schema is not this code's" in lines
    finally:
        staged.rows("ALTER TABLE celeriac.beats_to_come RENAME TO beats")
        staged.rows("UPDATE celeriac.version SET version_num = :last", last=last[0])
    staged.is_over("schema_behind")


def test_a_schema_that_is_ahead_of_the_code(staged: Staged) -> None:
    """Of a release that this code does not run on; one that it runs on is nothing."""
    (last,) = staged.rows("SELECT version_num, runs_from FROM celeriac.version")
    change = "UPDATE celeriac.version SET version_num = :reached, runs_from = :runs_from"
    try:
        staged.rows(change, reached="celeriac_9999", runs_from=last[0])
        staged.is_well()
        staged.rows(change, reached="celeriac_9999", runs_from="celeriac_9999")
        staged.names("schema_ahead", "the schema", "does not know celeriac_9999", "run the release that migrated it")
    finally:
        staged.rows(change, reached=last[0], runs_from=last[1])
    staged.is_over("schema_ahead")


def test_a_synchronous_standby_that_is_gone(staged: Staged) -> None:
    """No commit ends, and the alert is written all the same."""
    staged.rows("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
    staged.rows("SELECT pg_reload_conf()")
    try:
        staged.is_first(
            "slow_commits",
            "Postgres",
            " sessions wait for their commit, the first for ",
            "synchronous_standby_names is 'gone', and 0 of them are connected",
        )
        staged.fires("slow_commits", "Postgres")
        for statement in re.findall("(?:ALTER|SELECT) .*?;", cure_of(staged, "Postgres")):
            staged.rows(statement)
    finally:
        staged.rows("ALTER SYSTEM RESET synchronous_standby_names")
        staged.rows("SELECT pg_reload_conf()")
    staged.is_over("slow_commits")


def test_a_database_that_only_reads(staged: Staged) -> None:
    """Sessions that begin from now on, as after a failover; those there are go on."""
    app, name = staged.module.app, staged.rows.one("SELECT current_database()")
    staged.rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    app.database.dispose()
    try:
        staged.is_first("read_only", "Postgres", "default_transaction_read_only is on by the database")
        (cure,) = re.findall("`(BEGIN READ WRITE; .*?; COMMIT)`", cure_of(staged, "Postgres"))
        staged.rows(cure)
    finally:
        staged.rows(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        app.database.dispose()
    staged.is_over("read_only")
