"""The Django integration: put `"celeriac.contrib.django"` into INSTALLED_APPS (docs/django.md).

apps           finds the Celeriac app, gives it the address from DATABASES; `migrate` brings the engine's schema
databases      which alias the schema lies in, and its address
transactions   what is enqueued within `atomic()` belongs to that transaction
task           `delay_on_commit`, `apply_async_on_commit`
models, admin  the tasks, to be read; `routers` keeps them out of `dumpdata`
checks         what `celeriac check` notes, among Django's
management     `manage.py celeriac …`
backend        a backend of Django's tasks framework; `framework`, whichever of its packages is there
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`celeriac.contrib.django.Backend`, as TASKS names it: Django's tasks are imported where somebody asks for it."""
    if name == "Backend":
        from celeriac.contrib.django.backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
