"""Roles and accounts: pause and resume them, set limits and shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command
from celeriac.insights import Count
from celeriac.operate import policies
from celeriac.operate.audit import Change
from celeriac.roles import bounds

NONE = Count(0)

CREATE = click.option("--create", is_flag=True, help="Accept an account that has no policy and had no task lately.")


WHY = click.option("--why", default="", help="For the audit trail.")


@command
@click.argument("role")
@click.option(
    "--for",
    "seconds",
    type=Seconds(0, bounds.LONGEST_DELAY),
    metavar="SECONDS",
    help="Resume it automatically at that time.",
)
@WHY
def pause_role(find: FindApp, /, role: str, why: str, seconds: float | None) -> None:
    """Pause a ROLE: no pass claims its tasks. Claimed ones still run."""
    with find().database.reading() as connection:
        waiting = next((depth.pending for depth in insights.depth(connection) if depth.role == role), NONE)
    word = "paused" if seconds is None else f"paused for {output.age(seconds)}"
    _change(find, policies.pause_role, role, word, waiting, why=why, **({"seconds": seconds} if seconds else {}))


@command
@click.argument("account")
@WHY
@CREATE
def pause_account(find: FindApp, /, account: str, **options: Any) -> None:
    """Pause an ACCOUNT: no pass claims its tasks. Claimed ones still run."""
    with find().database.reading() as connection:
        waiting = insights.waiting_of(connection, account)
    _change(find, policies.pause_account, account, "paused", waiting, **options)


@command
@click.argument("role")
@WHY
def resume_role(find: FindApp, /, role: str, **options: Any) -> None:
    """Let passes claim tasks of a ROLE again."""
    _change(find, policies.resume_role, role, "resumed", **options)


@command
@click.argument("account")
@WHY
@CREATE
def resume_account(find: FindApp, /, account: str, **options: Any) -> None:
    """Let passes claim tasks of an ACCOUNT again."""
    _change(find, policies.resume_account, account, "resumed", **options)


def _change(
    find: FindApp, verb: Callable[..., Change], name: str, word: str, waiting: Count = NONE, **options: Any
) -> None:  # fmt: skip
    with find().database.transaction() as connection:
        done = verb(connection, name, by=output.by(), **options)
    output.tell(done, f"{name} is {word}" + (f"; {output.count(waiting)} of its tasks wait" if waiting.n else ""))


@command
@click.argument("name")
@click.option("--weight", type=float, help="Its share; other accounts have 1.")
@click.option("--cap", type=int, help="Tasks claimed or running at once.")
@click.option("--no-cap", is_flag=True)
@WHY
@CREATE
def set_account(
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


@command
@click.argument("role")
@click.option("--rate", help='Tasks that begin, over all workers: "10/m", or a number a second; "none" lifts it.')
@click.option("--soft", help='Seconds until SoftTimeLimitExceeded; "none" lifts it.')
@click.option("--hard", help='Seconds until its process is stopped; "none" lifts it.')
@click.option("--as-declared", is_flag=True, help="Restore the limits that the code declares.")
@WHY
def limit(
    find: FindApp, /, role: str, rate: str | None, soft: str | None, hard: str | None, as_declared: bool, why: str
) -> None:
    """Set a role's rate and time limits, until they are set again or declared otherwise."""
    limits = {"rate_limit": rate, "timeout": soft, "hard_timeout": hard}
    changes: Any = {name: None if text == "none" else text for name, text in limits.items() if text is not None}
    if bool(changes) is as_declared:
        raise click.UsageError("give --rate, --soft or --hard, or --as-declared alone")
    for name in changes.keys() & {"timeout", "hard_timeout"}:
        changes[name] = changes[name] and Seconds(0).convert(changes[name], None, None)
    verb = policies.reset_limits if as_declared else policies.set_limits
    with find().database.transaction() as connection:
        change = verb(connection, role, by=output.by(), why=why, **changes)
    output.tell(change, policies.limits_in_words(change))
