"""Tasks with every key, and with one."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac import Celeriac, Task

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")


@pytest.fixture
def sync(app: Celeriac) -> Task[..., Any]:
    """A task with every key; not prompt, so that nothing but the test moves its rows."""

    @app.task(
        bind=True, role="sync", fair_by="account_id", lock_by="store_id", unique_by="{store_id}:{kind}", priority=3,
        prompt=False, max_retries=2, max_rounds=4, shared=False,
    )  # fmt: skip
    def sync(self: Task[..., Any], account_id: int, store_id: int, kind: str = "full") -> None: ...

    return sync


@pytest.fixture
def plain(app: Celeriac) -> Task[..., Any]:
    @app.task(role="plain", prompt=False, unique_by="key", shared=False)
    def plain(key: str | None = None, filler: Any = None) -> None: ...

    return plain
