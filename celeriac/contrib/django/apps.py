"""Join the project's Celeriac app to Django's databases; a stock Celery app is left alone."""

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

#: Addresses of the databases whose schema this process has migrated.
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

    It runs once a process and database: Django sends the same signal after each flush, as in a TransactionTestCase.
    """
    app = databases.celeriac_app()
    if app is None or databases.alias_of(app.settings.database_url) != using or app.database_url in _brought:
        return
    follow()
    _let_go_of_tests_database(app, connections[using].creation)
    migrate(app.database.engine, app.migrations)
    app.register_roles(served=[])
    _brought.add(app.database_url)
    _forget_database(app)  # `test --parallel` copies the database, which Postgres refuses while anybody is connected


def follow(**_: Any) -> None:
    """Make the app follow DATABASES when it points elsewhere, as to a test's database."""
    app = databases.celeriac_app()
    if app is not None and "database" in app.__dict__ and app.database.url != app.database_url:
        _forget_database(app)


def _forget_database(app: Celeriac) -> None:
    """Close the connections; the next access reads DATABASES again."""
    if "database" in app.__dict__:
        app.database.dispose()
    for name in ("database", "by_name", "limited", "tally"):
        app.__dict__.pop(name, None)


def _let_go_of_tests_database(app: Celeriac, creation: Any) -> None:
    """Disconnect before Django drops a test's database: Postgres drops none in use, and Django sends no signal."""

    def destroy(*args: Any, **options: Any) -> Any:
        _brought.discard(app.database_url)
        _forget_database(app)
        return type(creation).destroy_test_db(creation, *args, **options)

    creation.destroy_test_db = destroy
