"""`celeriac`: what Celery's own command does not do."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click
from sqlalchemy.exc import DBAPIError

from celeriac.app import Celeriac
from celeriac.errors import CeleriacError, ConfigurationError
from celeriac.migrate import migrate as migrate_database
from celeriac.sweeps import SWEEPS
from celeriac.sweeps import sweep as run_sweep


def find_app(name: str) -> Celeriac:
    """`package` or `package:attribute`. Raises ConfigurationError."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"-A {name}: {error}; run it where the package lies, or name another") from error
    candidates = [getattr(module, attribute or "app", None), *vars(module).values()]
    for candidate in candidates:
        if isinstance(candidate, Celeriac):
            return candidate
    raise ConfigurationError(f"-A {name}: there is no Celeriac app in that module")


class Group(click.Group):
    """Errors made on purpose are told in a line, not in a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except CeleriacError as error:
            raise click.ClickException(str(error)) from error
        except DBAPIError as error:
            says = str(error.orig).splitlines()[0]
            raise click.ClickException(f"Postgres: {says}; `celeriac check` tells what is wrong") from error


@click.group(cls=Group)
@click.option(
    "-A", "--app", "name", default="tasks", envvar="CELERIAC_APP", show_default=True, help="The app's module."
)
@click.pass_context
def main(context: click.Context, name: str) -> None:
    """Celeriac: Celery with SQL roots."""
    context.obj = lambda: find_app(name)


@main.command()
@click.option("--lock-timeout", default=5.0, show_default=True, help="Seconds to wait for a lock before giving up.")
@click.option("--statement-timeout", default=600.0, show_default=True, help="Seconds a statement may take.")
@click.pass_obj
def migrate(app: Any, lock_timeout: float, statement_timeout: float) -> None:
    """Bring the database to the current schema: the engine's tables, then the application's."""
    app = app()
    migrate_database(
        app.database.engine, app.migrations, lock_timeout=lock_timeout, statement_timeout=statement_timeout
    )
    app.register_roles()
    click.echo(f"The database is current; {len(app.roles.all())} roles are registered.")


@main.command()
@click.argument("sweeps", nargs=-1, type=click.Choice(list(SWEEPS)))
@click.option("--all", "everything", is_flag=True, help="Run every sweep.")
@click.pass_obj
def sweep(app: Any, sweeps: tuple[str, ...], everything: bool) -> None:
    """Run one pass of a sweep, with or without a beat."""
    names = list(SWEEPS) if everything else list(sweeps)
    if not names:
        raise click.UsageError(f"name a sweep ({', '.join(SWEEPS)}) or give --all")
    app = app()
    for name in names:
        click.echo(f"{name}: {run_sweep(app, name)}")


@main.command()
@click.argument("role")
@click.pass_obj
def dispatch(app: Any, role: str) -> None:
    """Run one pass of a role's batcher now."""
    click.echo(f"{role}: {app().dispatch(role)} tasks published")


@main.command()
@click.pass_obj
def check(app: Any) -> None:
    """Validate settings, roles, schedules, schema and connections without starting anything."""
    from celeriac.check import problems

    app = app()
    found = problems(app)
    for problem in found:
        click.echo(problem, err=True)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"{len(app.roles.all())} roles and the schedules are valid; Postgres and Redis answer.")


@main.command()
@click.option("--with", "others", multiple=True, metavar="NAME=COMMAND", help="Another process to run beside them.")
@click.option("--flower-port", default=5555, show_default=True)
@click.option("-c", "--concurrency", default=2, show_default=True, help="Processes of the worker.")
@click.pass_context
def up(context: click.Context, others: tuple[str, ...], flower_port: int, concurrency: int) -> None:
    """Run the whole stack in the foreground: servers where none are given, worker, beat and Flower."""
    from celeriac.up import run

    app = context.obj()
    name = context.parent.params["name"] if context.parent else "tasks"
    context.invoke(migrate)
    raise click.exceptions.Exit(run(app, name, others, flower_port, concurrency))


@main.command()
@click.option("--host", envvar="CELERIAC_API_HOST", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", envvar="CELERIAC_API_PORT", default=6002, show_default=True)
@click.option("--proxy", metavar="ADDRESSES", help="Proxies whose X-Forwarded-For tells the caller's address.")
@click.pass_obj
def serve(app: Any, host: str, port: int, proxy: str | None) -> None:
    """Serve the HTTP API (needs the extra `api`)."""
    try:
        from celeriac.api.server import serve as serve_api
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}: the HTTP API needs `pip install celeriac[api]`") from error
    serve_api(app(), host, port, proxy)
