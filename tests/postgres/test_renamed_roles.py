"""A role that was renamed: by its aliases, or by `celeriac roles move`, what waits under its former name runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import chain, chord
from click.testing import CliRunner, Result

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.doctor.deploying import against_database
from celeriac.doctor.examine import examine
from celeriac.errors import ConfigurationError
from celeriac.schedules import operate
from celeriac.schedules.decide import Entry
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.postgres.stages import claimed, started
from tests.postgres.workflows import run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

Ran = list[tuple[str, Any]]
OPTIONS: dict[str, Any] = {"prompt": False, "chunk": 500, "shared": False, "keep": "forever"}


@pytest.fixture
def old(database_url: str, redis_url: str) -> Iterator[Any]:
    """The release that knows the role as `webhook`."""
    settings = Settings(database_url=database_url, redis_url=redis_url)
    app = Celeriac("old", settings=settings, set_as_current=False)

    @app.task(role="webhook", unique_by="url", fair_by="url", **OPTIONS)
    def webhook(url: str, body: str | None = None) -> None: ...

    @app.task(role="before", **OPTIONS)
    def before() -> str: ...

    app.register_roles()
    yield SimpleNamespace(app=app, webhook=webhook, before=before)
    app.publisher.close()


def renamed(app: Celeriac, *, register: bool = True, **options: Any) -> Ran:
    """The release that calls it `hooks`; which role each task of its handler had, and its argument."""
    ran: Ran = []

    @app.task(role="hooks", bind=True, unique_by="url", fair_by="url", **OPTIONS | options)
    def hooks(self: Any, url: Any, body: str | None = None) -> None:
        ran.append((self.request.task, url))
        if body == "again" and self.request.retries == 0:
            raise self.retry(countdown=0)

    @app.task(role="before", **OPTIONS)
    def before() -> str:
        return "told"

    if register:
        app.register_roles()
    return ran


def run(app: Celeriac, *arguments: object) -> Result:
    given = SimpleNamespace(app=app)
    return CliRunner().invoke(within_celery, [str(a) for a in arguments], obj=given)


def test_what_waits_under_a_former_name_is_run_by_its_handler(old: Any, app: Celeriac, rows: Rows) -> None:
    old.webhook.delay("a")
    old.webhook.delay("b", body="again")
    chain(old.before.s(), old.webhook.s())()
    chord([old.before.s(), old.before.s()], old.webhook.s(body="all"))()
    ran = renamed(app, aliases=("webhook",))
    assert against_database(app).misfits == []
    run_all(app)
    assert sorted(ran, key=str) == sorted(
        [("webhook", "a"), ("webhook", "b"), ("webhook", "b"), ("hooks", "told"), ("webhook", ["told", "told"])],
        key=str,
    )
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]


@pytest.mark.parametrize("name", ["hooks", "webhook"])
@pytest.mark.parametrize("when", ["before the deploy", "after it"])
def test_a_role_is_paused_under_all_its_names(old: Any, app: Celeriac, rows: Rows, name: str, when: str) -> None:
    """Whichever of them is given; and a new name is paused if the former is."""
    paused = "SELECT role FROM celeriac.roles WHERE paused ORDER BY role"
    old.webhook.delay("a")
    if when == "before the deploy":
        assert run(old.app, "roles", "pause", "webhook").exit_code == 0
    ran = renamed(app, aliases=("webhook",))
    if when == "after it":
        assert run(app, "roles", "pause", name).exit_code == 0
    assert rows(paused) == [("hooks",), ("webhook",)]
    run_all(app)
    assert ran == []
    assert run(app, "roles", "resume", name).exit_code == 0
    assert rows(paused) == []
    run_all(app)
    assert ran == [("webhook", "a")]


def test_calls_by_a_former_name_become_tasks_of_the_role(old: Any, app: Celeriac, rows: Rows) -> None:
    """Declared here or not: whoever enqueues by name learns of it from `roles`."""
    renamed(app, aliases=("webhook",))
    app.send_task("webhook", kwargs={"url": "a"})
    app.enqueue_many("webhook", [("b",)])
    app.signature("webhook", args=("c",)).delay()
    entry = Entry(kind="task", name="daily", cron_expression="@daily", target="webhook", kwargs={"url": "d"})
    operate.create(app, entry, by="test")
    operate.run_now(app, "daily", by="test")
    stranger = Celeriac("stranger", settings=app.settings, set_as_current=False)
    stranger.send_task("webhook", kwargs={"url": "e"})
    stranger.publisher.close()
    assert rows("SELECT role, account FROM worker_tasks ORDER BY account") == [("hooks", url) for url in "abcde"]


def test_a_name_is_of_one_role(app: Celeriac) -> None:
    def declare(role: str, **options: Any) -> None:
        @app.task(role=role, shared=False, lazy=False, **options)
        def handler() -> None: ...

    declare("hooks", aliases=("webhook",))
    for role, options, why in (
        ("calls", {"aliases": ("webhook",)}, "'webhook' is a name of role 'hooks': leave it out"),
        ("others", {"aliases": ("hooks",)}, "'hooks' is a name of role 'hooks': leave it out"),
        ("webhook", {}, "'hooks' has this name among its aliases"),
        ("posts", {"aliases": ("posts",)}, "'posts' is its own name: leave it out"),
        ("texts", {"aliases": "webhook"}, "give a tuple of former names"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            declare(role, **options)


def test_what_waits_is_moved_whatever_it_waits_for(old: Any, app: Celeriac, database: Database, rows: Rows) -> None:
    old.webhook.delay("running")
    started(database, *claimed(database, "webhook", account="running"), role="webhook")
    old.webhook.delay("ready")
    old.webhook.apply_async(("later",), countdown=3600)
    for url in ("head", "behind"):
        old.webhook.apply_async((url,), lock_key="k")
    chord([old.before.s(), old.before.s()], old.webhook.s())()
    rows("INSERT INTO celeriac.account_policies (account, paused) VALUES ('parked', true)")
    parked = old.webhook.delay("parked").row_id
    rows("UPDATE worker_tasks SET waits_for = 'account' WHERE id = :id", id=parked)
    ran = renamed(app)
    waiting = rows("SELECT id, waits_for, account FROM worker_tasks WHERE role = 'webhook' AND status = 'pending'")
    assert {waits_for for _, waits_for, _ in waiting} == {None, "time", "lock", "account", "members"}
    assert "6 tasks" in run(app, "roles", "move", "webhook", "hooks", "--preview").stdout
    done = run(app, "roles", "move", "webhook", "hooks", "--yes", "--why", "renamed")
    assert (done.exit_code, done.stdout) == (0, "6 changed, 0 not\n")
    moved = rows("SELECT id, waits_for, account FROM worker_tasks WHERE role = 'hooks'")
    assert sorted(moved, key=str) == sorted(waiting, key=str)
    assert rows("SELECT role, status FROM worker_tasks WHERE account = 'running'") == [("webhook", "running")]
    assert rows("SELECT count(*), max(why) FROM celeriac.task_events WHERE kind = 'moved'") == [
        (6, "from role webhook: renamed")
    ]
    assert rows("SELECT action, kind, after -> 'tasks', why FROM celeriac.audit WHERE action = 'move'") == [
        ("move", "tasks", 6, "renamed")
    ]
    run_all(app)
    assert {url for _, url in ran if isinstance(url, str)} == {"ready", "head", "behind"}


def test_what_would_fail_there_or_has_a_key_of_another_stays(old: Any, app: Celeriac, rows: Rows) -> None:
    renamed(app)
    old.webhook.delay("a")
    old.webhook.delay("b")
    old.before.delay()
    app.send_task("hooks", kwargs={"url": "a"})
    done = run(app, "roles", "move", "webhook", "hooks", "--yes")
    assert (done.exit_code, "1 changed, 1 not" in done.stdout) == (3, True)
    assert "of that role has its unique key" in done.stderr
    refused = run(app, "roles", "move", "before", "hooks", "--yes")
    assert "missing a required argument: 'url'" in refused.stderr
    unknown = run(app, "roles", "move", "before", "nonesuch", "--yes")
    assert (unknown.exit_code, "no role 'nonesuch'" in unknown.stderr) == (3, True)
    assert rows("SELECT role, account FROM worker_tasks ORDER BY account, role") == [
        ("before", ""), ("hooks", "a"), ("webhook", "a"), ("hooks", "b"),
    ]  # fmt: skip


def test_the_check_names_cures_that_cure(old: Any, app: Celeriac) -> None:
    old.webhook.delay("a")
    ran = renamed(app, register=False)
    (line,) = map(str, against_database(app).misfits)
    assert "role='hooks', aliases=('webhook',)" in line
    assert "`celeriac roles move webhook hooks`" in line
    app.register_roles()
    assert json.loads(run(app, "roles", "move", "webhook", "hooks", "--yes", "--json").stdout)["refused"] == {}
    assert against_database(app).misfits == []
    run_all(app)
    assert ran == [("hooks", "a")]


def test_doctor_and_why_name_a_cure_that_cures(old: Any, app: Celeriac) -> None:
    task = old.webhook.delay("a")
    renamed(app)
    (finding,) = (one for one in examine(app) if one.check == "roles" and not one.ok)
    assert "run `celeriac roles move webhook NAME`" in (finding.cure or "")
    assert "celeriac roles move webhook NAME" in run(app, "why", task.id).stdout
    (finding,) = (one for one in examine(old.app) if one.check == "roles" and not one.ok)
    assert "worker -Q webhook" in (finding.cure or "")
