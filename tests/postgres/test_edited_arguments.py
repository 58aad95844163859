"""Arguments of a task that waits are edited: by the rules of an enqueue, and never so that its keys would be others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.errors import BadArguments, IllegalMove, Unknown
from tests.processes import Rows

Sync = Callable[..., object]


@pytest.fixture
def app_with_sync(app: Celeriac) -> Celeriac:
    @app.task(role="sync", shared=False, lock_by="store_id")
    def sync(store_id: int, depth: int = 1, note: str = "") -> int:
        return store_id

    app.register_roles()
    return app


def test_what_waits_is_called_with_other_arguments(app_with_sync: Celeriac, rows: Rows) -> None:
    task = app_with_sync.send_task("sync", kwargs={"store_id": 7, "depth": 2})
    change = app_with_sync.edit(task.id, {"depth": 5, "note": "deeper"}, by="ann", why="asked")
    assert change.after == {"arguments": ["depth", "note"]}
    assert rows("SELECT kwargs, lock_key FROM tasks") == [({"store_id": 7, "depth": 5, "note": "deeper"}, "store_id:7")]
    assert rows("SELECT kind, by, why FROM celeriac.task_events WHERE kind = 'edit'") == [
        ("edit", "ann", "depth, note: asked")
    ]
    assert rows("SELECT by, action, after, why FROM celeriac.audit") == [
        ("ann", "edit", {"arguments": ["depth", "note"]}, "asked")
    ]


def test_what_an_enqueue_would_refuse_and_another_key_is_refused(app_with_sync: Celeriac, rows: Rows) -> None:
    task = app_with_sync.send_task("sync", kwargs={"store_id": 7}).id
    with pytest.raises(BadArguments, match="lock_key would be another: cancel it, and enqueue anew"):
        app_with_sync.edit(task, {"store_id": 8})
    with pytest.raises(BadArguments, match="unexpected keyword argument"):
        app_with_sync.edit(task, {"nonesuch": 8})
    with pytest.raises(Unknown):
        app_with_sync.edit("nobody", {"depth": 8})
    app_with_sync.cancel(task)
    with pytest.raises(IllegalMove, match="only what waits can be given other arguments"):
        app_with_sync.edit(task, {"depth": 8})
    assert rows("SELECT FROM celeriac.audit WHERE action = 'edit'") == []
