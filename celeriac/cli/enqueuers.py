"""Logins of Postgres that may enqueue certain calls only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from celeriac.cli import output
from celeriac.cli.group import Command, FindApp
from celeriac.errors import Unknown
from celeriac.insights.tasks.conditions import ends
from celeriac.operate import enqueuers
from celeriac.operate.allowed import Allowed

F = TypeVar("F", bound=Callable[..., Any])

#: The results of `limits`, as tables show them.
LIMITS = ("roles", "accounts", "keys", "priorities")


def limits(command: F) -> F:
    """Add the options that limit what may be enqueued."""
    options = (
        click.option("--role", "roles", multiple=True, help="Allow this role only; may be repeated."),
        click.option(
            "--account", "accounts", multiple=True, help="Allow this account only; acme* are all that begin with acme."
        ),
        click.option("--key", "keys", multiple=True, help="Allow these lock keys, unique keys and task ids only."),
        click.option(
            "--priority",
            "priorities",
            callback=_range,
            help="Allow priorities from the lowest to the highest: 0..50, ..50.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _range(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int | None, int | None] | None:
    return None if value is None else ends("priority", value)


@click.command(cls=Command)
@click.argument("login")
@limits
@click.pass_obj
def limit(find: FindApp, /, login: str, **limited: Any) -> None:
    """Limit a login to enqueuing this, from now on."""
    allowed = Allowed.of(**limited)
    with find().database.transaction() as connection:
        enqueuers.limit(connection, login, allowed, by=output.by())
    now = allowed.limits()
    said = ", ".join(f"{name}: {' '.join(map(str, value))}" for name, value in now.items())
    output.tell({"login": login, **now}, f"{login} enqueues this only: {said}")


@click.command(cls=Command)
@click.argument("login")
@click.pass_obj
def free(find: FindApp, /, login: str) -> None:
    """Let a login enqueue everything again."""
    with find().database.transaction() as connection:
        if not enqueuers.free(connection, login, by=output.by()):
            raise Unknown(f"the login {login!r} is not limited")
    output.tell({"login": login, "roles": None}, f"{login} enqueues what it likes")


@click.command(cls=Command)
@click.pass_obj
def list_(find: FindApp, /) -> None:
    """List the logins that are limited."""
    with find().database.statement() as connection:
        rows = [asdict(row) for row in enqueuers.every(connection)]
    output.tell(rows, output.table(rows, ("login", *LIMITS, "by", "updated_at")) if rows else "no login is limited")
