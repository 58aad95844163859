"""Every page and command beside SQL: what counts the same says the same, idle, busy, broken and a day old."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from celeriac.cli import within_celery
from celeriac.store import states
from tests.api.works import task
from tests.dashboard.pages import PAGES
from tests.dashboard.site import Site
from tests.processes import until

COMMANDS = (
    "status", "doctor", "roles metrics", "roles capacity", "workers list", "accounts list crawl", "locks list",
    "schedules list", "failures list", "tasks list", "alerts list", "bulks list", "dead-letters list",
)  # fmt: skip

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency)
    VALUES ('w', 'here', 1, '["crawl"]', 2) ON CONFLICT DO NOTHING"""

#: Of the table of each stage, by what surfaces call it.
STAGES = ("ready", "later", "behind", "parked")


def idle(_: Site) -> None:
    """Nothing has happened."""


def busy(site: Site) -> None:
    """Something in each stage, of several accounts, and a worker at it."""
    site.rows(WORKER)
    for status in states.ALL:
        task(site, status, "crawl")
    site.rows("INSERT INTO celeriac.account_policies (account, paused) VALUES ('shut', true)")
    for account, more in (
        ("a", "now(), NULL, NULL"), ("b", "now() + interval '1 hour', NULL, NULL"), ("a", "now(), 'k', NULL"),
        ("b", "now(), 'k', NULL"), ("shut", "now(), NULL, 'account'"),
    ):  # fmt: skip
        site.rows(
            "INSERT INTO worker_tasks (task_id, role, account, scheduled_for, lock_key, waits_for) "
            f"SELECT gen_random_uuid(), 'crawl', '{account}', {more} FROM generate_series(1, 3)"
        )


def broken(site: Site) -> None:
    """All workers have been silent for an hour."""
    busy(site)
    site.rows("UPDATE celeriac.workers SET last_heartbeat_at = now() - interval '1 hour', status = 'active'")
    site.rows(
        "UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour', started_at = now() - interval '2 hours' "
        "WHERE worker_id IS NOT NULL"
    )


def a_day_old(site: Site) -> None:
    """What is over ended yesterday."""
    busy(site)
    site.rows(
        "UPDATE celeriac.history SET created_at = created_at - interval '26 hours', "
        "completed_at = completed_at - interval '26 hours'"
    )


#: No count, share or time is written like this: nothing, or digits that nobody has measured.
ODD = re.compile(r"\b(?:nan|None|inf)\b|(?<![\w.])-0(?![\w.])|\b\d{6,}\.\d|\b\d+\.\d{4,}\b")

SYSTEMS = (idle, busy, broken, a_day_old)


class Truth:
    """Counts by plain SQL."""

    def __init__(self, site: Site) -> None:
        self.rows = site.rows

    def status(self, status: str, **of: str | None) -> int:
        return self._count("worker_tasks", {"status": status, **of})

    def stage(self, table: str, **of: str | None) -> int:
        return self._count(f"celeriac.{table}", of)

    def ended(self, status: str, role: str) -> int:
        recent = "completed_at > now() - interval '1 hour'"
        return self._count("celeriac.history", {"status": status, "role": role}, recent)

    def _count(self, table: str, of: Mapping[str, str | None], more: str = "true") -> int:
        given = {name: value for name, value in of.items() if value is not None}
        where = " AND ".join([more, *(f"{name} = :{name}" for name in given)])
        return int(str(self.rows.one(f"SELECT count(*) FROM {table} WHERE {where}", **given)))


