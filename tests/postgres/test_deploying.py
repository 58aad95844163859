"""`celeriac check --against-database`: what is stored that the new code cannot run, before it is started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import chain, chord, group
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.exc import InternalError

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.doctor import deploying
from celeriac.doctor.deploying import against_database
from celeriac.schedules import operate
from celeriac.schedules.decide import Entry
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.postgres.finished import live_worker
from tests.postgres.stages import claimed, started
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")


#: By role: its handler's parameters, and its options.
OLD: dict[str, tuple[str, dict[str, Any]]] = {
    "stays": ("x", {}), "webhook": ("url, body=None", {}), "narrower": ("x, y=0", {}), "wider": ("x", {}),
    "moves": ("", {}), "off": ("", {}), "locked": ("a, b", {"lock_by": "a"}), "last": ("r, n=1", {}),
    "unlocked": ("a", {}), "urgent": ("r", {}), "routed": ("r", {}), "total": ("rs, n=1", {}), "alarm": ("task_id", {}),
    "each": ("x", {}), "single": ("a, b", {"unique_by": "a"}), "pair": ("result, n, m=0", {}),
}  # fmt: skip

NEW: dict[str, tuple[str, dict[str, Any]]] = {
    "stays": ("x, more=None", {}), "hooks": ("url, body=None", {}), "narrower": ("x", {}), "wider": ("x, tenant", {}),
    "moves": ("", {}), "off": ("", {"enabled_by": "OFF_ENABLED"}),
    "locked": ("a, b", {"lock_by": "b"}), "last": ("r", {}),
    "unlocked": ("a", {"lock_by": "a"}), "urgent": ("r", {"priority_range": (0, 9)}), "routed": ("r", {}),
    "total": ("results, n=1", {}), "each": ("x", {}), "single": ("a, b", {"unique_by": "b"}),
    "pair": ("n, result, m=0", {}),
}  # fmt: skip


def declare(app: Celeriac, roles: dict[str, tuple[str, dict[str, Any]]]) -> Any:
    made: dict[str, Any] = {}
    for role, (parameters, options) in roles.items():
        handlers: dict[str, Any] = {"__name__": __name__}
        exec(f"def {role}({parameters}): return 0", handlers)
        made[role] = app.task(role=role, shared=False, prompt=False, **options)(handlers[role])
    return SimpleNamespace(**made)


@pytest.fixture
def old(app: Celeriac) -> Any:
    """The running release, whose tasks wait."""
    made = declare(app, OLD)
    app.register_roles()
    return made


@pytest.fixture
def new(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celeriac]:
    """The release that is to be deployed."""
    settings = Settings(database_url=database_url, redis_url=redis_url)
    app = Celeriac("new", settings=settings, set_as_current=False)
    app.conf.task_routes = {"moves": {"queue": "elsewhere"}, "routed": {"queue": "slow"}}
    declare(app, NEW)
    monkeypatch.setenv("OFF_ENABLED", "false")
    yield app
    app.publisher.close()


def found(new: Celeriac, **options: Any) -> list[str]:
    return list(map(str, against_database(new, **options).misfits))


def test_what_is_compatible_is_not_named(old: Any, new: Celeriac) -> None:
    old.stays.delay(1)
    old.stays.delay(x=1)
    old.narrower.delay(x=1)
    chain(old.stays.s(1), old.stays.s())()
    chain(old.stays.s(1), group(old.stays.s(), old.stays.si(2)), old.stays.s(), old.urgent.s().set(priority=9))()
    chord([old.stays.s(1), old.stays.s(2)], old.stays.s(more=2).on_error(old.stays.s()))()
    old.each.map([1, 2]).delay()
    assert found(new) == []


def test_each_kind_of_what_it_cannot_run_is_named_once_with_its_count(
    old: Any, app: Celeriac, new: Celeriac, database: Database, rows: Rows
) -> None:
    for _ in range(3):
        old.webhook.delay("https://hooks.example")
    old.narrower.delay(x=1, y=2)
    old.narrower.delay(x=1, y=3)
    started(database, *claimed(database, "narrower"), role="narrower")
    first = old.wider.delay(x=1).row_id
    old.moves.delay()
    old.off.delay()
    old.locked.delay(a=1, b=2)
    old.single.delay(a=1, b=2)
    chain(old.stays.s(1), old.webhook.s())()
    chained = chain(old.stays.s(1), old.last.s(n=2))()
    behind = rows.one("SELECT id FROM worker_tasks WHERE task_id = :id", id=chained.parent.id)
    old.unlocked.delay(1)
    chain(old.stays.s(1), old.urgent.s().set(priority=10))()
    chain(old.stays.s(1), old.routed.s().set(queue="routed"))()
    chord([old.stays.s(1), old.stays.s(2)], old.total.s(n=2))()
    chain(old.stays.s(1), group(old.stays.s(), chain(old.stays.s(), old.webhook.s())))()
    old.stays.apply_async((1,), link_error=old.alarm.s())
    for name, target, kwargs in (("of nobody", "webhook", {"url": "x"}), ("too much", "narrower", {"x": 1, "y": 2})):
        entry = Entry(kind="task", name=name, cron_expression="@daily", target=target, kwargs=kwargs)
        operate.create(app, entry, by="test")
    told = found(new)
    expected = (
        ("3 unfinished tasks of it can no more run", "role 'webhook' is gone (renamed to 'hooks'?)"),
        ("2 unfinished tasks of role 'narrower' would fail", "unexpected keyword argument 'y'"),
        (f"1 unfinished task of role 'wider' would fail, task {first} for one", "argument: 'tenant'"),
        ("role 'moves' moves to the queue 'elsewhere', which no worker takes", "worker -Q elsewhere"),
        ("role 'off' is switched off by OFF_ENABLED: 1 unfinished task", "OFF_ENABLED=true"),
        ("role 'locked' has lock_by='b', before 'a': 1 unfinished task", "former lock keys"),
        ("role 'single' has unique_by='b', before 'a': 1 unfinished task", "former unique keys"),
        ("2 unfinished tasks of role 'stays' are followed by 'webhook', which is gone", "keep a task of that name"),
        ("role 'unlocked' has lock_by='a', before None: 1 unfinished task", "have no lock keys"),
        (
            "1 unfinished task of role 'stays' are followed by a call that would fail",
            "priority=10: give a whole number",
        ),
        ("1 unfinished task of role 'stays' are followed by a call", "its queue is 'slow', not 'routed'"),
        ("1 unfinished task of role 'total' would fail", "missing a required argument: 'results'"),
        ("1 unfinished task of role 'stays' are followed by 'alarm', which is gone", "`aliases` of its successor"),
        (f"followed by a call that would fail, task {behind} for one", "unexpected keyword argument 'n'"),
        ("the schedule 'of nobody' enqueues 'webhook', which is gone", "celeriac schedules toggle 'of nobody' off"),
        ("the schedule 'too much' would be refused", "unexpected keyword argument 'y'"),
    )
    for parts in expected:
        assert [line for line in told if all(part in line for part in parts)], parts
    assert len(told) == len(expected), told


def test_what_is_passed_by_place_and_would_get_another_name_is_named(old: Any, new: Celeriac) -> None:
    """A task's own arguments have names since its call; those of a link do not."""
    old.pair.delay(1, 2)
    chain(old.stays.s(1), old.pair.si(n=1, result=2))()
    assert found(new) == []
    chain(old.stays.s(1), old.pair.s(n=2))()
    chain(old.stays.s(1), old.pair.s(2))()
    assert ["pair: its argument 1 was 'result', and would be 'n' now" in line for line in found(new)] == [False, True]


