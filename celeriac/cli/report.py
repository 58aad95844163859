"""`celeriac report`: the facts that a bug report needs first."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import text

from celeriac.app import Celeriac
from celeriac.cli import output
from celeriac.cli.doctor import PATIENCE
from celeriac.cli.group import FindApp, command
from celeriac.doctor import examine
from celeriac.settings import Settings
from celeriac.version import __version__

PACKAGES = ("celery", "kombu", "billiard", "redis", "SQLAlchemy", "psycopg2-binary", "psycopg2", "alembic")

#: Shown instead of a text, such as an address, which may contain a password.
NO_VALUE = "set"


@command
def report(find: FindApp, /) -> None:
    """Versions, settings without secrets, servers and what the doctor finds, for a bug's description."""
    app = find()
    facts = {
        "versions": dict(_versions()),
        "servers": dict(_servers(app)),
        "settings": dict(_settings(app.settings)),
        "roles": len(app.roles.own()),
        "doctor": _or_why(lambda: _doctor(app)),
    }
    output.tell(facts, _lines(facts))


def _versions() -> Iterator[tuple[str, str]]:
    yield "celeriac", __version__
    yield "python", f"{platform.python_version()} on {sys.platform}"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _servers(app: Celeriac) -> Iterator[tuple[str, Any]]:
    def postgres() -> str:
        with app.database.statement() as connection:
            return str(connection.execute(text("SELECT version()")).scalar_one())

    def redis() -> str:
        with app.connection_for_read() as connection:
            server = connection.default_channel.client.info("server")
        return f"{server.get('server_name', 'redis')} {server.get('valkey_version') or server['redis_version']}"

    yield "postgres", _or_why(postgres)
    yield "redis", _or_why(redis)


def _settings(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from their defaults, by variable if they have one."""
    for one in fields(Settings):
        setting = getattr(settings, one.name)
        if setting != one.default:
            number = one.metadata.get("scale")
            plain = isinstance(setting, bool) or one.name == "log_format"
            value = round(setting / number, 6) if number else setting if plain else NO_VALUE
            yield one.metadata.get("variable", one.name), value


def _doctor(app: Celeriac) -> list[str]:
    """Return a line for each finding, without the servers' hosts."""
    addresses = (app.settings.database_url, app.settings.redis_url)
    hosts = {host for address in addresses if address and (host := urlsplit(address).hostname)}
    findings = examine(app, PATIENCE)
    lines = [f"{'✓' if finding.ok else '✕'} {finding.check}: {finding.says}" for finding in findings]
    return [reduce(lambda line, host: line.replace(host, "(host)"), hosts, line) for line in lines]


def _or_why(read: Callable[[], Any]) -> Any:
    """Return what `read` returns, or else the kind of its error: the error's text may name hosts and logins."""
    try:
        return read()
    except Exception as error:
        return f"no answer: {type(error).__name__}"


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        lines = [f"{key}: {one}" for key, one in value.items()] if isinstance(value, Mapping) else value
        if isinstance(lines, list):
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)
        else:
            yield f"{name}: {lines}"
