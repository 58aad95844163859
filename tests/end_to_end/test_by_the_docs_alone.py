"""Whoever knows only the runbooks' index finds an incident, its page and its cure: each step as it is written there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.end_to_end.staging import Staged
from tests.processes import ROOT, until

RUNBOOKS = ROOT / "docs" / "runbooks"

#: Seconds from the index to the cure, without those that commands take.
MOST = 120.0

FOR_LONG = "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b"


pytestmark = pytest.mark.usefixtures("well")


def entry(symptom: str) -> tuple[str, list[str]]:
    """The index' line: the first command, and the pages that come after it."""
    (line,) = [one for one in (RUNBOOKS / "README.md").read_text().splitlines() if one.startswith(f"| {symptom} |")]
    return re.findall(r"`celeriac ([^`]+)`", line)[0], re.findall(r"\((\w+)\.md\)", line)


def commands(page: str) -> list[str]:
    """What a page says to look at, in its order."""
    look = (RUNBOOKS / f"{page}.md").read_text().partition("## Look")[2].partition("## Cure")[0]
    return [line.partition("#")[0].strip() for line in re.findall(r"^    celeriac (.*)$", look, re.MULTILINE)]


def query(page: str) -> str:
    return re.findall(r"```sql\n(.*?)```", (RUNBOOKS / f"{page}.md").read_text(), re.DOTALL)[0]


def printed(staged: Staged, command: str) -> str:
    return staged.command(*shlex.split(command)).stdout


def first_page(staged: Staged, command: str, pages: list[str]) -> str:
    """The page that the command names first, once it names one of the index' line."""

    def named() -> str:
        match = re.search(r"docs/runbooks/(\w+)\.md", printed(staged, command))
        return match[1] if match and match[1] in pages else ""

    return staged.within(MOST, named, f"`{command}` to name one of {pages} first")


def test_one_customers_jobs_are_stuck(staged: Staged) -> None:
    command, pages = entry("one customer's jobs are stuck")
    assert command == "tasks list --account acme --status pending"
    staged.broken("hangs")
    holder = staged.module.report.delay(key="stuck", account="other")
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    waiting = staged.module.report.using(account="acme").delay(key="stuck", account="acme")
    staged.rows("UPDATE celeriac.tickets SET started_at = now() - interval '61 minutes' WHERE worker_id IS NOT NULL")
    began = staged.clock()
    assert str(waiting.row_id) in printed(staged, command)
    assert f"task {holder.row_id} (report) is running and has its lock" in printed(staged, f"why {waiting.row_id}")
    assert "stuck_key" in pages
    locks, doctor, *_ = commands("stuck_key")
    assert "key:stuck" in printed(staged, locks)
    assert first_page(staged, doctor, pages) == "stuck_key"
    (cure,) = re.findall(rf"`celeriac (tasks cancel {holder.row_id})`", printed(staged, doctor))
    assert staged.command(*shlex.split(cure)).exit_code == 0
    staged.mended()
    staged.is_over("stuck_key")
    assert staged.clock() - began < MOST


def test_nothing_runs_because_of_an_open_transaction(staged: Staged) -> None:
    command, pages = entry("nothing runs")
    with staged.psql("LOCK TABLE celeriac.tasks IN ACCESS EXCLUSIVE MODE") as pid:
        began = staged.clock()
        page = first_page(staged, command, pages)
        assert page == "locked_table"
        assert [f"pid {pid} " in printed(staged, look) for look in commands(page)] == [True, True]
        assert [row[0] for row in staged.rows(query(page))] == [pid]
        staged.cured(page)
        assert staged.clock() - began < MOST


def test_the_database_is_at_its_limit(staged: Staged) -> None:
    command, pages = entry("the database is at 100 %")
    with staged.burners(FOR_LONG):
        began = staged.clock()
        page = first_page(staged, command, pages)
        assert page == "slow_postgres"
        assert all("SELECT count(*)" in printed(staged, look) for look in commands(page))
        assert {row[-1] for row in staged.rows(query(page))} >= {FOR_LONG[:100]}
        staged.cured(page)
        assert staged.clock() - began < MOST


def test_each_page_of_the_index_is_there_and_each_runbook_is_in_it() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    pages = {page.stem for page in Path(RUNBOOKS).glob("*.md")} - {"README"}
    assert set(re.findall(r"\((\w+)\.md\)", index)) == pages
