"""The Django integration: put `"celeriac.contrib.django"` into INSTALLED_APPS (docs/django.md).

apps           joins the Celeriac app to DATABASES; `migrate` also migrates the engine's schema
databases      the alias of the schema's database, and its address
transactions   tasks enqueued within `atomic()` belong to that transaction
task           `delay_on_commit`, `apply_async_on_commit`
models, admin  the tasks, read-only; `routers` keeps them out of `dumpdata`
checks         the notes of `celeriac check`, among Django's checks
management     `manage.py celeriac …`
backend        a backend of Django's tasks framework; `framework` imports the package that has it
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `Backend`, which TASKS names. Django's tasks framework is imported only when it is used."""
    if name == "Backend":
        from celeriac.contrib.django.backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
