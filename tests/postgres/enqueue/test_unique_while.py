"""With `unique_while="due"`, what is planned for later takes no unique key from what may start now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celeriac import Celeriac, ConfigurationError
from tests.processes import Rows

JUNE = "2126-06-01T06:00:00+02:00"


@pytest.fixture
def sync(app: Celeriac) -> Any:
    @app.task(role="sync", shared=False, unique_by="store_id", unique_while="due")
    def sync(store_id: int) -> None: ...

    app.register_roles()
    return sync


def in_python(app: Celeriac, rows: Rows, **when: Any) -> tuple[int, bool]:
    made = app.tasks["sync"].apply_async((7,), **when)
    return made.row_id, made.is_new


def in_sql(app: Celeriac, rows: Rows, eta: str | None = None) -> tuple[int, bool]:
    ((row, is_new),) = rows(
        """SELECT id, is_new
        FROM celeriac.enqueue('sync', '{"store_id": 7}', scheduled_for => CAST(:eta AS timestamptz))""",
        eta=eta,
    )
    return row, is_new


WAYS = (in_python, in_sql)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("sync")
def test_one_planned_for_june_does_not_absorb_todays(app: Celeriac, rows: Rows, way: Callable[..., Any]) -> None:
    planned, is_new = way(app, rows, eta=JUNE)
    assert is_new
    today, is_new = way(app, rows)
    assert is_new, "what may start now finds its key free"
    assert [other(app, rows) for other in WAYS] == [(today, False)] * 2, "one of them"
    assert [other(app, rows, eta=JUNE) for other in WAYS] == [(planned, False)] * 2, "and one of that time"
    assert way(app, rows, eta="2126-06-02T06:00:00Z")[1]
    assert way(app, rows, eta="2020-01-01T00:00:00Z") == (today, False), "what is past is due"


def test_a_delay_is_a_time_too(app: Celeriac, rows: Rows, sync: Any) -> None:
    later = sync.apply_async((7,), countdown=3600)
    assert sync.apply_async((7,), countdown=3600).row_id == later.row_id
    assert sync.delay(7).is_new
    assert sync.using(unique_key="own", countdown=60).delay(7).is_new
    assert not sync.using(unique_key="own").delay(7).is_new, "a key that the call gives is the call's"
    assert rows.one("SELECT definition ->> 'unique_while' FROM celeriac.roles WHERE role = 'sync'") == "due"


def test_left_out_it_is_one_unfinished(app: Celeriac, rows: Rows) -> None:
    @app.task(role="sync", shared=False, unique_by="store_id")
    def sync(store_id: int) -> None: ...

    app.register_roles()
    planned = sync.apply_async((7,), eta=JUNE)
    assert [way(app, rows) for way in WAYS] == [(planned.row_id, False)] * 2
    with pytest.raises(ConfigurationError, match="unique_while='often': give 'unfinished' or 'due'"):
        app.task(role="other", unique_while="often")(sync.run)  # type: ignore[call-overload]