def expected(shown: Mapping[str, Any], truth: Truth) -> Iterator[tuple[str, int]]:
    """What SQL counts for those fields of an answer that are counts of tasks."""
    names, role = shown.keys(), shown.get("role")
    if {*states.ALL} <= names:
        yield from ((status, truth.status(status, role=role)) for status in states.ALL)
    if {"queue", "pending", *STAGES} <= names:
        yield from ((stage, truth.stage(stage, role=role)) for stage in STAGES)
        yield from ((status, truth.status(status, role=role)) for status in ("pending", "claimed", "running"))
    if "pending_tasks" in names:
        for status in ("pending", "claimed", "running"):
            yield f"{status}_tasks", truth.status(status, role=role)
        yield from ((f"{status}_last_hour", truth.ended(status, role)) for status in ("completed", "failed"))
    if {"role", "queue_depth"} <= names:
        yield "queue_depth", truth.status("pending", role=role) + truth.status("claimed", role=role)
    if {"account", "waiting", "parked", "claimed"} <= names:
        whose = {"role": role, "account": shown["account"]}
        yield "waiting", truth.stage("ready", **whose)
        yield "parked", truth.stage("parked", **whose)
        yield from ((status, truth.status(status, **whose)) for status in ("claimed", "running"))
    if {"worker_id", "task_ids", "concurrency"} <= names:
        holds = truth.status("running", worker_id=shown["worker_id"])
        yield "task_ids", holds
        yield "busy", min(holds, shown["concurrency"])


def texts(site: Site) -> Iterator[tuple[str, str]]:
    for name in COMMANDS:
        done = CliRunner().invoke(within_celery, name.split(), obj=SimpleNamespace(app=site.app))
        yield f"celeriac {name}", done.stdout
    for path in PAGES:
        yield f"/{path}", re.sub(r"<(script|style|svg).*?</\1>|<[^>]+>", " ", site.html(path), flags=re.DOTALL)


def answers(site: Site) -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        done = CliRunner().invoke(within_celery, [*name.split(), "--json"], obj=SimpleNamespace(app=site.app))
        assert done.exit_code in (0, 1), done.output  # the doctor's, where something is wrong
        yield f"celeriac {name}", json.loads(done.stdout)
    for path in PAGES:
        answer = site.get(f"{path}.json")
        assert answer.status_code == 200, path
        yield f"/{path}", answer.json()


def parts(answer: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(answer, list):
        for one in answer:
            yield from parts(one)
    elif isinstance(answer, dict):
        yield answer
        yield from parts([*answer.values()])


def as_number(value: Any) -> Any:
    """A count that is exact, the length of a list, or what stands there."""
    if isinstance(value, dict):
        return value["n"] if value["exact"] else value
    return len(value) if isinstance(value, list) else value


NIGHTLY = pytest.mark.nightly("broken is busy with silent workers; the others have fewer rows")


@pytest.mark.parametrize(
    "system",
    [pytest.param(one, id=one.__name__, marks=() if one in (broken, a_day_old) else NIGHTLY) for one in SYSTEMS],
)
def test_what_is_counted_is_what_sql_counts(site: Site, system: Any) -> None:
    system(site)
    site.reading.forget()
    truth, wrong, compared = Truth(site), [], Counter[str]()
    for where, answer in answers(site):
        for part in parts(answer):
            for name, n in expected(part, truth):
                compared[name] += 1
                if as_number(part[name]) != n:
                    subject = {key: part[key] for key in ("role", "account", "worker_id") if key in part}
                    wrong.append(f"{where} {subject}: {name} is {part[name]}, in SQL {n}")
    wrong += [f"{where}: {said[0]!r}" for where, text in texts(site) for said in ODD.finditer(text)]
    assert wrong == []
    fields = {*states.ALL, *STAGES, "pending_tasks", "queue_depth"}
    assert fields <= compared.keys()
    if system is not idle:
        assert {"waiting", "task_ids", "busy", "completed_last_hour"} <= compared.keys()


#: Else a session that is idle tells what it changed after ten seconds.
FLUSH = "SELECT pg_stat_force_next_flush()"


def test_a_tables_rows_follow_inserts_and_deletes(site: Site) -> None:
    """They stayed at what the last ANALYZE had found: at none, of a table that had never seen one."""

    def shown() -> int:
        site.reading.forget()
        return int({size["name"]: size["about"] for size in site.get("system.json").json()["sizes"]}["tasks"])

    insert = "INSERT INTO worker_tasks (task_id, role) SELECT gen_random_uuid(), 'resync' FROM generate_series(1, 300)"
    site.rows(insert)
    site.rows(FLUSH)
    until(lambda: shown() == 300, "300 rows to be shown")
    site.rows("DELETE FROM worker_tasks WHERE id IN (SELECT id FROM worker_tasks LIMIT 200)")
    site.rows(FLUSH)
    until(lambda: shown() == 100, "100 rows to be shown")
