"""Alerts: those that fire, and silences."""

from __future__ import annotations

from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command, with_options
from celeriac.operate import silences

_COLUMNS = ("name", "subject", "severity", "says", "firing_since", "silenced_until")


@command
def list_(find: FindApp, /) -> None:
    """List alerts that fire, those above their threshold but not yet for long enough, and silences."""
    with find().database.reading() as connection:
        firing, pending = insights.firing(connection), insights.pending_alerts(connection)
        silenced = insights.silences(connection)
    lines = [*(output.table(firing, _COLUMNS) if firing else ["nothing fires"])]
    lines += [f"pending   {one['name']} {one['subject']}, since {output.cell(one['since'])}" for one in pending]
    lines += [f"silenced  {_silence_line(one)}" for one in silenced]
    output.tell({"alerts": firing, "pending": pending, "silences": silenced}, lines)


def _silence_line(silence: dict[str, Any]) -> str:
    which = f"{silence['name']} {silence['subject']}".strip()
    return f"{which} until {output.cell(silence['until'])} by {silence['by']}: {output.cell(silence['why'])}"


_of_one = with_options(
    click.argument("name"),
    click.argument("subject", default=""),
    click.option("--why", default="", help="For the audit trail."),
)


@command
@click.option("--seconds", type=Seconds(0), default=3600.0, show_default=True, help="For how long.")
@_of_one
def silence(find: FindApp, /, name: str, subject: str, seconds: float, why: str) -> None:
    """Silence the alert NAME of SUBJECT (a role, a schedule, …; of every subject if none is given)."""
    with find().database.transaction() as connection:
        change = silences.silence(connection, name, subject, seconds=seconds, by=output.by(), why=why)
    output.tell(change, f"{change.target} is silenced until {(change.after or {})['until']}")


@command
@_of_one
def unsilence(find: FindApp, /, name: str, subject: str, why: str) -> None:
    """End a silence."""
    with find().database.transaction() as connection:
        change = silences.end_silence(connection, name, subject, by=output.by(), why=why)
    output.tell(change, f"{change.target} is told again")
