"""What a call says beside its arguments is on its row; what only concerns a message may be said, and changes none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from celeriac import Celeriac, Task
from tests.processes import Rows


@pytest.fixture
def build(app: Celeriac) -> Task[..., Any]:
    @app.task(role="build", eager=False, time_limit=600, shared=False)
    def build(x: int = 0) -> None: ...

    return build


CONTENT = """
SELECT DISTINCT role, account, status, waits_for, priority, args, kwargs, headers, expires_at, max_retries, timeout,
    parent_id FROM worker_tasks"""

OF_A_MESSAGE: Mapping[str, Any] = {
    "ignore_result": True, "serializer": "json", "compression": "gzip", "retry": False, "add_to_parent": False,
    "retry_policy": {"max_retries": 1}, "reply_to": "me", "delivery_mode": 1, "headers": {"sentry-trace": "1"},
    "replaced_task_nesting": 1, "root_id": "r", "parent_id": "p", "stamped_headers": ["monitored"],
    "monitored": "yes", "link": None, "link_error": [], "origin": "here", "mandatory": False, "immediate": False,
    "exchange": "", "queue": "build", "time_limit": None,
}  # fmt: skip


def test_what_only_concerns_a_message_changes_no_row(build: Task[..., Any], rows: Rows) -> None:
    build.delay(1)
    build.apply_async((1,), **OF_A_MESSAGE)
    build.s(1).apply_async(**OF_A_MESSAGE)
    build.app.send_task("build", (1,), **OF_A_MESSAGE)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 4
    assert len(rows(CONTENT)) == 1


@pytest.mark.parametrize("option", ["producer", "publisher"])
def test_a_row_is_inserted_whatever_publisher_the_call_brings(
    build: Task[..., Any], app: Celeriac, rows: Rows, option: str
) -> None:
    with app.producer_pool.acquire() as publisher:
        assert build.apply_async((1,), **{option: publisher}).is_new
    assert rows.one("SELECT count(*) FROM worker_tasks") == 1


@pytest.mark.parametrize(
    ("limits", "timeout"),
    [
        ({"soft_time_limit": 5}, 5), ({"time_limit": 9}, 9), ({"soft_time_limit": 5, "time_limit": 9}, 5),
        ({"soft_time_limit": 5, "timeout": 3}, 3), ({"soft_time_limit": 0}, None), ({}, None),
    ],
)  # fmt: skip
def test_celerys_time_limits_of_a_call_are_its_timeout(
    build: Task[..., Any], rows: Rows, limits: dict[str, Any], timeout: float | None
) -> None:
    build.apply_async((1,), **limits)
    build.s(1).apply_async(**limits)
    build.app.send_task("build", (1,), **limits)
    assert rows("SELECT timeout FROM worker_tasks") == [(timeout,)] * 3
