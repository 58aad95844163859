"""Tokens of the HTTP API."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from celeriac.cli import output
from celeriac.cli.enqueuers import LIMITS, limits
from celeriac.cli.group import FindApp, command
from celeriac.errors import Unknown
from celeriac.operate import audit
from celeriac.operate import tokens as verb
from celeriac.operate.allowed import Allowed
from celeriac.operate.audit import Change


@command
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice(list(verb.IMPLIED)), help="May be repeated."
)
@limits
@click.option("--days", type=float, help="How long it lasts; by default for ever.")
def create(find: FindApp, /, name: str, scopes: tuple[str, ...], days: float | None, **limited: Any) -> None:
    """Create a token and print it, this once."""
    with find().database.transaction() as connection:
        seconds = None if days is None else days * 86_400
        allowed = Allowed.of(**limited)
        made = verb.create(connection, name, scopes, by=output.by(), seconds=seconds, allowed=allowed)
        now = verb.in_trail(connection, name)
        audit.write(connection, "create", "token", [Change(name, None, now)], by=output.by())
    output.tell({"name": name, "token": made}, made)


@command
@click.argument("name")
def revoke(find: FindApp, /, name: str) -> None:
    """Revoke a token, from now on."""
    with find().database.transaction() as connection:
        if not verb.revoke(connection, name):
            raise Unknown(f"there is no token {name!r} that is not revoked already")
        audit.write(
            connection, "revoke", "token", [Change(name, {"revoked": False}, {"revoked": True})], by=output.by()
        )
    output.tell({"name": name, "revoked": True}, f"{name} is revoked")


@command
def list_(find: FindApp, /) -> None:
    """List tokens: their names, scopes and uses, never their secrets."""
    with find().database.statement() as connection:
        tokens = verb.every(connection)
    rows = [asdict(one) for one in tokens]
    columns = ("name", "scopes", *LIMITS, "valid", "created_by", "expires_at", "last_used_at")
    output.tell(rows, output.table(rows, columns))
