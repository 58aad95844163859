"""Replays: a role's own history on another fleet, for `celeriac simulate --from-history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import Problem
from celeriac.errors import Unknown
from celeriac.insights.ran import Ran, ran
from celeriac.insights.spans import span
from celeriac.roles.role import Role
from celeriac.simulate.backlog import Policy
from celeriac.simulate.replay import Replay

#: Tasks of a role: what is replayed is kept in memory.
MOST: Final = 500_000

_COLUMNS = ("role", "what", "workers", "n", "mean", "p50", "p95", "p99", "max")


class NoHistory(click.ClickException):
    """There is nothing to replay."""

    exit_code = 2


def replay(app: Celeriac, name: str | None, since: float, workers: int | None) -> None:
    """Tells of that role, or of each that ran something in the last `since` seconds."""
    roles = [declared.role for declared in app.roles.all() if name in (None, declared.role.name)]
    if name is not None and not roles:
        raise Unknown(f"there is no role {name!r}")
    with app.database.reading() as connection:
        until = insights.clock(connection)
    replays = [found for role in roles if (found := _replay(app, role, until - timedelta(seconds=since), until))]
    if not replays:
        raise NoHistory(f"nothing {f'of {name} ' if name else ''}ran in the last {span(since)} that history keeps")
    told = [one.report(workers) for one in replays]
    output.tell(told, _lines(told))
    if broken := [one["role"] for one in told if not one["fairness"]["holds"]]:
        raise Problem(f"the promise of fairness was broken: {', '.join(broken)}")


def _replay(app: Celeriac, role: Role, since: datetime, until: datetime) -> Replay | None:
    after: tuple[datetime, int] | None = (since, 0)
    found: list[Ran] = []
    while after is not None:
        with app.database.reading() as connection:
            page, after = ran(connection, role.name, after, until)
        found += page
        if len(found) > MOST:
            raise click.UsageError(f"{role.name}: more than {MOST:,} tasks ran since then: give a shorter --since")
    return Replay(found, role, _policies(app)) if found else None


def _policies(app: Celeriac) -> dict[str, Policy]:
    """As they are now: nobody knows what they were. What ran was not shut, so a cap of 0 is none."""
    found: dict[str, Policy] = {}
    rows: list[dict[str, Any]] = [{"account": ""}]
    while rows:
        with app.database.reading() as connection:
            rows = insights.account_policies(connection, limit=1000, after=rows[-1]["account"])
        found |= {row["account"]: Policy(row["weight"], row["cap"] or None) for row in rows}
    return found


def _lines(told: list[dict[str, Any]]) -> Iterator[str]:
    yield from output.table([row for one in told for row in _rows(one)], _COLUMNS)
    for one in told:
        off = {name: "unknown" if part is None else f"{part:.1%}" for name, part in one["error"].items()}
        yield ""
        yield (
            f"{one['role']}: {one['tasks']:,} tasks of {one['accounts']:,} accounts in {span(one['hours'] * 3600)}; "
            f"the replay is off by {off['mean']} (mean) and {off['p95']} (p95)"
        )
        yield (
            f"with {one['workers']:,} workers all would be done after {span(one['would_take_hours'] * 3600)}; the "
            f"machinery took {one['arrive'] * 1000:.0f} ms to a start, {one['between'] * 1000:.0f} ms between tickets"
        )
        if one["ran_before"]:
            yield f"{one['ran_before']:,} of them had run before: history, and so the replay, has their last run alone"


def _rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    there, workers = one["workers_there"], one["workers"]
    for what, fleet in (("happened", there), ("replayed", there), ("would_be", workers)):
        waits = {name: span(value) if name != "n" else value for name, value in one[what].items()}
        yield {"role": one["role"], "what": what.replace("_", " "), "workers": fleet, **waits}
