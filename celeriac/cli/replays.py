"""Replays: past runs on another fleet, for `celeriac workers simulate --from-history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import Problem
from celeriac.errors import Unknown
from celeriac.insights.history.ran import LastRun, counted, ran
from celeriac.insights.why.spans import span
from celeriac.roles.role import Role
from celeriac.simulate.backlog import SimulatedPolicy
from celeriac.simulate.replay import Replay, compared, together

#: The most tasks of a role that are replayed: they are kept in memory.
MOST: Final = 500_000

_COLUMNS = ("role", "what", "workers", "n", "mean", "p50", "p95", "p99", "max")


class NoHistory(click.ClickException):
    """An error: the history has nothing to replay."""

    exit_code = 2


def replay(app: Celeriac, name: str | None, since: float, workers: int | None) -> None:
    """Report on the role `name`, or on each that ran something in the last `since` seconds. Roles that shared workers
    are replayed together, even if only one is reported.
    """
    roles = {declared.role.name: declared.role for declared in app.roles.all()}
    if name is not None and name not in roles:
        raise Unknown(f"there is no role {name!r}")
    with app.database.reading() as connection:
        until = insights.clock(connection)
    begin = until - timedelta(seconds=since)
    ran_by = {role.name: tasks for role in roles.values() if (tasks := _ran(app, role, begin, until))}
    if not ran_by or name not in (None, *ran_by):
        raise NoHistory(f"nothing {f'of {name} ' if name else ''}ran in the last {span(since)} that history keeps")
    reports, policies = list[dict[str, Any]](), _policies(app)
    for names in together(ran_by):
        if name is None or name in names:
            of_group = [one for role in names for one in ran_by[role]]
            reports += Replay(of_group, [roles[role] for role in names], policies, app.settings.poll_interval).report(
                workers
            )
    reports = [one for one in reports if name in (None, one["role"])]
    shown = {"all": _all(reports), "roles": reports, "not_kept": _not_kept(app, roles, ran_by, begin, until)}
    output.tell(shown, _lines(shown))
    if broken := [one["role"] for one in reports if not one["fairness"]["holds"]]:
        raise Problem(f"the promise of fairness was broken: {', '.join(broken)}")


def _ran(app: Celeriac, role: Role, since: datetime, until: datetime) -> list[LastRun]:
    after: tuple[datetime, int] | None = (since, 0)
    tasks: list[LastRun] = []
    while after is not None:
        with app.database.reading() as connection:
            page, after = ran(connection, role.name, after, until)
        tasks += page
        if len(tasks) > MOST:
            raise click.UsageError(f"{role.name}: more than {MOST:,} tasks ran since then: give a shorter --since")
    return tasks


def _all(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the comparison of all roles together."""
    waits = [one.pop("waits") for one in reports]
    return compared(*([wait for some in kind for wait in some] for kind in zip(*waits, strict=True)))


def _not_kept(
    app: Celeriac, roles: Mapping[str, Role], ran_by: Mapping[str, Sequence[LastRun]], since: datetime, until: datetime
) -> dict[str, int]:
    """Return, for roles that keep no successes, how many tasks their workers counted that the history lacks."""
    with app.database.reading() as connection:
        n = counted(connection, since, until)
    gone = {name: n[name] - len(ran_by.get(name, ())) for name in n if name in roles}
    return {name: lacks for name, lacks in sorted(gone.items()) if lacks > 0 and not roles[name].keeps_successes}


def _policies(app: Celeriac) -> dict[str, SimulatedPolicy]:
    """Return the present policies: past ones are unknown. Accounts that ran had no cap of 0, so 0 becomes none."""
    policies: dict[str, SimulatedPolicy] = {}
    rows: list[dict[str, Any]] = [{"account": ""}]
    while rows:
        with app.database.reading() as connection:
            rows = insights.account_policies(connection, limit=1000, after=rows[-1]["account"])
        policies |= {row["account"]: SimulatedPolicy(row["weight"], row["cap"] or None) for row in rows}
    return policies


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    reports = report["roles"]
    everything = {"role": "all", **report["all"]}
    yield from output.table([row for one in (*reports, everything) for row in _rows(one)], _COLUMNS)
    yield ""
    yield f"all: {everything['happened']['n']:,} waits; the replay is off by {_off(everything)}"
    for name, lacks in report["not_kept"].items():
        yield (
            f"{name} keeps no successes: {lacks:,} of its tasks took processes of which history knows nothing, and the "
            "replay lacks them"
        )
    for one in reports:
        yield ""
        yield from _of_role(one)


def _of_role(one: Mapping[str, Any]) -> Iterator[str]:
    shared = f", beside {', '.join(one['with'])}" if one["with"] else ""
    yield (
        f"{one['role']}: {one['tasks']:,} tasks of {one['accounts']:,} accounts in {span(one['hours'] * 3600)}{shared};"
        f" the replay is off by {_off(one)}"
    )
    yield (
        f"with {one['workers']:,} workers all would be done after {span(one['would_take_hours'] * 3600)}; the "
        f"machinery took {one['arrive'] * 1000:.0f} ms to a claim, {one['between'] * 1000:.0f} ms between tickets"
    )
    for n, why in (
        (one["later"], "waited for their time, or were called for in SQL: when a worker looked is not known"),
        (one["moved"], "were given another priority or time while they waited"),
    ):
        if n:
            yield f"{n:,} of them are played, and not compared: they {why}"
    if one["ran_before"]:
        yield (
            f"{one['ran_before']:,} of them had run before, {one['earlier']:,} times that are played: how long those "
            "took is an estimate, and their waits are not known"
        )


def _off(one: Mapping[str, Any]) -> str:
    off = {name: "unknown" if part is None else f"{part:.1%}" for name, part in one["error"].items()}
    return f"{off['mean']} (mean) and {off['p95']} (p95)"


def _rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    there, workers = one.get("workers_there"), one.get("workers")
    for what, fleet in (("happened", there), ("replayed", there), ("would_be", workers)):
        waits = {name: span(value) if name != "n" else value for name, value in one[what].items()}
        yield {"role": one["role"], "what": what.replace("_", " "), "workers": fleet, **waits}
