"""API tokens: what Postgres keeps opens nothing, and what is over opens nothing any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.errors import TokenRefused
from celeriac.operate import tokens
from celeriac.operate.allowed import Allowed
from celeriac.store.connections import Database
from tests.processes import Rows


@pytest.fixture
def token(database: Database) -> str:
    with database.transaction() as connection:
        return tokens.create(connection, "deploy", ["enqueue"], by="anna")


def who(database: Database, presented: str) -> tokens.Bearer | None:
    with database.statement() as connection:
        return tokens.verify(connection, presented)


def test_a_token_opens_what_its_scope_implies(database: Database, token: str) -> None:
    bearer = who(database, token)
    assert bearer
    assert (bearer.name, bearer.may) == ("deploy", {"read", "calls", "enqueue"})


def test_what_is_stored_is_not_what_is_presented(rows: Rows, token: str) -> None:
    (stored,) = rows("SELECT t::text FROM api_tokens t")
    assert token.split("_", 2)[2] not in stored[0]
    assert rows("SELECT length(hash), created_by FROM api_tokens") == [(32, "anna")]


@pytest.mark.parametrize("spoil", ["", "x", "celeriac_", "celeriac__", "celeriac_0123456789abcdef_", "\ud800_ü"])
def test_what_is_no_token_is_nobodys(database: Database, token: str, spoil: str) -> None:
    assert who(database, spoil) is None


def test_a_wrong_secret_is_nobodys(database: Database, token: str) -> None:
    assert who(database, token[:-1] + ("A" if token[-1] != "A" else "B")) is None
    assert who(database, token + "A") is None


def test_a_revoked_token_is_nobodys_at_once(database: Database, token: str) -> None:
    with database.transaction() as connection:
        assert tokens.revoke(connection, "deploy")
        assert not tokens.revoke(connection, "deploy"), "a second time there is nothing to revoke"
    assert who(database, token) is None


def test_an_expired_token_is_nobodys(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        token = tokens.create(connection, "short", ["read"], by="anna", seconds=3600)
    assert who(database, token)
    rows("UPDATE api_tokens SET expires_at = now() - interval '1 second'")
    assert who(database, token) is None


def test_its_use_is_noted_once_a_minute(database: Database, rows: Rows, token: str) -> None:
    assert rows.one("SELECT last_used_at FROM api_tokens") is None
    assert who(database, token)
    first = rows.one("SELECT last_used_at FROM api_tokens")
    assert first
    assert who(database, token)
    assert rows.one("SELECT last_used_at FROM api_tokens") == first
    rows("UPDATE api_tokens SET last_used_at = now() - interval '2 minutes'")
    assert who(database, token)
    assert rows.one("SELECT last_used_at > now() - interval '1 minute' FROM api_tokens")


def test_nobody_else_ever_gets_a_name_the_audit_trail_knows(database: Database, token: str) -> None:
    with database.transaction() as connection:
        tokens.revoke(connection, "deploy")
    with pytest.raises(TokenRefused, match="choose another name"), database.transaction() as connection:
        tokens.create(connection, "deploy", ["read"], by="anna")


@pytest.mark.parametrize(
    ("name", "scopes", "seconds"),
    [
        ("", ["read"], None),
        ("a" * 101, ["read"], None),
        ("a\nb", ["read"], None),
        ("a", [], None),
        ("a", ["root"], None),
        ("a", ["read"], 0),
        ("a", ["read"], float("nan")),
        ("a", ["read"], 1e300),
    ],
)
def test_what_is_not_possible_is_refused(
    database: Database, rows: Rows, name: str, scopes: list[str], seconds: float | None
) -> None:
    with pytest.raises(TokenRefused), database.transaction() as connection:
        tokens.create(connection, name, scopes, by="anna", seconds=seconds)
    assert rows("SELECT FROM api_tokens") == []


def test_the_list_tells_everything_but_the_secret(database: Database, token: str) -> None:
    with database.transaction() as connection:
        tokens.create(connection, "admin", ["admin", "read"], by="bert")
        tokens.revoke(connection, "admin")
        listed = tokens.every(connection)
    assert [(t.name, t.scopes, t.valid) for t in listed] == [
        ("admin", ["admin", "read"], False),
        ("deploy", ["enqueue"], True),
    ]
    assert token.split("_", 2)[2] not in str(listed)


def test_the_command_limits_a_token_to_roles(app: Celeriac, database: Database) -> None:
    limits = ["--role", "work", "--role", "later", "--account", "a", "--key", "a:*", "--priority", "..5"]
    asked = ["tokens", "create", "shop", "--scope", "submit", *limits]
    told = CliRunner().invoke(within_celery, asked, obj=SimpleNamespace(app=app))
    bearer = who(database, told.stdout.strip())
    assert bearer is not None
    assert bearer.may == {"enqueue"}
    assert bearer.allowed == Allowed(["later", "work"], ["a"], ["a:*"], [-1_000_000, 5])
    listed = CliRunner().invoke(within_celery, ["tokens", "list"], obj=SimpleNamespace(app=app))
    assert "later" in listed.stdout
