"""What logins write past the command line is in the audit trail as what it is."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.cli.up import sign_in_code
from celeriac.operate import audit, enqueuers, tokens
from celeriac.operate.allowed import Allowed
from celeriac.store.connections import Database
from celeriac.worker.panel import Panel
from tests.postgres.logins import PREFIX, Login, denied, login
from tests.processes import Rows

__all__ = ["login"]


def test_an_admin_login_makes_no_token_and_frees_no_login_that_the_trail_does_not_tell(
    login: Login, rows: Rows, app: Celeriac
) -> None:
    """Not even by a row that says something else, as somebody else or as of another time."""
    admin, mine = login("admin").database, f"{PREFIX}_login_admin"
    insert = """INSERT INTO celeriac.api_tokens (id, name, hash, scopes, created_by)
        VALUES (:name, :name, sha256('x'), '{admin}', 'x')"""
    with admin.transaction() as connection:
        connection.execute(text(insert), {"name": "quiet"})
        connection.execute(text(insert), {"name": "false"})
        audit.write(connection, "create", "token", [audit.Change("false", None, {"scopes": ["view"]})], by="bob")
        tokens.create(connection, "told", ["read"], by="ann")
        audit.write(connection, "create", "token", [audit.Change("told", None, {"scopes": ["read"]})], by="ann")
    with admin.transaction() as connection:
        enqueuers.limit(connection, "shop", Allowed.of(["sync"]), by="ann")
    with admin.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM celeriac.enqueuers")
        tokens.revoke(connection, "quiet")
    trail = rows("SELECT target, action, by, after -> 'scopes', login FROM audit ORDER BY target, id")
    assert {one[4] for one in trail} == {mine}
    assert [one[:4] for one in trail] == [
        ("false", "create", "bob", ["view"]), ("false", "insert", mine, ["admin"]),
        ("quiet", "insert", mine, ["admin"]), ("quiet", "update", mine, ["admin"]),
        ("shop", "limit", "ann", None), ("shop", "delete", mine, None), ("told", "create", "ann", ["read"]),
    ]  # fmt: skip
    for statement in (
        "INSERT INTO celeriac.audit (by, action, kind, target, at) VALUES ('x', 'x', 'x', 'x', '2020-01-01')",
        "INSERT INTO celeriac.audit (by, action, kind, target, login) VALUES ('x', 'x', 'x', 'x', 'x')",
        "UPDATE celeriac.api_tokens SET scopes = '{admin}' WHERE name = 'told'",
        "UPDATE celeriac.api_tokens SET revoked_at = NULL WHERE name = 'quiet'",
    ):
        assert denied(admin, statement) == "42501", statement


TOKEN = {"scopes": ["read"], "roles": ["sync"], "accounts": ["acme"], "keys": ["k"], "priorities": [0, 5]}
LIMIT = {name: value for name, value in TOKEN.items() if name != "scopes"}

MAKE_TOKEN = """INSERT INTO celeriac.api_tokens (id, name, hash, scopes, roles, accounts, keys, priorities, expires_at,
    created_by) VALUES (md5(:name), :name, sha256(CAST(:name AS bytea)), '{read}', '{sync}', '{acme}', '{k}', '{0,5}',
    '2030-01-01Z', 'x')"""
MAKE_LIMIT = """INSERT INTO celeriac.enqueuers (login, roles, accounts, keys, priorities, by)
    VALUES (:name, '{sync}', '{acme}', '{k}', '{0,5}', 'x')"""
WIDEN = "UPDATE celeriac.enqueuers SET accounts = NULL, priorities = '{-9,9}' WHERE login = :name"


def less(fields: dict[str, Any]) -> list[dict[str, Any] | None]:
    """The fields without one of them, and with one of them otherwise; and no fields at all."""
    return [{n: v for n, v in fields.items() if n != name} for name in fields] + [
        fields | {name: [9] if isinstance(value, list) else "other"} for name, value in fields.items()
    ] + [None]  # fmt: skip


def test_a_row_of_the_trail_that_says_less_or_something_else_is_not_enough(login: Login, rows: Rows) -> None:
    """Of an admin's login that writes tokens, and limits of logins, past the command line."""
    admin = login("admin").database
    with admin.transaction() as connection:
        connection.execute(text(MAKE_TOKEN), {"name": "first"})
        expires = tokens.in_trail(connection, "first")["expires_at"]
        connection.execute(text(MAKE_LIMIT), {"name": "shop"})
        connection.execute(text(MAKE_TOKEN), {"name": "old"})
    wide = {"accounts": None, "priorities": [-9, 9]}
    cases: list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None, bool]] = [
        (kind, statement, None, said, said == true)
        for kind, statement, true in (
            ("token", MAKE_TOKEN, TOKEN | {"expires_at": expires}), ("enqueuer", MAKE_LIMIT, LIMIT),
            ("enqueuer", WIDEN, {"priorities": [-9, 9]}),
        )
        for said in (true, *less(true))
    ]  # fmt: skip
    cases += [("enqueuer", WIDEN, LIMIT, wide, True), ("enqueuer", WIDEN, LIMIT, wide | {"accounts": ["acme"]}, False)]
    delete = "DELETE FROM celeriac.enqueuers WHERE login = :name"
    cases += [("enqueuer", delete, said, None, said == LIMIT) for said in (LIMIT, *less(LIMIT))]
    cases += [("enqueuer", delete, LIMIT, LIMIT, False)]
    rename = "UPDATE celeriac.enqueuers SET login = :name || '-' WHERE login = :name"
    cases += [("enqueuer", rename, LIMIT, LIMIT, False)]
    revoke = "UPDATE celeriac.api_tokens SET revoked_at = now() WHERE name = :name"
    cases += [("token", revoke, None, said, said == {"revoked": True})
              for said in ({"revoked": True}, {"revoked": False}, {}, None)]  # fmt: skip
    for n, (kind, statement, before, after, enough) in enumerate(cases):
        name = f"n{n}"
        if not statement.startswith("INSERT"):
            with admin.transaction() as connection:
                connection.execute(text(MAKE_TOKEN if kind == "token" else MAKE_LIMIT), {"name": name})
        mark = rows.one("SELECT max(id) FROM audit")
        with admin.transaction() as connection:
            connection.execute(text(statement), {"name": name})
            written = name + ("-" if statement is rename else "")
            audit.write(connection, "change", kind, [audit.Change(written, before, after)], by="bob")
        by_itself = rows("SELECT count(*) FROM audit WHERE id > :mark AND by <> 'bob'", mark=mark)
        assert by_itself == [(0 if enough else 1,)], (statement, before, after)


