"""The overview: waiting and running tasks, workers, what is late, what is paused, what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import click
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac import insights
from celeriac.alerts.judgement import PATIENCE, judge
from celeriac.alerts.rules import NAMES, OF_THE_SCHEMA
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import FindApp, Seconds, command
from celeriac.errors import ConfigurationError
from celeriac.insights.fleet import condition
from celeriac.insights.history import alerts
from celeriac.store.failures import is_locked
from celeriac.store.patience import HURRIED, patient
from celeriac.store.states import GONE

#: A schedule that is this late (seconds) is shown: beat polls once a second.
LATE = 5.0

#: Redis' state in words, by that of `/readyz`.
REDIS = {
    "answers": "answers",
    "away": "does not answer: work goes on more slowly, as workers look for it in SQL",
    "none": "none (REDIS_URL=none): workers look in SQL",
}

_COLUMNS = (
    "role", "ready", "later", "behind", "parked", "members", "claimed", "running", "stale", "window", "newcomer",
    "oldest", "paused",
)  # fmt: skip


@command
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=Seconds(0.1, 86_400),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
def status(find: FindApp, /, watch: bool, every: float) -> None:
    """Show waiting and running tasks per role, the workers, what is late, what is paused, and alerts."""
    app = find()
    _show(app)
    with suppress(KeyboardInterrupt):
        while watch:
            time.sleep(every)
            if not output.as_json():
                click.clear()
            _show(app)


def _show(app: Celeriac) -> None:
    now = overview(app)
    output.tell(now, _lines(now))


def overview(app: Celeriac) -> dict[str, Any]:
    """Read everything once, first what is wrong. `redis`: a key of `REDIS`. `hidden`: by name, why a figure is left
    out: somebody's lock hides it, or the schema is not this code's.
    """
    try:
        redis = ("answers" if app.publisher.answers() else "away") if app.settings.has_redis else "none"
    except ConfigurationError:
        redis = "away"
    with app.database.reading() as connection:
        connection.exec_driver_sql("SELECT 'celeriac.tasks'::regclass")  # an empty database has nothing to show
        judged = judge(connection, app)
    now: dict[str, Any] = {"wrong": judged.wrong, "unread": judged.unread, "redis": redis, "hidden": {}}
    is_of_others = any(one.name in OF_THE_SCHEMA for one in judged.wrong)
    limit = PATIENCE
    for name, read in FIGURES.items():
        try:
            with patient(limit), app.database.reading() as connection:
                now[name] = read(connection)
        except DBAPIError as error:
            if not is_of_others and not is_locked(error):
                raise
            now["hidden"][name] = "the schema is not this code's" if is_of_others else LOCKED
            limit = HURRIED
    return now


#: Why a figure is left out if somebody's lock hides it.
LOCKED = "somebody's open transaction has locked what they read"

#: The figures shown below what is wrong; each is read in a transaction of its own.
FIGURES: Mapping[str, Callable[[Connection], Any]] = {
    "tasks": insights.counts,
    "roles": partial(insights.depth, cap=insights.CAP),
    "workers": lambda connection: [
        w for w in insights.workers(connection) if w["status"] != "stopped" and w["heartbeat_age"] < GONE
    ],
    "late": lambda connection: [s for s in insights.schedules(connection) if s["late_seconds"] > LATE],
    "paused_accounts": insights.paused_accounts,
    "alerts": alerts.firing,
    "beats": condition.beats,
}


def _lines(now: dict[str, Any]) -> Iterator[str]:
    yield from _wrong(now)
    for why in dict.fromkeys(now["hidden"].values()):
        names = [name for name, its in now["hidden"].items() if its == why]
        yield f"unknown   {', '.join(names)}: {why}"
    if "tasks" in now:
        yield "  ".join(f"{status} {output.count(count)}" for status, count in now["tasks"].items())
        yield ""
    roles = now.get("roles", ())
    if "roles" in now:
        yield from output.table([_role(depth) for depth in roles], _COLUMNS)
        yield ""
    if "workers" in now:
        yield _at_work(now["workers"])
    if due := {role.role: role.oldest_ready_seconds for role in roles if role.oldest_ready_seconds}:
        oldest = max(due, key=due.__getitem__)
        yield f"oldest    due for {output.age(due[oldest])}, of {oldest}"
    yield f"redis     {REDIS[now['redis']]}"
    for beat in now.get("beats", ())[:2]:
        yield f"beat      {beat['beat_id']} ticked {output.age(max(0.0, beat['age']))} ago"
    if now.get("beats") == []:
        yield "beat      none ticks"
    for late in now.get("late", ()):
        yield f"late      {late['name']}: {output.age(late['late_seconds'])}"
    for account in now.get("paused_accounts", ()):
        yield f"paused    account {account}"


def _at_work(workers: list[dict[str, Any]]) -> str:
    """Return the line of workers. A slot runs one task at a time; further held tasks wait for it."""
    slots = sum(w["concurrency"] for w in workers)
    busy, held = sum(w["busy"] for w in workers), sum(len(w["task_ids"]) for w in workers)
    return f"{len(workers)} workers, {slots} slots, {busy} busy with {held:,} tasks"


def _wrong(now: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong now, the worst first; then alerts of the application's own rules, and checks that could not
    be made.
    """
    silenced = {(alert["name"], alert["subject"]) for alert in now.get("alerts", ()) if alert["silenced_until"]}
    for one in now["wrong"]:
        yield f"wrong     {one.name} {one.subject}: {one.says}{_silenced(one.name, one.subject, silenced)}"
        if one.cure:
            yield f"          {one.cure}"
    for alert in now.get("alerts", ()):
        if alert["name"] not in NAMES or alert["name"] in now["unread"]:
            is_silenced = _silenced(alert["name"], alert["subject"], silenced)
            yield f"alert     {alert['name']} {alert['subject']}: {alert['says']}{is_silenced}"
    if now["unread"]:
        yield f"unknown   {', '.join(now['unread'])}: could not be read"


def _silenced(name: str, subject: str, silenced: set[tuple[str, str]]) -> str:
    return " (silenced)" if (name, subject) in silenced else ""


def _role(depth: insights.RoleDepth) -> dict[str, Any]:
    return {name: output.count(getattr(depth, name)) for name in ("ready", "later", "behind", "parked", "members")} | {
        "role": depth.role, "claimed": depth.claimed, "running": depth.running, "stale": depth.stale or None,
        "window": depth.window, "newcomer": output.age(depth.newcomer_seconds),
        "oldest": output.age(depth.oldest_ready_seconds), "paused": "paused" if depth.paused else None,
    }  # fmt: skip
