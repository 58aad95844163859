"""Django checks: errors in the app's configuration, and settings and options that have no effect."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004

from celeriac.contrib.django.databases import celeriac_app
from celeriac.errors import ConfigurationError


def notes(**_: Any) -> list[CheckMessage]:
    """Return the findings, without contacting a server; `manage.py celeriac check` also contacts the servers."""
    app = celeriac_app()
    if app is None:
        return []
    try:
        app.database_url  # noqa: B018
        app.roles.all()
        return [Warning(note, id="celeriac.W001") for note in app.notes()]
    except ConfigurationError as error:
        return [Error(str(error), id="celeriac.E001")]