def test_what_the_command_line_writes_of_tokens_and_logins_is_enough(
    login: Login, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = login("admin")
    for words in (
        "tokens create a --scope read --scope enqueue --role sync --account acme --days 3",
        "tokens create b --scope view", "tokens revoke a", "logins limit shop --role sync --key k",
        "logins limit shop --account acme --priority 0..5",
        "logins free shop",
    ):  # fmt: skip
        done = CliRunner().invoke(within_celery, words.split(), obj=SimpleNamespace(app=admin))
        assert done.exit_code == 0, (words, done.output, done.exception)
    sign_in_code(admin.database)
    assert rows("SELECT count(*), count(*) FILTER (WHERE via = 'SQL') FROM audit") == [(7, 0)]


def noted(worker: Database, command: str, kind: str, changes: object, heard_by: str = "w1") -> str | None:
    """Why Postgres refuses it, None if it does not."""
    with worker.transaction() as connection:
        try:
            connection.execute(
                audit.NOTE, {"command": command, "kind": kind, "changes": json.dumps(changes), "by": heard_by}
            )
        except DBAPIError as error:
            connection.rollback()
            return str(getattr(error.orig, "pgcode", None))
    return None


def test_a_worker_login_writes_into_the_trail_what_remote_control_can_do_alone(login: Login, rows: Rows) -> None:
    worker = login("worker").database
    rows("INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency) VALUES ('w1', 'here', 1, 1)")
    ok = {"target": "t1", "after": {"status": "cancelled"}}
    here = {"target": "celery@here", "after": {"n": "1"}}
    for command, kind, changes in (
        ("drop", "role", [ok]), ("pause", "task", [ok]), ("revoke", "task", [ok | {"after": {"status": "paid"}}]),
        ("revoke", "task", [ok | {"after": {"status": "asked", "note": "free text"}}]),
        ("revoke", "task", [{"target": "t"}]),
        ("revoke", "task", [ok, ok | {"target": "x" * 1001}]), ("revoke", "task", [ok] * 1001), ("revoke", "task", ok),
        ("revoke", "token", [ok]), ("pool_grow", "worker", [here | {"target": "celery@here\nann: all is well"}]),
        ("pool_grow", "worker", [here | {"target": "x" * 301}]),
        ("pool_grow", "worker", [here | {"after": "free text"}]),
        ("pool_grow", "worker", [here | {"after": {"n": "x" * 16_000}}]), ("pool_grow", "worker", [{}]),
        ("all is well; ann agrees", "worker", [here]), ("x" * 101, "worker", [here]), ("", "worker", [here]),
    ):  # fmt: skip
        assert noted(worker, command, kind, changes) == "22023", (command, kind, changes)
    assert rows("SELECT FROM audit") == []
    assert noted(worker, "revoke", "task", [ok]) is None
    assert noted(worker, "pool_grow", "worker", [here], "ann") is None
    assert noted(worker, "create_token", "worker", [here]) is None
    assert rows("SELECT by, action, kind, target, after FROM audit ORDER BY id") == [
        ("remote control at w1", "revoke", "task", "t1", {"status": "cancelled"}),
        ("remote control at a worker that is not registered", "pool_grow", "worker", "celery@here", {"n": "1"}),
        ("remote control at w1", "a command of the application", "worker", "celery@here",
         {"command": "create_token", "arguments": {"n": "1"}}),
    ]  # fmt: skip


def test_whatever_a_command_is_sent_with_is_noted_in_short(login: Login, rows: Rows) -> None:
    panel = Panel(SimpleNamespace(app=login("worker"), hostname="celery@here"))
    handlers = panel.guarded({"pool_grow": lambda _state, /, **sent: {"ok": len(sent)}})
    sent = {"\U0001f600" * 500 + str(n): "\U0001f600\n" * 500 for n in range(50)}
    assert handlers["pool_grow"](None, **sent) == {"ok": 50}
    assert rows("SELECT action, octet_length(after::text) < 16000 FROM audit") == [("pool_grow", True)]
