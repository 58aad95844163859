"""The commands of the whole system, and what holds of all commands."""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

import pytest
from click.testing import CliRunner

from celeriac import Celeriac, Hashed
from celeriac.cli import main, output
from celeriac.operate import tokens
from celeriac.store.connections import Database
from tests.postgres.commands.results import DONE, PROBLEM, REFUSED, USAGE, Run, value
from tests.processes import Rows


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db:5432/shop", "postgresql://me:a/hunter2@x@db/shop", "redis://:hunter2@r:6379/0",
        "postgresql://db/shop?user=me&password=hunter2&sslmode=require",
    ],
)  # fmt: skip
def test_no_password_is_printed(url: str) -> None:
    shown = output.without_password(url)
    assert "hunter2" not in shown
    assert shown.replace("***", "") in (url.replace(secret, "") for secret in ("hunter2", "a/hunter2@x"))


def test_numbers_that_cannot_be_are_refused(run: Run) -> None:
    assert run("tasks", "list", "--older-than", "nan").exit_code == REFUSED
    assert run("tasks", "cancel", "--role", "work", "--most", -1).exit_code == REFUSED
    for command in (
        ("status", "--every", -1), ("status", "--every", "inf"), ("migrate", "--lock-timeout", -1),
        *(("migrate", "--statement-timeout", seconds) for seconds in ("nan", -1, "inf", "-inf")),
        ("serve", "--port", 65_536),
    ):  # fmt: skip
        refused = run(*command)
        assert refused.exit_code == USAGE
        assert [line[:7] for line in refused.stderr.splitlines()][-1:] == ["Error: "]


def test_an_app_that_is_named_is_that_one_or_none() -> None:
    for name, exit_code in (("tasks", DONE), ("tasks:app", DONE), ("tasks:ap", PROBLEM), ("tasks:stores", PROBLEM)):
        assert CliRunner().invoke(main, ["-A", name, "serve", "--openapi"]).exit_code == exit_code, name


@pytest.mark.parametrize(
    ("seconds", "says"), [(None, "-"), (40, "40 s"), (719, "12 min"), (19_800, "6 h"), (259_200, "3 d")]
)
def test_an_age_is_told_in_one_unit(seconds: float | None, says: str) -> None:
    assert output.age(seconds) == says


def test_a_token_is_shown_once_and_revoked_by_name(run: Run, rows: Rows, database: Database) -> None:
    made = value(run("tokens", "create", "grafana", "--scope", "read", "--days", 30, "--json"))["token"]
    with database.statement() as connection:
        assert tokens.verify(connection, made) is not None
    assert made not in run("tokens", "list", "--json").output
    assert run("tokens", "create", "grafana", "--scope", "read").exit_code == REFUSED
    assert run("tokens", "revoke", "grafana").exit_code == DONE
    assert run("tokens", "revoke", "grafana").exit_code == REFUSED
    with database.statement() as connection:
        assert tokens.verify(connection, made) is None
    assert rows("SELECT action, kind, target FROM celeriac.audit ORDER BY id") == [
        ("create", "token", "grafana"), ("revoke", "token", "grafana"),
    ]  # fmt: skip


def test_check_sweep_and_dispatch_answer_in_json(run: Run) -> None:
    assert value(run("check", "--json"))["problems"] == []
    assert value(run("sweep", "rescue", "prune", "--json")) == {"rescue": 0, "prune": 0}
    assert value(run("roles", "dispatch", "sync", "--json")) == {"role": "sync", "published": 0}


def test_a_task_of_sql_s_is_published_by_the_command_that_why_names(run: Run, rows: Rows) -> None:
    ((task,),) = rows("""SELECT id FROM celeriac.enqueue('sync', '{"store_id": 1}')""")
    told = run("why", task).stdout
    assert "celeriac roles dispatch sync" in told
    assert value(run("roles", "dispatch", "sync", "--json")) == {"role": "sync", "published": 1}
    assert "celeriac roles dispatch sync" not in run("why", task).stdout


def test_openapi_prints_the_document(run: Run) -> None:
    pytest.importorskip("fastapi")
    assert json.loads(run("serve", "--openapi").stdout)["openapi"].startswith("3.")


