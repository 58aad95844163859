"""Logins of Postgres that may enqueue certain calls only."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from celeriac.cli import output
from celeriac.cli.group import FindApp, command, with_options
from celeriac.errors import Unknown
from celeriac.insights.tasks.conditions import ends
from celeriac.operate import enqueuers
from celeriac.operate.allowed import Allowed

#: The parameters that `limits` sets, as columns of tables.
LIMITS = ("roles", "accounts", "keys", "priorities")


def _range(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int | None, int | None] | None:
    return None if value is None else ends("priority", value)


#: Adds the options that limit what may be enqueued.
limits = with_options(
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


@command
@click.argument("login")
@limits
def limit(find: FindApp, /, login: str, **limited: Any) -> None:
    """Limit a login to enqueuing this, from now on."""
    allowed = Allowed.of(**limited)
    with find().database.transaction() as connection:
        enqueuers.limit(connection, login, allowed, by=output.by())
    now = allowed.limits()
    said = ", ".join(f"{name}: {' '.join(map(str, value))}" for name, value in now.items())
    output.tell({"login": login, **now}, f"{login} enqueues this only: {said}")


@command
@click.argument("login")
def free(find: FindApp, /, login: str) -> None:
    """Let a login enqueue everything again."""
    with find().database.transaction() as connection:
        if not enqueuers.free(connection, login, by=output.by()):
            raise Unknown(f"the login {login!r} is not limited")
    output.tell({"login": login, "roles": None}, f"{login} enqueues what it likes")


@command
def list_(find: FindApp, /) -> None:
    """List the logins that are limited."""
    with find().database.statement() as connection:
        rows = [asdict(row) for row in enqueuers.every(connection)]
    output.tell(rows, output.table(rows, ("login", *LIMITS, "by", "updated_at")) if rows else "no login is limited")
