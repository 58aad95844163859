"""Simulate: the course of a fleet's day, in virtual time. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from celeriac.cli import output
from celeriac.cli.group import Command, Problem, Seconds
from celeriac.cli.replays import replay
from celeriac.insights.failures.failures import OLDEST
from celeriac.insights.why.spans import span
from celeriac.roles.role import Role
from celeriac.simulate.day import Day
from celeriac.simulate.line import TicketPace
from celeriac.simulate.report import Simulation

#: Defaults: the number of workers, and the share of their time that arriving tasks take if no rate is given.
USUAL_WORKERS: Final = 10
USUAL_LOAD: Final = 0.8

#: The most simulated tasks that may wait: each takes about 300 bytes of memory.
MOST_WAITING: Final = 5_000_000

_OF_A_DAY = ("accounts", "hours", "seed", "seconds", "rate", "window")
_OF_HISTORY = ("role", "since")

_WAITS = ("of", "order", "n", "mean", "p50", "p95", "p99", "max")
_SHARES = ("of", "tasks", "slots_held", "fair")
_COURSE = ("hour", "tasks", "backlog", "utilisation")


@click.command(cls=Command)
@click.option(
    "--workers",
    type=click.IntRange(1, 100_000),
    help=f"Processes, each busy with a ticket at a time; else {USUAL_WORKERS}, or as many as there were.",
)
@click.option("--accounts", type=click.IntRange(10, 10_000_000), default=1000, show_default=True)
@click.option(
    "--hours",
    type=Seconds(0.01, 24 * 31),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="How long the day is, from quiet to busy and back.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same values give the same day.")
@click.option("--seconds", type=Seconds(0.001, 86_400), default=10.0, show_default=True, help="A task's mean run time.")
@click.option(
    "--rate",
    type=Seconds(1e-6, 1e6),
    metavar="PER_SECOND",
    help=f"Tasks a second, on average; else {USUAL_LOAD:.0%} of what the workers can do.",
)
@click.option("--window", type=click.IntRange(1, 1_000_000), help="The role's; else two for each worker.")
@click.option("--from-history", is_flag=True, help="Instead of a made-up day, replay what ran of a role, or of each.")
@click.option("--role", help="With the history, report on this role alone.")
@click.option(
    "--since",
    type=Seconds(0.001, OLDEST),
    default=86_400.0,
    show_default=True,
    metavar="SECONDS",
    help="With the history, tasks that ended in the last so many seconds.",
)
@click.pass_context
def simulate(
    context: click.Context,
    /,
    workers: int | None,
    rate: float | None,
    window: int | None,
    from_history: bool,
    role: str | None,
    since: float,
    **day: Any,
) -> None:
    """Simulate a made-up day: waits beside plain FIFO's, shares beside fair ones, whether the promise of fairness held
    (exit status 1 if not), how busy the workers were and how many tasks waited. Or replay a role's own history with so
    many workers, and show how far off the replay is.
    """
    _refuse_what_does_not_count(context, from_history)
    if from_history:
        replay(context.obj(), role, since, workers)
    else:
        _made_up(workers or USUAL_WORKERS, rate, window, **day)


def _refuse_what_does_not_count(context: click.Context, from_history: bool) -> None:
    for name in _OF_A_DAY if from_history else _OF_HISTORY:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            verb = "means nothing with" if from_history else "needs"
            raise click.UsageError(f"--{name} {verb} --from-history")


def _made_up(
    workers: int, rate: float | None, window: int | None, accounts: int, hours: float, seed: int, seconds: float
) -> None:
    day = Day(accounts, hours, rate or USUAL_LOAD * workers / seconds, seconds, seed)
    _refuse_a_flood(day, workers)
    role = Role(name="simulated", window=window or 2 * workers)
    report = Simulation(day, role, workers, TicketPace()).run()
    output.tell(report, _lines(report))
    if not report["fairness"]["holds"]:
        raise Problem(f"the promise of fairness was broken in {report['fairness']['broken']:,} passes")


def _refuse_a_flood(day: Day, workers: int) -> None:
    most = day.most_waiting(workers / day.seconds)
    if most > MOST_WAITING:
        raise click.UsageError(
            f"{most:,.0f} tasks would wait at once, and {MOST_WAITING:,} are the most that are kept: "
            "give more --workers, fewer --seconds, a lower --rate or fewer --hours"
        )


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    backlog, fairness = report["backlog"], report["fairness"]
    yield (
        f"{report['workers']:,} workers, {report['accounts']:,} accounts, {report['tasks']:,} tasks in "
        f"{report['hours']:g} h; a window of {report['window']:,}, seed {report['seed']}"
    )
    yield (
        f"busy {report['utilisation']:.0%}; {backlog['mean']:,.0f} waited on average, {backlog['max']:,} at most; "
        f"all done after {report['drained_after_hours']:.1f} h"
    )
    yield (
        f"fairness held: in none of {fairness['passes']:,} passes did an account get a second slot while one waited "
        f"that held nothing; the longest round was {fairness['longest_round']:,} slots"
        if fairness["holds"]
        else f"fairness BROKEN in {fairness['broken']:,} of {fairness['passes']:,} passes"
    )
    yield ""
    yield from output.table([_spans(row) for row in report["waits"]], _WAITS)
    yield ""
    yield from output.table(
        [row | {"slots_held": _percent(row["held"]), "fair": _percent(row["fair"])} for row in report["shares"]],
        _SHARES,
    )
    yield ""
    yield from output.table([row | {"utilisation": _percent(row["utilisation"])} for row in report["course"]], _COURSE)


def _spans(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: span(value) if isinstance(value, float) else value for name, value in row.items()}


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
