"""The alias of the engine's schema among Django's databases, and its address."""

from __future__ import annotations

from typing import Any

from celery import _state
from celery.utils.imports import symbol_by_name
from django.conf import settings
from django.db import connections
from sqlalchemy import URL, make_url

from celeriac.app import Celeriac
from celeriac.errors import ConfigurationError

#: Options of DATABASES that libpq also has.
_OPTIONS = ("service", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "options", "target_session_attrs")


def celeriac_app() -> Celeriac | None:
    """Return the project's app: the one CELERIAC_APP names, else the current one; None if that is stock Celery's."""
    path = getattr(settings, "CELERIAC_APP", None)
    app = symbol_by_name(path) if path else _state._tls.current_app or _state.default_app
    return app if isinstance(app, Celeriac) else None


def usual_alias() -> str:
    """Return the alias that CELERIAC_DATABASE names."""
    return str(getattr(settings, "CELERIAC_DATABASE", "default"))


def alias_of(database_url: str | None) -> str | None:
    """Return the alias of the engine's schema; None if DATABASE_URL names a database that is not in DATABASES."""
    if database_url is None:
        return usual_alias()
    identity = _identity(make_url(database_url))
    alike = [alias for alias in connections if _is_postgres(alias) and _identity(_url(alias)) == identity]
    return next((alias for alias in (usual_alias(), *alike) if alias in alike), None)


def address() -> str:
    """Return the usual alias's current address, which tests change. Raises ConfigurationError."""
    alias = usual_alias()
    if alias not in connections:
        raise ConfigurationError(f"CELERIAC_DATABASE={alias!r}: DATABASES has {', '.join(connections)}")
    if not _is_postgres(alias):
        raise ConfigurationError(
            f"DATABASES[{alias!r}] is no Postgres: name one that is in CELERIAC_DATABASE, or give DATABASE_URL"
        )
    return _url(alias).render_as_string(hide_password=False)


def _is_postgres(alias: str) -> bool:
    return bool(connections[alias].vendor == "postgresql")


def _url(alias: str) -> URL:
    entry: dict[str, Any] = connections[alias].settings_dict
    options = {name: str(value) for name, value in entry["OPTIONS"].items() if name in _OPTIONS}
    host = entry["HOST"] or None
    if host is not None and host.startswith("/"):  # a socket's folder
        options, host = options | {"host": host}, None
    port = int(entry["PORT"]) if entry["PORT"] else None
    return URL.create(
        "postgresql", entry["USER"] or None, entry["PASSWORD"] or None, host, port, entry["NAME"] or None, options
    )


def _identity(url: URL) -> tuple[Any, ...]:
    host = url.host or url.query.get("host") or "localhost"
    return ("127.0.0.1" if host == "localhost" else host), url.port or 5432, url.database
