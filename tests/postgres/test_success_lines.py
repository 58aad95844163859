"""Celery's line of a success is Celery's, whichever way a task is called."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery import signals
from celery.app import trace

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import claimed


@pytest.mark.parametrize("ignore", [False, True])
def test_a_direct_call_logs_what_celerys_tracer_does(
    app: Celeriac, database: Database, caplog: pytest.LogCaptureFixture, ignore: bool
) -> None:
    @app.task(role="work", shared=False, ignore_result=ignore, prompt=False)
    def work(n: int, *, name: str) -> list[Any]:
        return [n, name]

    def heard(**_: Any) -> None: ...

    app.register_roles()
    lines: list[tuple[str, dict[str, Any]]] = []
    with caplog.at_level(logging.INFO, trace.logger.name):
        for listens in (False, True):
            caplog.clear()
            if listens:
                signals.task_prerun.connect(heard)
            try:
                work.delay(7, name="x")
                run_ticket(app, "work", *claimed(database, "work"))
            finally:
                signals.task_prerun.disconnect(heard)
            (record,) = [r for r in caplog.records if r.msg == trace.LOG_SUCCESS]
            assert isinstance(record.args, dict)
            assert record.getMessage().startswith(f"Task work[{record.args['id']}] succeeded in ")
            shown = {**record.args, "id": None, "runtime": None}
            lines.append((record.name, shown | {"data": getattr(record, "data", None) is not None}))
    assert lines[0] == lines[1]
