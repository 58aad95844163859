"""Roles and accounts: pause and resume them, set limits and shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import Command, FindApp
from celeriac.cli.seconds import Seconds
from celeriac.insights import Count
from celeriac.operate import policies
from celeriac.operate.audit import Change
from celeriac.roles import bounds

NONE = Count(0)

_ByKind = Mapping[str, Callable[..., Change]]

_PAUSE: _ByKind = {"role": policies.pause_role, "account": policies.pause_account}
_RESUME: _ByKind = {"role": policies.resume_role, "account": policies.resume_account}


CREATE = click.option("--create", is_flag=True, help="Also an account that has no policy and had no task lately.")


def _of_a_kind(command: Callable[..., None]) -> click.Command:
    options = (
        click.argument("kind", type=click.Choice(["role", "account"])),
        click.argument("name"),
        click.option("--why", default="", help="For the audit trail."),
        CREATE,
        click.pass_obj,
    )
    for option in reversed(options):
        command = option(command)
    return click.command(cls=Command)(command)


@_of_a_kind
def pause(find: FindApp, /, kind: str, name: str, why: str, create: bool, seconds: float | None) -> None:
    """Let no pass claim tasks of a role or an account. What is claimed already runs on."""
    if seconds is not None and kind != "role":
        raise click.UsageError("--for is of a role")
    word = "paused" if seconds is None else f"paused for {output.age(seconds)}"
    _change(find, _PAUSE, kind, name, why, create, word, _waiting(find(), kind, name), seconds)


pause.params.append(
    click.Option(
        ["--for", "seconds"], type=Seconds(0, bounds.LONGEST_DELAY), metavar="SECONDS",
        help="Of a role: it is resumed by itself then.",
    )
)  # fmt: skip


@_of_a_kind
def resume(find: FindApp, /, kind: str, name: str, why: str, create: bool) -> None:
    """Let passes claim tasks of a role or an account again."""
    _change(find, _RESUME, kind, name, why, create, "resumed")


@click.command(cls=Command)
@click.argument("name")
@click.option("--weight", type=float, help="Its share beside others' 1.")
@click.option("--cap", type=int, help="Tasks claimed or running at once.")
@click.option("--no-cap", is_flag=True)
@click.option("--why", default="", help="For the audit trail.")
@CREATE
@click.pass_obj
def account(
    find: FindApp, /, name: str, weight: float | None, cap: int | None, no_cap: bool, why: str, create: bool
) -> None:
    """Set an account's weight and cap."""
    changes: dict[str, Any] = {} if weight is None else {"weight": weight}
    if cap is not None or no_cap:
        changes["cap"] = None if no_cap else cap
    if not changes:
        raise click.UsageError("give --weight, --cap or --no-cap")
    with find().database.transaction() as connection:
        change = policies.set_account(connection, name, by=output.by(), why=why, create=create, **changes)
    values = ", ".join(f"{k} {output.cell(v)}" for k, v in (change.after or {}).items())
    output.tell(change, f"{name}: {values}")


@click.command(cls=Command)
@click.argument("role")
@click.option("--rate", help='Tasks that begin, over all workers: "10/m", or a number a second; "none" lifts it.')
@click.option("--soft", help='Seconds until SoftTimeLimitExceeded; "none" lifts it.')
@click.option("--hard", help='Seconds until its process is stopped; "none" lifts it.')
@click.option("--as-declared", is_flag=True, help="What the code declares is in force again.")
@click.option("--why", default="", help="For the audit trail.")
@click.pass_obj
def limit(
    find: FindApp, /, role: str, rate: str | None, soft: str | None, hard: str | None, as_declared: bool, why: str
) -> None:
    """Set a role's rate and time limits, until they are set again or declared otherwise."""
    asked = {"rate_limit": rate, "timeout": soft, "hard_timeout": hard}
    changes: Any = {name: None if said == "none" else said for name, said in asked.items() if said is not None}
    if bool(changes) is as_declared:
        raise click.UsageError("give --rate, --soft or --hard, or --as-declared alone")
    if as_declared:
        with find().database.transaction() as connection:
            change = policies.reset_limits(connection, role, by=output.by(), why=why)
        output.tell(change, policies.limits_in_words(change))
        return
    for name in changes.keys() & {"timeout", "hard_timeout"}:
        changes[name] = changes[name] and Seconds(0).convert(changes[name], None, None)
    with find().database.transaction() as connection:
        change = policies.set_limits(connection, role, by=output.by(), why=why, **changes)
    output.tell(change, policies.limits_in_words(change))


def _change(
    find: FindApp, by_kind: _ByKind, kind: str, name: str, why: str, create: bool, word: str, waiting: Count = NONE,
    seconds: float | None = None,
) -> None:  # fmt: skip
    more: dict[str, Any] = {"create": create} if kind == "account" else {"seconds": seconds} if seconds else {}
    with find().database.transaction() as connection:
        done = by_kind[kind](connection, name, by=output.by(), why=why, **more)
    output.tell(done, f"{name} is {word}" + (f"; {output.count(waiting)} of its tasks wait" if waiting.n else ""))


def _waiting(app: Celeriac, kind: str, name: str) -> Count:
    """Count the tasks that a pause stops: for an account, those ready or parked."""
    with app.database.reading() as connection:
        if kind == "role":
            return next((depth.pending for depth in insights.depth(connection) if depth.role == name), NONE)
        return insights.waiting_of(connection, name)


COMMANDS = (pause, resume, account, limit)