SCHEDULED: dict[str, dict[str, Any]] = {
    "too urgent": {"target": "urgent", "kwargs": {"r": 1}, "priority": 10},
    "in a queue that is gone": {"target": "routed", "kwargs": {"r": 1}, "options": {"queue": "routed"}},
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_is_refused_for_whatever_beat_would_refuse(
    old: Any, app: Celeriac, new: Celeriac, name: str
) -> None:
    fine = {"args by place": {"target": "stays", "options": {"args": [1]}}, "fine": {"target": "urgent", "priority": 9}}
    fine["fine"]["kwargs"] = {"r": 1}
    for one, fields in ({name: SCHEDULED[name]} | fine).items():
        operate.create(app, Entry(kind="task", name=one, cron_expression="@daily", **fields), by="test")
    (told,) = found(new)
    assert told.startswith(f"the schedule {name!r} would be refused: {SCHEDULED[name]['target']}")


def test_links_far_behind_are_looked_at(old: Any, new: Celeriac, rows: Rows) -> None:
    chain(old.stays.s(1), *(old.stays.s() for _ in range(30)), old.webhook.s(), *(old.stays.s() for _ in range(30)))()
    assert rows.one("SELECT count(*) FROM celeriac.chain_rests") > 0
    (line,) = found(new)
    assert "role 'stays' are followed by 'webhook', which is gone" in line


def test_a_queue_that_somebody_takes_is_served(old: Any, new: Celeriac, rows: Rows) -> None:
    old.moves.delay()
    live_worker(rows, queues='["elsewhere"]')
    assert found(new) == []


def test_a_queue_that_the_new_workers_will_not_take_is_named(old: Any, new: Celeriac, rows: Rows) -> None:
    old.stays.delay(1)
    live_worker(rows, queues='["stays"]')
    assert found(new, queues={"stays"}) == []
    (line,) = found(new, queues={"others"})
    assert "role 'stays' waits in the queue 'stays', which no worker takes: 1 unfinished task" in line


def test_another_applications_role_can_be_named(old: Any, new: Celeriac) -> None:
    old.webhook.delay("https://hooks.example")
    assert found(new, others={"webhook"}) == []


def test_what_is_looked_at_has_a_bound_and_both_ends_of_a_backlog_are(
    old: Any, new: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploying, "MOST", 4)
    first = old.narrower.delay(x=1, y=2).row_id
    for _ in range(6):
        old.narrower.delay(1)
        old.webhook.delay("https://hooks.example")
    told = against_database(new)
    (of_narrower,) = [one for one in told.misfits if one.kind == "arguments"]
    assert (of_narrower.tasks, of_narrower.at_least, of_narrower.example) == (1, True, first)
    assert "1+ unfinished tasks of role 'narrower' would fail" in str(of_narrower)
    assert any("4+ unfinished tasks of it can no more run" in str(one) for one in told.misfits)
    assert [note for note in told.notes if "the newest and the oldest 2 of them" in note and "'narrower'" in note]


def test_it_may_not_write(old: Any, new: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres itself refuses."""
    old.stays.delay(1)
    monkeypatch.setattr(deploying, "WAITING", text("DELETE FROM celeriac.tasks RETURNING role, 1 AS n"))
    with pytest.raises(InternalError, match="read-only transaction"):
        against_database(new)


def test_the_command_refuses_the_deploy_and_check_alone_notes_what_was_renamed(old: Any, new: Celeriac) -> None:
    def check(*options: str) -> Any:
        return CliRunner().invoke(within_celery, ["check", *options], obj=SimpleNamespace(app=new))

    assert check("--against-database").exit_code == 0
    old.webhook.delay("https://hooks.example")
    refused = check("--against-database")
    assert (refused.exit_code, "role 'webhook' is gone (renamed to 'hooks'?)" in refused.stderr) == (1, True)
    (stored,) = json.loads(check("--against-database", "--json").stdout)["stored"]
    assert {name: stored[name] for name in ("kind", "name", "tasks", "at_least")} == {
        "kind": "role gone", "name": "webhook", "tasks": 1, "at_least": False
    }  # fmt: skip
    assert check("--against-database", "--other", "webhook").exit_code == 0
    alone = check()
    assert alone.exit_code == 0
    assert (
        "note: role 'webhook' has 1 unfinished task and is not declared here: was it renamed to 'hooks'?"
        in alone.stdout
    )
