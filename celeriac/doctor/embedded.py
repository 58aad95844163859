"""Check the embedded servers' versions. pip is called in the background; only `wait` waits for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text

from celeriac.app import Celeriac
from celeriac.dispatch.publish import Publisher
from celeriac.doctor.findings import Seen, Trouble
from celeriac.local import versions
from celeriac.local.versions import POSTGRES_WHEEL, VALKEY_WHEEL
from celeriac.store.connections import Database

RUNS = text("SELECT CAST(current_setting('server_version_num') AS integer)")


def wait(stack: Any, seconds: float) -> None:
    """Wait for pip's answer about the wheels of the stack, if there is one, but no longer than that."""
    versions.wait_for(_wheels(stack), seconds)


def look(app: Celeriac) -> Seen:
    """Check that the embedded servers, if this process uses any, are the newest that can be installed."""
    servers = {POSTGRES_WHEEL: lambda: _postgres(app.database), VALKEY_WHEEL: lambda: _valkey(app.publisher)}
    seen = [_of_wheel(wheel, *servers[wheel]()) for wheel in _wheels(app.stack_in_use)]
    how = "; ".join(one.text for one in seen if one.text)
    return Seen(how or "none is in use here", [trouble for one in seen for trouble in one.troubles])


def _wheels(stack: Any) -> list[str]:
    """Return the wheels of the embedded servers that are in use; none without a stack."""
    used = [] if stack is None else [(POSTGRES_WHEEL, stack.database_url), (VALKEY_WHEEL, stack.redis_url)]
    return [wheel for wheel, url in used if url]


def _postgres(database: Database) -> tuple[str, str]:
    """Return the version that runs, and a note if Postgres' calendar has a newer minor release."""
    with database.statement() as connection:
        major, minor = divmod(connection.execute(RUNS).scalar_one(), 10_000)
    least = versions.least_minor(major, datetime.now(UTC).date())
    behind = f"; Postgres {major}.{least} or a later one has been out for a month" if minor < least else ""
    return f"Postgres {major}.{minor}", behind


def _valkey(publisher: Publisher) -> tuple[str, str]:
    info = publisher.ask(lambda client: client.info("server")) or {}
    return f"Valkey {info.get('valkey_version', '')}".strip(), ""


def _of_wheel(wheel: str, server: str, behind: str) -> Seen:
    """Return the finding about a wheel. `behind`: a note on the server, trouble only if a newer wheel mends it."""
    installed, newest = versions.installed(wheel), versions.newest(wheel)
    if installed is None:
        return Seen(f"{server} (of which {wheel} is not known: nothing tells its version{behind})")
    if newest is None:
        return Seen(f"{server} ({wheel} {installed}; whether there is a newer one is not known, or not yet{behind})")
    if not versions.is_older(installed, newest):
        return Seen(f"{server} ({wheel} {installed}, the newest{behind})")
    cure = f"`pip install --upgrade {wheel}`, and end for a moment whatever uses the embedded servers"
    return Seen("", [Trouble(f"{server} is of {wheel} {installed}, and there is {newest}{behind}", cure)])
