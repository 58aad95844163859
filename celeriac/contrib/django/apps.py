"""Joins the project's Celeriac app to Django's databases; does nothing if the app is stock Celery's."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections, router
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from celeriac.app import Celeriac
from celeriac.contrib.django import databases
from celeriac.contrib.django.checks import notes
from celeriac.contrib.django.routers import OnlyRead
from celeriac.contrib.django.transactions import Ambient, in_djangos_thread
from celeriac.store.migrate import migrate

#: Addresses of the databases that have the schema by this process.
_brought: set[str] = set()


class CeleriacConfig(AppConfig):
    """The Django app, which INSTALLED_APPS finds by the package's name."""

    name = "celeriac.contrib.django"
    label = "celeriac"
    verbose_name = "Celeriac"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        router.routers.insert(0, OnlyRead())
        app = databases.celeriac_app()
        if app is None:
            return
        app.address = databases.address
        app.ambient = Ambient(app.settings.database_url)
        app.beside.frameworks = in_djangos_thread
        checks.register(notes, "celeriac")
        post_migrate.connect(bring_schema, sender=self)
        connection_created.connect(follow)


def bring_schema(using: str, **_: Any) -> None:
    """Migrate the engine's schema after Django's `migrate` of the database it lies in, in tests too.

    Once a process: Django sends the same signal after each flush, as of a TransactionTestCase.
    """
    app = databases.celeriac_app()
    if app is None or databases.alias_of(app.settings.database_url) != using or app.database_url in _brought:
        return
    follow()
    _let_go_of_tests_database(app, connections[using].creation)
    migrate(app.database.engine, app.migrations)
    app.register_roles(served=[])
    _brought.add(app.database_url)
    _forget_database(app)  # Postgres copies none that somebody is connected to, as `test --parallel` has it do


def follow(**_: Any) -> None:
    """Where DATABASES points elsewhere by now, at a test's database or a parallel test's, the app goes there, too."""
    app = databases.celeriac_app()
    if app is not None and "database" in app.__dict__ and app.database.url != app.database_url:
        _forget_database(app)


def _forget_database(app: Celeriac) -> None:
    """Drop the connections; the next access connects to where DATABASES points by then."""
    if "database" in app.__dict__:
        app.database.dispose()
    for name in ("database", "by_name", "limited", "tally"):
        app.__dict__.pop(name, None)


def _let_go_of_tests_database(app: Celeriac, creation: Any) -> None:
    """Disconnect before Django drops a test's database, of which it sends no signal: Postgres drops none in use."""

    def destroy(*args: Any, **options: Any) -> Any:
        _brought.discard(app.database_url)
        _forget_database(app)
        return type(creation).destroy_test_db(creation, *args, **options)

    creation.destroy_test_db = destroy
