"""What SQLAlchemy asks the first connection of a pool for, one round trip each, and the driver knows already.

A worker makes a pool in each of its processes, and a region away each trip takes a tenth of a second.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine

#: The engine's statements read no hstore, whose type is looked up in three trips for each connection.
NO_HSTORE = {"use_native_hstore": False}


def ask_nothing(engine: Engine) -> None:
    """Let the engine's dialect take the version and what strings mean from its driver, which has heard both from
    Postgres as it connected. Of the schema and the isolation nothing is asked: the pool's statements name them.
    """
    dialect: Any = engine.dialect
    dialect._get_server_version_info = _version
    dialect._get_default_schema_name = lambda _: None
    dialect.get_default_isolation_level = lambda _: "READ COMMITTED"
    dialect._set_backslash_escapes = lambda connection: setattr(dialect, "_backslash_escapes", _escapes(connection))


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _version(connection: Connection) -> tuple[int, int]:
    major, minor = divmod(_driver(connection).server_version, 10_000)
    return major, minor


def _escapes(connection: Connection) -> bool:
    return bool(_driver(connection).get_parameter_status("standard_conforming_strings") == "off")
