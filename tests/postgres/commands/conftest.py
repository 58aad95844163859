"""An app with a role, and its commands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from celeriac import Celeriac
from celeriac.cli import within_celery
from tests.postgres.commands.results import Run


@pytest.fixture
def run(app: Celeriac) -> Run:
    """`run("show", "7")`: as `celery -A … celeriac tasks show 7`."""

    @app.task(role="sync", prompt=False, shared=False, unique_by="store_id")
    def sync(store_id: int, note: str = "") -> None: ...

    app.register_roles()

    def invoke(*arguments: object, **options: Any) -> Result:
        given = SimpleNamespace(app=app)
        return CliRunner().invoke(within_celery, [str(a) for a in arguments], obj=given, **options)

    return invoke
