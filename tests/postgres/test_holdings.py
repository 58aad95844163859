"""`inspect` tells of rows in an answer that whoever asks takes, however large their arguments are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.utils.json import dumps

from celeriac import Celeriac
from celeriac.insights.fleet import held
from celeriac.run import shared
from celeriac.seam.envelope import MOST_BYTES
from celeriac.worker.holdings import Desk, Holdings
from tests.processes import Rows


@pytest.fixture
def holdings(app: Celeriac) -> Holdings:
    @app.task(role="plus", prompt=False, shared=False)
    def plus(a: str) -> None: ...

    app.register_roles()
    return Holdings(SimpleNamespace(app=app, pool=None), Desk())


LATER = """
INSERT INTO worker_tasks (task_id, role, kwargs, waits_for, scheduled_for)
SELECT repeat(n::text, 9), 'plus', jsonb_build_object('a', repeat(:a, :n)), 'time', now() + interval '1 hour'
FROM generate_series(1, :tasks) AS n
"""


@pytest.mark.parametrize(("characters", "tells"), [(1, {"a": "é"}), (1000, "...")])
def test_an_answer_is_never_larger_than_what_is_read(
    holdings: Holdings, rows: Rows, characters: int, tells: Any
) -> None:
    rows(LATER, a="é", n=characters, tasks=held.MOST)
    told = holdings._scheduled()
    assert len(told) == held.MOST
    assert len(dumps({"celery@here": told})) * 4 / 3 < MOST_BYTES * 0.9
    assert all(one["request"]["kwargs"] == tells for one in told)


def test_one_large_task_is_told_of_as_events_do(holdings: Holdings, rows: Rows) -> None:
    rows(LATER, a="x", n=700_000, tasks=1)
    (told,) = holdings._query(["1" * 9]).values()
    assert told[0] == "scheduled"
    assert told[1]["kwargs"].startswith("{'a': 'xxx")
    assert len(told[1]["kwargs"]) <= 1024 + 50


def test_what_runs_is_read_once_for_an_answer(holdings: Holdings, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(LATER, a="x", n=1, tasks=3)
    asked: list[Any] = []

    def current(processes: Iterable[int], ask: Callable[..., Any] = shared.current) -> Any:
        asked.append(processes)
        return ask(processes)

    monkeypatch.setattr(shared, "current", current)
    assert len(holdings._scheduled()) == 3
    assert len(asked) == 1
