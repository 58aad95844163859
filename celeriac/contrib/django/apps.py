"""Joins the project's Celeriac app to Django's databases. Does nothing where the app is stock Celery's."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.models.signals import post_migrate

from celeriac.app import Celeriac
from celeriac.contrib.django import databases
from celeriac.contrib.django.checks import notes
from celeriac.contrib.django.transactions import Ambient
from celeriac.store.migrate import migrate


class CeleriacConfig(AppConfig):
    """INSTALLED_APPS finds it by the package's name."""

    name = "celeriac.contrib.django"
    label = "celeriac"
    verbose_name = "Celeriac"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        app = databases.celeriac_app()
        if app is None:
            return
        app.address = databases.address
        app.ambient = Ambient(app.settings.database_url)
        checks.register(notes, "celeriac")
        post_migrate.connect(bring_schema, sender=self)


def bring_schema(using: str, **_: Any) -> None:
    """After Django's `migrate` of the database that the engine's schema lies in: brings it up to date, in tests too."""
    app = databases.celeriac_app()
    if app is None or databases.alias_of(app.settings.database_url) != using:
        return
    if "database" in app.__dict__ and app.database.url != app.database_url:  # a test's
        _forget_database(app)
    _let_go_of_tests_database(app, connections[using].creation)
    migrate(app.database.engine, app.migrations)
    app.register_roles(served=[])


def _forget_database(app: Celeriac) -> None:
    """The next look-up connects to where DATABASES points by then."""
    if "database" in app.__dict__:
        app.database.dispose()
    for name in ("database", "by_name"):
        app.__dict__.pop(name, None)


def _let_go_of_tests_database(app: Celeriac, creation: Any) -> None:
    """Postgres drops no database that somebody is connected to, and Django has no signal before it drops a test's."""

    def destroy(*args: Any, **options: Any) -> Any:
        _forget_database(app)
        return type(creation).destroy_test_db(creation, *args, **options)

    creation.destroy_test_db = destroy
