"""Roles and accounts: pause them, resume them, share out differently."""

from __future__ import annotations

from typing import Any

import click

from celeriac.cli import output
from celeriac.cli.group import Command, FindApp
from celeriac.verbs import policies

_KIND = click.argument("kind", type=click.Choice(["role", "account"]))


@click.command(cls=Command)
@_KIND
@click.argument("name")
@click.option("--why", default="")
@click.pass_obj
def pause(find: FindApp, /, kind: str, name: str, why: str) -> None:
    """Let no pass claim tasks of a role or an account. What is claimed already runs on."""
    _set_paused(find, {"role": policies.pause_role, "account": policies.pause_account}[kind], name, why, "paused")


@click.command(cls=Command)
@_KIND
@click.argument("name")
@click.option("--why", default="")
@click.pass_obj
def resume(find: FindApp, /, kind: str, name: str, why: str) -> None:
    """Let passes claim tasks of a role or an account again."""
    _set_paused(find, {"role": policies.resume_role, "account": policies.resume_account}[kind], name, why, "resumed")


@click.command(cls=Command)
@click.argument("name")
@click.option("--weight", type=float, help="Its share beside others' 1.")
@click.option("--cap", type=int, help="Tasks claimed or running at once.")
@click.option("--no-cap", is_flag=True)
@click.option("--why", default="")
@click.pass_obj
def account(find: FindApp, /, name: str, weight: float | None, cap: int | None, no_cap: bool, why: str) -> None:
    """Set an account's weight and cap."""
    changes: dict[str, Any] = {} if weight is None else {"weight": weight}
    if cap is not None or no_cap:
        changes["cap"] = None if no_cap else cap
    if not changes:
        raise click.UsageError("give --weight, --cap or --no-cap")
    with find().database.transaction() as connection:
        change = policies.set_account(connection, name, by=output.by(), why=why, **changes)
    told = ", ".join(f"{k} {output.cell(v)}" for k, v in (change.after or {}).items())
    output.tell(change, f"{name}: {told}")


def _set_paused(find: FindApp, change: Any, name: str, why: str, word: str) -> None:
    with find().database.transaction() as connection:
        done = change(connection, name, by=output.by(), why=why)
    output.tell(done, f"{name} is {word}")


COMMANDS = (pause, resume, account)
