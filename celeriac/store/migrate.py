"""Brings a database to the current schema: the engine's branch, then the application's.

Alembic is imported where it is used: every process imports this module, few need it, and it is a tenth of their start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

if TYPE_CHECKING:
    from alembic.config import Config

ENGINE_VERSIONS = Path(__file__).parent / "migrations" / "versions"

#: The engine's revisions have a table of their own, so that an application keeps its Alembic as it is.
ENGINE_TABLE, APPLICATION_TABLE = "celeriac_version", "alembic_version"


def configuration(versions: Path) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(ENGINE_VERSIONS.parent))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    return config


def migrate(
    engine: Engine,
    application: Path | None = None,
    *,
    lock_timeout: float = 5.0,
    statement_timeout: float = 600.0,
) -> None:
    """Applies what is missing, in one transaction; safe to run from several places at once. Timeouts in seconds."""
    from alembic.command import upgrade

    with engine.begin() as connection:
        # Waiting for another migration may take as long as that one does; only after it do the timeouts count.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('celeriac migrate', 0))"))
        for versions, table in _branches(application):
            config = configuration(versions)
            config.attributes.update(connection=connection, table=table, timeouts=(lock_timeout, statement_timeout))
            upgrade(config, "head")


def unapplied(connection: Connection, application: Path | None = None) -> set[str]:
    """Revisions the code has and the database lacks."""
    return {name for branch in _branches(application) for name in _unapplied(connection, *branch)}


def _branches(application: Path | None) -> list[tuple[Path, str]]:
    return [(ENGINE_VERSIONS, ENGINE_TABLE), *([(application, APPLICATION_TABLE)] if application else [])]


def _unapplied(connection: Connection, versions: Path, table: str) -> set[str]:
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(configuration(versions))
    reached = MigrationContext.configure(connection, opts={"version_table": table}).get_current_heads()
    applied = {r.revision for head in reached for r in script.iterate_revisions(head, "base")}
    return {r.revision for r in script.walk_revisions()} - applied
