"""`celeriac check --against-database`: what is stored that the new code cannot run, before it is started."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import chain
from click.testing import CliRunner

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
}  # fmt: skip

NEW: dict[str, tuple[str, dict[str, Any]]] = {
    "stays": ("x, more=None", {}), "hooks": ("url, body=None", {}), "narrower": ("x", {}), "wider": ("x, tenant", {}),
    "moves": ("", {}), "off": ("", {"enabled_by": "OFF_ENABLED"}),
    "locked": ("a, b", {"lock_by": "b"}), "last": ("r", {}),
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
    app.conf.task_routes = {"moves": {"queue": "elsewhere"}}
    declare(app, NEW)
    monkeypatch.setenv("OFF_ENABLED", "false")
    yield app
    app.publisher.close()


def found(new: Celeriac) -> list[str]:
    return against_database(new)


def test_what_is_compatible_is_not_named(old: Any, new: Celeriac) -> None:
    old.stays.delay(1)
    old.stays.delay(x=1)
    old.narrower.delay(x=1)
    chain(old.stays.s(1), old.stays.s())()
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
    chain(old.stays.s(1), old.webhook.s())()
    chained = chain(old.stays.s(1), old.last.s(n=2))()
    behind = rows.one("SELECT id FROM worker_tasks WHERE task_id = :id", id=chained.parent.id)
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
        ("1 unfinished task of role 'stays' are followed by 'webhook', which is gone", "keep a task of that name"),
        (f"followed by a call that would fail, task {behind} for one", "unexpected keyword argument 'n'"),
        ("the schedule 'of nobody' enqueues 'webhook', which is gone", "celeriac schedule toggle 'of nobody' off"),
        ("the schedule 'too much' would be refused", "unexpected keyword argument 'y'"),
    )
    for parts in expected:
        assert [line for line in told if all(part in line for part in parts)], parts
    assert len(told) == len(expected), told


def test_a_queue_that_somebody_takes_is_served(old: Any, new: Celeriac, rows: Rows) -> None:
    old.moves.delay()
    live_worker(rows, queues='["elsewhere"]')
    assert found(new) == []


def test_another_applications_role_can_be_named(old: Any, new: Celeriac) -> None:
    old.webhook.delay("https://hooks.example")
    assert against_database(new, {"webhook"}) == []


def test_what_is_looked_at_has_a_bound(old: Any, new: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "MOST", 2)
    for _ in range(4):
        old.webhook.delay("https://hooks.example")
    (line,) = found(new)
    assert "2+ unfinished tasks of it can no more run" in line


def test_the_command_refuses_the_deploy_and_check_alone_notes_what_was_renamed(old: Any, new: Celeriac) -> None:
    def check(*options: str) -> Any:
        return CliRunner().invoke(within_celery, ["check", *options], obj=SimpleNamespace(app=new))

    assert check("--against-database").exit_code == 0
    old.webhook.delay("https://hooks.example")
    refused = check("--against-database")
    assert (refused.exit_code, "role 'webhook' is gone (renamed to 'hooks'?)" in refused.stderr) == (1, True)
    assert check("--against-database", "--other", "webhook").exit_code == 0
    alone = check()
    assert alone.exit_code == 0
    assert (
        "note: role 'webhook' has 1 unfinished task and is not declared here: was it renamed to 'hooks'?"
        in alone.stdout
    )
