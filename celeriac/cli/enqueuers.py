"""Logins of Postgres that enqueue certain roles only."""

from __future__ import annotations

from dataclasses import asdict

import click

from celeriac.cli import output
from celeriac.cli.group import Command, FindApp, Group
from celeriac.errors import Unknown
from celeriac.operate import enqueuers


@click.group(cls=Group)
def enqueuer() -> None:
    """Limit what logins of Postgres enqueue with `celeriac.enqueue`."""


@enqueuer.command("limit", cls=Command)
@click.argument("login")
@click.option("--role", "roles", multiple=True, required=True, help="It enqueues this role only; may be repeated.")
@click.pass_obj
def limit(find: FindApp, /, login: str, roles: tuple[str, ...]) -> None:
    """Let a login enqueue these roles only, from now on."""
    with find().database.transaction() as connection:
        enqueuers.limit(connection, login, roles, by=output.by())
    now = sorted(set(roles))
    output.tell({"login": login, "roles": now}, f"{login} enqueues {', '.join(now)} only")


@enqueuer.command("free", cls=Command)
@click.argument("login")
@click.pass_obj
def free(find: FindApp, /, login: str) -> None:
    """Let a login enqueue every role again."""
    with find().database.transaction() as connection:
        if not enqueuers.free(connection, login, by=output.by()):
            raise Unknown(f"the login {login!r} is not limited")
    output.tell({"login": login, "roles": None}, f"{login} enqueues every role")


@enqueuer.command("list", cls=Command)
@click.pass_obj
def list_(find: FindApp, /) -> None:
    """List the logins that are limited."""
    with find().database.statement() as connection:
        rows = [asdict(row) for row in enqueuers.every(connection)]
    output.tell(rows, output.table(rows, ("login", "roles", "by", "updated_at")) if rows else "no login is limited")


COMMANDS = (enqueuer,)
