"""The stack: its schema, its processes, its repair passes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from types import ModuleType

import click

from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.group import PROBLEM, Command, FindApp, Seconds, command
from celeriac.errors import ConfigurationError
from celeriac.repair import SWEEPS
from celeriac.repair import sweep as run_sweep
from celeriac.schedules.written import succeeded
from celeriac.store import grants
from celeriac.store.migrate import migrate as migrate_database
from celeriac.store.migrate import refuse_single_statements
from celeriac.store.role_names import is_built_in

#: A timeout as Postgres takes it: up to 24 days, 0 for none.
SECONDS = Seconds(0, 2_000_000)


@command
@click.option(
    "--lock-timeout", type=SECONDS, default=5.0, show_default=True, help="Seconds to wait for a lock before giving up."
)
@click.option(
    "--statement-timeout", type=SECONDS, default=600.0, show_default=True, help="Seconds a statement may take."
)
@click.option("--with-grants", is_flag=True, help="Grant to least-privilege Postgres roles as well, making them.")
@click.option("--role-prefix", default="celeriac", show_default=True, help="The prefix of their names.")
@click.option(
    "--login", "logins", multiple=True, envvar="CELERIAC_LOGINS", metavar="ROLE=URL",
    help="With the grants, make the user of URL a login of ROLE (enqueue, worker, admin), with its password. "
    "CELERIAC_LOGINS has several, with blanks between; an option's password is seen in lists of processes.",
)  # fmt: skip
def migrate(
    find: FindApp, /, lock_timeout: float, statement_timeout: float, with_grants: bool, role_prefix: str,
    logins: tuple[str, ...],
) -> None:  # fmt: skip
    """Bring the database to the current schema: the engine's tables, then the application's."""
    app = find()
    to_let_in = grants.logins(logins, app.database.url) if logins else []
    with app.database.statement() as connection:
        refuse_single_statements(connection)
    migrate_database(
        app.database.engine, app.migrations, lock_timeout=lock_timeout, statement_timeout=statement_timeout
    )
    app.register_roles(served=[])  # changed options are reported as a worker starts
    roles = _declared(app)
    lines = [f"The database is current; {roles} roles are registered."]
    granted, let_in = _grant(app, role_prefix, to_let_in) if with_grants else ([], [])
    lines += [f"Granted to the Postgres roles {', '.join(granted)}."] if granted else []
    lines += [f"They let in {', '.join(let_in)}."] if let_in else []
    output.tell({"roles": roles, "granted": granted, "logins": let_in}, lines)


def _declared(app: Celeriac) -> int:
    """Count the declared roles, without those of Celery's own tasks."""
    return sum(not is_built_in(declared.role.name) for declared in app.roles.own())


def _grant(app: Celeriac, prefix: str, logins: Sequence[grants.Login]) -> tuple[list[str], list[str]]:
    with app.database.transaction() as connection:
        return grants.grant(connection, prefix), [grants.let_in(connection, one, prefix) for one in logins]


@command
@click.argument("sweeps", nargs=-1, type=click.Choice(list(SWEEPS)))
@click.option("--all", "everything", is_flag=True, help="Run every sweep.")
def sweep(find: FindApp, /, sweeps: tuple[str, ...], everything: bool) -> None:
    """Run one pass of a sweep, with or without a beat."""
    names = list(SWEEPS) if everything else list(sweeps)
    if not names:
        raise click.UsageError(f"name a sweep ({', '.join(SWEEPS)}) or give --all")
    app = find()
    done = {}
    for name in names:
        done[name] = run_sweep(app, name)
        with app.database.transaction() as connection:
            succeeded(connection, name)
        if not output.as_json():
            output.say(f"{name}: {done[name]}")
    if output.as_json():
        output.tell(done, "")


@command
@click.argument("role")
def dispatch(find: FindApp, /, role: str) -> None:
    """Run one pass of a role's batcher now."""
    published = find().dispatch(role)
    output.tell({"role": role, "published": published}, f"{role}: {published} tasks published")


@command
@click.option("--deep", is_flag=True, help="Also check the invariants of all stored tasks; reads them all.")
@click.option(
    "--against-database", is_flag=True, help="Also check which stored tasks, links and schedules this code cannot run."
)
@click.option(
    "--other", "others", multiple=True, metavar="ROLE", help="A role of another application; may be repeated."
)
@click.option(
    "--queues",
    metavar="QUEUE,…",
    default="",
    help="With --against-database: the queues that the new workers will serve.",
)
def check(find: FindApp, /, deep: bool, against_database: bool, others: tuple[str, ...], queues: str) -> None:
    """Validate settings, roles, schedules, schema and connections without starting anything."""
    from celeriac.cli.check import (
        guessable_keys,
        problems,
        renamed_roles,
        slow_windows,
        stored_work,
        undeclared_secrets,
    )

    app = find()
    notes = [*app.notes(calls=True), *undeclared_secrets(app), *guessable_keys(app), *slow_windows(app)]
    notes += [] if against_database else renamed_roles(app)
    messages, roles, more = problems(app, deep=deep), _declared(app), {}
    if against_database:
        stored = stored_work(app, others, [queue.strip() for queue in queues.split(",") if queue.strip()])
        notes += stored.notes
        messages += map(str, stored.misfits)
        more = {"stored": stored.misfits}
    output.tell({"problems": messages, "notes": notes, "roles": roles} | more, [f"note: {note}" for note in notes])
    if not output.as_json():
        for problem in messages:
            output.say(problem, err=True)
        if not messages:
            output.say(f"{roles} roles and the schedules are valid; Postgres and Redis answer.")
    raise click.exceptions.Exit(PROBLEM if messages else 0)


@click.command(cls=Command)
@click.option("--with", "others", multiple=True, metavar="NAME=COMMAND", help="Another process to run beside them.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    envvar="CELERIAC_API_PORT",
    default=6002,
    show_default=True,
    help="The dashboard's port; if it is taken, another one.",
)
@click.option("--flower-port", envvar="FLOWER_PORT", default=5555, show_default=True)
@click.option("-c", "--concurrency", default=2, show_default=True, help="Processes of the worker.")
@click.pass_context
def up(context: click.Context, others: tuple[str, ...], port: int, flower_port: int, concurrency: int) -> None:
    """Run the whole stack in the foreground: servers where none are given, worker, beat, dashboard and Flower.

    A link that signs in to the dashboard is printed once it serves: it works once, within an hour, on this machine.
    """
    from celeriac.cli.up import run

    app = context.obj()
    name = context.parent.params.get("name") or app.main if context.parent else "tasks"
    context.invoke(migrate)
    raise click.exceptions.Exit(run(app, name, others, port, flower_port, concurrency))


@command
@click.option("--host", envvar="CELERIAC_API_HOST", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), envvar="CELERIAC_API_PORT", default=6002, show_default=True)
@click.option("--proxy", metavar="ADDRESSES", help="Proxies whose X-Forwarded-For tells the caller's address.")
@click.option("--openapi", is_flag=True, help="Print the API's own document instead.")
def serve(find: FindApp, /, host: str, port: int, proxy: str | None, openapi: bool) -> None:
    """Serve the HTTP API (needs the extra `api`)."""
    if openapi:
        click.echo(json.dumps(_api().create(find()).openapi(), indent=2, ensure_ascii=False))
    else:
        _api().serve(find(), host, port, proxy)


def _api() -> ModuleType:
    try:
        return importlib.import_module("celeriac.api.server")
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}: the HTTP API needs `pip install celeriac[api]`") from error
