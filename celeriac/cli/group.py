"""The group of all commands: it finds the app, gives each command `--json`, and prints errors in one line.

Exit statuses: 0 done; 1 a problem found, or Postgres or Redis away, or a wrong setting; 2 a wrong command line; 3
refused (the life of a task, a role's rules), or not there.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeVar

import click
from click.exceptions import NoSuchCommand
from sqlalchemy.exc import DBAPIError

from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.former import now_called
from celeriac.enqueue.readiness import why_unready
from celeriac.errors import (
    BadValue,
    CeleriacError,
    ConfigurationError,
    EnqueueRefused,
    IllegalMove,
    NotReady,
    TokenRefused,
    Unknown,
)
from celeriac.operate.audit import VIA
from celeriac.store.failures import is_locked
from celeriac.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

PROBLEM: Final = 1
REFUSED: Final = 3

_REFUSALS = (BadValue, EnqueueRefused, IllegalMove, TokenRefused, Unknown)

#: The first argument of commands: a function that finds and returns the app.
FindApp = Callable[[], Celeriac]


def find_app(name: str) -> Celeriac:
    """Return the app at `package` or `package:attribute`, with all its tasks. Raises ConfigurationError."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        app = _app_in(importlib.import_module(module_name), attribute)
        if app is None:
            raise ConfigurationError(f"-A {name}: there is no Celeriac app there")
        return with_all_tasks(app)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"-A {name}: {error}; run it where the package lies, or name another") from error


def with_all_tasks(app: Celeriac) -> Celeriac:
    """Import what a worker imports as it starts: `include`, `imports`, what `autodiscover_tasks` finds.

    From then on each log record is written in one line, also by handlers that the application set up as it was
    imported.
    """
    from celeriac.worker import logs  # here, because it imports Celery's worker

    app.loader.import_default_modules()
    logs.in_text()
    return app


def _app_in(module: ModuleType, attribute: str) -> Celeriac | None:
    """Return the app from the places where Celery's command looks: `app`, any name, the package's module `celery`
    (Django's layout).
    """
    named, every = getattr(module, attribute or "app", None), vars(module).values()
    for candidate in [named] if attribute else [named, *every]:
        if isinstance(candidate, Celeriac):
            return candidate
    if attribute or not hasattr(module, "__path__") or not find_spec(f"{module.__name__}.celery"):
        return None
    return _app_in(importlib.import_module(f"{module.__name__}.celery"), "")


class Seconds(click.FloatRange):
    """A number of seconds within bounds. NaN is refused: no bound excludes it."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


class Problem(click.ClickException):
    """An error printed in a line on stderr."""

    exit_code = PROBLEM

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(output.safe, message.splitlines())))


class Refused(Problem):
    """A request that is refused although nothing is wrong."""

    exit_code = REFUSED


class Command(click.Command):
    """A command; every one takes `--json`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.append(output.json_option())


def command(run: Callable[..., None]) -> Command:
    """Make a command of a function whose first argument is `FindApp`."""
    made: Command = click.command(cls=Command)(click.pass_obj(run))
    return made


def with_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options and arguments, which several commands share, in this order."""

    def add(run: F) -> F:
        for option in reversed(options):
            run = option(run)
        return run

    return add


@contextmanager
def _former(context: click.Context, args: Sequence[str]) -> Iterator[None]:
    """Add the present name to the refusal of a former one."""
    try:
        yield
    except (click.NoSuchOption, NoSuchCommand) as error:
        path = _path(context)
        if now := now_called([*path, *args]):
            message = f"{error.format_message()} {now}" if path else now
            raise click.UsageError(message, context) from error
        raise


def _path(context: click.Context) -> list[str]:
    """Return the names that led to a group, below the command `celeriac`."""
    above = context.parent
    return [*_path(above), str(context.info_name)] if above and isinstance(above.command, Group) else []


class Group(click.Group):
    """A group that prints Celeriac's own errors and Postgres' in one line, without a traceback."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*self.commands]

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and not context.resilient_parsing and (now := now_called(_path(context))):
            raise click.UsageError(now, context)
        with _former(context, ()):
            return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        with _former(context, args):
            return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        VIA.set("command line")
        try:
            return super().invoke(context)
        except CeleriacError as error:
            refused = isinstance(error, _REFUSALS) and not isinstance(error, NotReady)
            raise (Refused if refused else Problem)(str(error)) from error
        except DBAPIError as error:
            if is_locked(error):
                raise Problem("somebody's open transaction has what this needs: try again soon") from error
            error_text = str(error.orig).partition("\n")[0]
            why = why_unready(error) or f"Postgres: {error_text}; `celeriac check` tells what is wrong"
            raise Problem(why) from error


class Root(Group):
    """The outermost group; its help has sections."""

    sections: Mapping[str, Iterable[str]] = MappingProxyType({})

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands), default=0)
        for section, names in self.sections.items():
            with formatter.section(section):
                limit = formatter.width - 6 - width
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names]
                )


@click.group(cls=Root)
@click.option(
    "-A", "--app", "name", default="tasks", envvar="CELERIAC_APP", show_default=True, help="The app's module."
)
@click.version_option(__version__)
@click.pass_context
def main(context: click.Context, name: str) -> None:
    """Celeriac: Celery with SQL roots."""
    context.obj = lambda: find_app(name)


@click.group("celeriac", cls=Root)
@click.pass_context
def within_celery(context: click.Context) -> None:
    """Celeriac's commands: tasks as rows."""
    app = context.obj.app
    context.obj = lambda: _celeriac(app)


def _celeriac(app: Any) -> Celeriac:
    if isinstance(app, Celeriac):
        return with_all_tasks(app)
    raise ConfigurationError(f"{app!r} is no Celeriac app: give one with -A")
