"""What logins write past the command line is in the audit trail as what it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.cli.up import sign_in_code
from celeriac.operate import audit, enqueuers, tokens
from celeriac.operate.allowed import Allowed
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
