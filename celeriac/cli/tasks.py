"""Tasks: enqueue them, show one, list them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import IO, Any, get_args

import click

from celeriac import insights
from celeriac.app import Celeriac
from celeriac.cli import choice, output
from celeriac.cli.group import FindApp, command
from celeriac.enqueue.bulk import BULK
from celeriac.errors import BadArguments, BadValue
from celeriac.insights import Filter, History, Page, Why
from celeriac.insights.tasks import exports
from celeriac.insights.tasks.tasks import log_of
from celeriac.store.states import FAILED

#: Maximum number of pages read to fill one. If a filter matches few tasks, a page may be short.
PAGES = 50

_COLUMNS = ("id", "role", "status", "waits_for", "account", "lock_key", "priority", "scheduled_for", "retry_count")


@command
@click.argument("role")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--from", "file", type=click.File(), help="A JSON object of arguments per line, a task each; - is stdin.")
@click.option("--priority", type=int)
@click.option("--delay", "countdown", type=float, metavar="SECONDS")
@click.option("--at", "eta", metavar="TIME", help="When it is due, ISO 8601.")
@click.option("--account")
@click.option("--lock-key")
@click.option("--unique-key")
@click.option("--task-id")
@click.option("--timeout", type=float, metavar="SECONDS")
@click.option("--max-retries", type=int)
@click.option("--expires", type=float, metavar="SECONDS", help="Cancel it if it has not started by then.")
def enqueue(
    find: FindApp, /, role: str, arguments: tuple[str, ...], file: IO[str] | None, **options: Any
) -> None:  # fmt: skip
    """Enqueue a task of ROLE. A value is JSON, or else a text: `instasite_id=7 note=hello`."""
    app, fields = find(), {name: value for name, value in options.items() if value is not None}
    if file is not None:
        if arguments or "task_id" in fields:
            raise click.UsageError(
                "--from has the arguments of many tasks: give no NAME=VALUE and no --task-id with it"
            )
        _enqueue_lines(app, role, file, fields)
        return
    done = app.send_task(role, kwargs=choice.named(arguments), **fields)
    receipt = {"id": done.row_id, "task_id": done.id, "is_new": done.is_new}
    output.tell(receipt, f"{done.row_id} {'enqueued' if done.is_new else 'has this key already, and is not finished'}")


@command
@click.argument("task")
def show(find: FindApp, /, task: str) -> None:
    """Show a task (by id or task id): its row, its events, and why it waits."""
    app = find()
    with app.database.reading() as connection:
        history = insights.history(connection, task, app.probe)
    output.tell(history, _history_lines(history))


@command
@click.argument("task")
def why(find: FindApp, /, task: str) -> None:
    """Explain why a task (by id or task id) has not started: one check after the other."""
    app = find()
    answer = app.why(choice.row_id(app, task))
    output.tell(answer, _explained(answer))


@command
@click.argument("task")
def log(find: FindApp, /, task: str) -> None:
    """Show the log of a task's handler (by id or task id)."""
    with find().database.reading() as connection:
        lines = log_of(connection, insights.row_of(connection, task))
    output.tell(lines, output.table([asdict(one) for one in lines], ("at", "attempt", "level", "line")))


@command
@choice.filtering
@click.option("--limit", type=int, show_default=f"20, of a file {exports.MOST:,}")
@click.option("--offset", default=0)
@click.option("--after", help="The `next` of the page before.")
@click.option("--format", "kind", type=click.Choice(get_args(exports.Kind)), help="Write all matches as a file.")
def list_(
    find: FindApp, /, limit: int | None, offset: int, after: str | None, kind: exports.Kind | None, **options: Any
) -> None:  # fmt: skip
    """List tasks of any status, newest first."""
    wanted = insights.Filter.of(**options)
    if kind is not None:
        if offset:
            raise click.UsageError("--format has the whole list: give no --offset with it")
        _export(find(), kind, wanted, exports.MOST if limit is None else limit, after)
        return
    limit = 20 if limit is None else limit
    with find().database.reading() as connection:
        page = insights.list_tasks(connection, wanted, limit=limit, after=after, offset=offset)
        for _ in range(PAGES):
            if page.next is None or offset or len(page.items) == limit:
                break
            rest = insights.list_tasks(connection, wanted, limit=limit - len(page.items), after=page.next)
            page = Page([*page.items, *rest.items], rest.next)
    more = [f"more with --after '{page.next}'"] if page.next else []
    output.tell(page, [*output.table(page.items, _COLUMNS), *more])


