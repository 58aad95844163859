"""A direct call's request is as whole as a traced one's, whoever reads, prints, copies or pickles it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from celery.signals import task_prerun

from celeriac import Celeriac
from tests.postgres.workflows import run_all

FIELDS = ("id", "retries", "timelimit", "origin", "delivery_info", "properties", "called_directly", "args", "hostname")

COPIES = {
    "itself": lambda request: request,
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "a copy of a copy": lambda request: copy.copy(copy.copy(request)),
    "pickled": lambda request: pickle.loads(pickle.dumps(request)),
}


@pytest.mark.parametrize("way", COPIES)
def test_it_has_what_a_traced_ones_has(app: Celeriac, way: str) -> None:
    seen: list[dict[str, Any]] = []

    @app.task(role="asks", bind=True, prompt=False, chunk=9, shared=False)
    def asks(self: Any, x: int) -> None:
        request = COPIES[way](self.request)
        assert [name for name in FIELDS if f"'{name}': " not in repr(request)] == []
        seen.append({name: request.get(name) for name in FIELDS})

    app.register_roles()
    asks.apply_async((1,), priority=3)
    asks.apply_async((2,), priority=4)
    run_all(app)

    def listen(**_: Any) -> None:
        """Has every task traced."""

    task_prerun.connect(listen)
    try:
        asks.apply_async((1,), priority=3)
        asks.apply_async((2,), priority=4)
        run_all(app)
    finally:
        task_prerun.disconnect(listen)
    by_priority = sorted(seen, key=lambda request: int(request["delivery_info"]["priority"]))
    assert [request["delivery_info"]["priority"] for request in by_priority] == [3, 3, 4, 4]
    for direct, traced in (by_priority[:2], by_priority[2:]):
        for request in (direct, traced):
            assert request["properties"]["delivery_info"] == request["delivery_info"]
            assert request["properties"].pop("correlation_id") == request.pop("id")
        assert direct == traced
