"""The overview: waiting and running tasks, workers, what is late, what is paused, what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac import insights
from celeriac.alerts.judgement import PATIENCE, Judgement, judge
from celeriac.alerts.rules import LOCKS, NAMES, OF_THE_SCHEMA
from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import Command, FindApp, Seconds
from celeriac.errors import ConfigurationError
from celeriac.insights.fleet import condition
from celeriac.insights.history import alerts
from celeriac.store.failures import is_locked
from celeriac.store.patience import DEFAULT, patient
from celeriac.store.states import GONE

#: A schedule that is this late (seconds) is shown: beat polls once a second.
LATE = 5.0

#: How Redis is, by the words of `/readyz`.
REDIS = {
    "answers": "answers",
    "away": "does not answer: work goes on more slowly, as workers look for it in SQL",
    "none": "none (REDIS_URL=none): workers look in SQL",
}

_COLUMNS = (
    "role", "ready", "later", "behind", "parked", "members", "claimed", "running", "stale", "window", "newcomer",
    "oldest", "paused",
)  # fmt: skip


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=Seconds(0.1, 86_400),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.pass_obj
def status(find: FindApp, /, watch: bool, every: float) -> None:
    """Show waiting and running tasks per role, the workers, what is late, what is paused, and alerts."""
    app = find()
    _look(app)
    with suppress(KeyboardInterrupt):
        while watch:
            time.sleep(every)
            if not output.as_json():
                click.clear()
            _look(app)


def _look(app: Celeriac) -> None:
    now = overview(app)
    output.tell(now, _lines(now))


def overview(app: Celeriac) -> dict[str, Any]:
    """Read everything once, a statement each; `redis`: a key of `REDIS`. What is wrong comes first: if somebody has
    locked the tables of the other figures, or the schema is not this code's, there is nothing else, and `hidden` says
    why.
    """
    try:
        redis = ("answers" if app.publisher.answers() else "away") if app.settings.has_redis else "none"
    except ConfigurationError:
        redis = "away"
    judged = _judged(app)
    now = {"wrong": judged.wrong, "unread": judged.unread, "redis": redis}
    is_held = any(one.name in LOCKS for one in judged.wrong)
    try:
        with patient(PATIENCE if is_held else DEFAULT), app.database.reading() as connection:
            return now | {"hidden": ""} | _figures(connection)
    except DBAPIError as error:
        if is_locked(error):
            judged = judged if is_held else _judged(app)  # a lock is named once it has been held for a while
            now |= {"wrong": judged.wrong, "unread": judged.unread}
            return now | {"hidden": "somebody's open transaction has locked what it reads"}
        if any(one.name in OF_THE_SCHEMA for one in judged.wrong):
            return now | {"hidden": "the schema is not this code's"}
        raise


def _judged(app: Celeriac) -> Judgement:
    with app.database.reading() as connection:
        connection.exec_driver_sql("SELECT 'celeriac.tasks'::regclass")  # an empty database has nothing to show
        return judge(connection, app)


def _figures(connection: Connection) -> dict[str, Any]:
    return {
        "tasks": insights.counts(connection),
        "roles": insights.depth(connection, cap=insights.CAP),
        "workers": [w for w in insights.workers(connection) if w["heartbeat_age"] < GONE],
        "late": [s for s in insights.schedules(connection) if s["late_seconds"] > LATE],
        "paused_accounts": insights.paused_accounts(connection),
        "alerts": alerts.firing(connection),
        "beats": condition.beats(connection),
    }


def _lines(now: dict[str, Any]) -> Iterator[str]:
    yield from _wrong(now)
    if now["hidden"]:
        yield f"unknown   all else: {now['hidden']}"
        return
    yield "  ".join(f"{status} {output.count(count)}" for status, count in now["tasks"].items())
    yield ""
    yield from output.table([_role(depth) for depth in now["roles"]], _COLUMNS)
    yield ""
    yield _at_work(now["workers"])
    if oldest := max((role for role in now["roles"] if role.oldest_ready_seconds), key=_oldest, default=None):
        yield f"oldest    due for {output.age(oldest.oldest_ready_seconds)}, of {oldest.role}"
    yield f"redis     {REDIS[now['redis']]}"
    for beat in now["beats"][:2]:
        yield f"beat      {beat['beat_id']} ticked {output.age(max(0.0, beat['age']))} ago"
    if not now["beats"]:
        yield "beat      none ticks"
    for late in now["late"]:
        yield f"late      {late['name']}: {output.age(late['late_seconds'])}"
    for account in now["paused_accounts"]:
        yield f"paused    account {account}"


def _at_work(workers: list[dict[str, Any]]) -> str:
    """Return the line of workers. A process runs its tasks one by one; slots that share a process run one each."""
    slots = sum(w["concurrency"] for w in workers)
    busy, held = sum(w["busy"] for w in workers), sum(len(w["task_ids"]) for w in workers)
    return f"{len(workers)} workers, {slots} slots, {busy} busy with {held:,} tasks"


def _wrong(now: dict[str, Any]) -> Iterator[str]:
    """Return what is wrong now, the worst first; then alerts of the application's own rules, and those that could not
    be read.
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


def _oldest(depth: insights.RoleDepth) -> float:
    return depth.oldest_ready_seconds or 0.0


def _role(depth: insights.RoleDepth) -> dict[str, Any]:
    return {room: output.count(getattr(depth, room)) for room in ("ready", "later", "behind", "parked", "members")} | {
        "role": depth.role, "claimed": depth.claimed, "running": depth.running, "stale": depth.stale or None,
        "window": depth.window, "newcomer": output.age(depth.newcomer_seconds),
        "oldest": output.age(depth.oldest_ready_seconds), "paused": "paused" if depth.paused else None,
    }  # fmt: skip