def _export(app: Celeriac, kind: exports.Kind, wanted: Filter, most: int, after: str | None) -> None:
    """Print all tasks as a file, a transaction a page."""
    if not 1 <= most <= exports.MOST:
        raise BadValue(f"limit={most}: give 1 to {exports.MOST:,}")

    def read(limit: int, after: str | None) -> Page:
        with app.database.reading() as connection:
            return insights.list_tasks(connection, wanted, limit=limit, after=after)

    for line in exports.lines(kind, exports.pages(read, most=most, after=after)):
        output.say(line.removesuffix("\n").removesuffix("\r"))


def _enqueue_lines(app: Celeriac, role: str, file: IO[str], options: dict[str, Any]) -> None:
    """Enqueue in a transaction for each 1,000 lines; a refused line refuses its thousand, and ends it."""
    calls, new, known = _calls(role, file), 0, 0
    size = os.path.getsize(file.name) if os.path.isfile(file.name) else 0
    with output.progress(size, f"Enqueuing {role}") as bar:
        while some := list(islice(calls, BULK)):
            receipts = app.enqueue_many(role, [call for _, call in some], **options)
            new += sum(bool(r.is_new) for r in receipts)
            known += sum(not r.is_new for r in receipts)
            bar.update(sum(length for length, _ in some))
    output.tell({"enqueued": new, "known": known}, f"{new} enqueued, {known} were there already")


def _calls(role: str, file: IO[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, 1):
        try:
            call = json.loads(line)
        except ValueError:
            call = None
        if not isinstance(call, dict):
            raise BadArguments(f"{role}: line {number} is no JSON object of arguments; those before it may be enqueued")
        yield len(line.encode()), call


def _history_lines(history: History) -> Iterator[str]:
    """Yield the lines; errors and tracebacks are not shortened."""
    width = max(map(len, history.task))
    for name, value in history.task.items():
        if value not in (None, "", [], {}):
            shown = output.cell(value) if name != "error_message" else output.safe(str(value).replace("\n", " "))
            yield f"{name.replace('_', ' '):{width}}  {shown}"
    if history.why:
        yield f"{'waits':{width}}  {history.why}" + (f"; {history.ahead} ahead" if history.ahead is not None else "")
    yield ""
    heading, *lines = output.table(history.events, ("at", "kind", "from_status", "to_status", "by"))
    yield f"{heading}  why"
    for line, event in zip(lines, history.events, strict=True):
        yield f"{line}  {' '.join(str(event['why'] or '-').split())}"
    traceback = history.task["result"].get("traceback") if isinstance(history.task.get("result"), dict) else None
    if history.task["status"] == FAILED and isinstance(traceback, str):
        yield from ["", *traceback.rstrip().splitlines()]


def _explained(answer: Why) -> Iterator[str]:
    yield f"task {answer.task['id']} ({answer.task['role']}): {answer.headline}"
    if answer.next:
        yield f"waits for: {answer.next}"
        ahead = [] if answer.ahead is None else [f"go first: {answer.ahead}"]
        yield from ahead
        when = answer.basis if answer.expected is None else f"{output.cell(answer.expected)}: {answer.basis}"
        yield f"may start: {when}"
    if answer.checks:
        yield ""
    width = max((len(check.name) for check in answer.checks), default=0)
    for check in answer.checks:
        yield f"{_MARKS[check.outcome]} {check.name:{width}}  {check.sentence}"


#: The word before each check.
_MARKS = {"yes": "yes", "no": "NO ", "unknown": "?  ", "not asked": "-  "}