def test_every_command_takes_json_and_has_a_help() -> None:
    def commands(group: Any) -> list[Any]:
        found = group.commands.values()
        return [c for one in found for c in (commands(one) if hasattr(one, "commands") else [one])]

    for command in commands(main):
        assert "--json" in [option for p in command.params for option in p.opts], command.name
        assert command.help, command.name


def test_check_tells_of_settings_that_are_not_used_without_calling_them_problems(run: Run, app: Celeriac) -> None:
    app.conf.result_backend = "rpc://"
    said = "result_backend='rpc://' is not used: results are the tasks' rows in Postgres"
    assert value(run("check", "--json"))["notes"] == [said]
    assert run("check").stdout.startswith(f"note: {said}\n")


def test_check_notes_arguments_that_look_like_secrets_until_somebody_has_said_whether_they_are(
    run: Run, app: Celeriac
) -> None:
    @app.task(shared=False, role="reset")
    def reset(user: str, api_key: str, token: str) -> None: ...

    @app.task(shared=False, role="page_through", sensitive=())
    def page_through(page_token: str) -> None: ...

    @app.task(shared=False, role="login", sensitive=("password",))
    def login(password: str) -> None: ...

    @app.task(shared=False, role="misspelt", sensitive=("pasword",))
    def misspelt(password: str) -> None: ...

    told = "'api_key', 'token'"
    note = f"role 'reset': every surface shows its {told}: say sensitive=({told},) where that is secret, sensitive=()"
    answer = run("check", "--json")
    assert answer.exit_code == 0
    assert value(answer)["notes"] == [
        "role 'misspelt': sensitive names 'pasword', which is no parameter and hides only a key of that name within "
        "arguments; did you mean 'password'?",
        f"{note} where it is not",
    ]


def test_check_notes_hashed_keys_that_tell_one_account_of_anothers_secrets(run: Run, app: Celeriac) -> None:
    def hashes(name: str, key: Any, **options: Any) -> None:
        @app.task(shared=False, role=name, fair_by="tenant", sensitive=("pin",), **{"unique_by": key} | options)
        def handler(tenant: str, pin: str) -> None: ...

    hashes("shared", Hashed("pin", salt="pepper"))
    hashes("without_salt", Hashed("{tenant}:{pin}"))
    hashes("own", Hashed("{tenant}:{pin}", salt="pepper"))
    answer = run("check", "--json")
    assert answer.exit_code == 0
    told = "whoever may enqueue it can find out others' 'pin' by trying, as a key that is taken is answered"
    assert value(answer)["notes"] == [
        f"role 'shared': {told}: unique_by=Hashed(…) of tenant as well is each account's own",
        f"role 'without_salt': {told}: unique_by=Hashed(…, salt=…) cannot be given as unique_key by who has no salt",
    ]


def test_alerts_are_listed_and_silenced(run: Run, rows: Rows) -> None:
    assert run("alerts", "list").stdout == "nothing fires\n"
    rows("""INSERT INTO alerts (name, subject, value, threshold, says)
        VALUES ('queue_depth', 'sync', 7, 5, '7 tasks wait, more than 5')""")
    rows("INSERT INTO alerts_pending (name, subject) VALUES ('long_wait', 'sync')")
    assert "sync is silenced until" in run("alerts", "silence", "queue_depth", "sync", "--why", "a flood").stdout
    told = run("alerts", "list").stdout
    assert "queue_depth  sync     warn      7 tasks wait, more than 5" in told
    assert "pending   long_wait sync, since" in told
    assert f"silenced  queue_depth sync until {(str(rows.one('SELECT until FROM alert_silences')))[:10]}" in told
    assert f"by cli:{pwd.getpwuid(os.getuid()).pw_name}: a flood" in told
    assert "queue_depth" not in run("status").stdout, "it is so no more"
    found = value(run("alerts", "list", "--json"))
    assert [len(found[name]) for name in ("alerts", "pending", "silences")] == [1, 1, 1]
    assert run("alerts", "unsilence", "queue_depth", "sync").stdout == "queue_depth sync is told again\n"
    assert run("alerts", "unsilence", "queue_depth", "sync").exit_code == REFUSED
    assert run("alerts", "silence", "queue_depth", "--seconds", "0").exit_code == REFUSED
