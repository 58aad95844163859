"""A ticket that breaks off lets its rows go, however late Postgres takes them, or ends its process with them."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.run.settler import Settler
from celeriac.run.watch import LOOK_EVERY
from celeriac.store.connections import Database
from tests.postgres.tickets.conftest import TICKET, Away, Exited, Run
from tests.processes import Rows


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something of ours raises once the tasks have run, however slowly the first of them did."""

    def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("celeriac.run.ticket.SETTLE_EVERY", 60.0)
    monkeypatch.setattr(Settler, "settle", refuse)


@pytest.mark.usefixtures("exits", "broken")
def test_a_ticket_that_breaks_off_lets_its_rows_go(app: Celeriac, database: Database, rows: Rows, run: Run) -> None:
    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None: ...

    work.bulk([(1,), (2,)])
    with pytest.raises(ZeroDivisionError):
        run(2)
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)] * 2


@pytest.mark.usefixtures("exits", "broken")
def test_a_ticket_that_breaks_off_and_is_locked_for_a_moment_lets_its_rows_go_after_it(
    app: Celeriac, database: Database, rows: Rows, run: Run
) -> None:
    begun = threading.Event()

    def beat() -> None:
        with database.transaction() as beating:
            beating.exec_driver_sql(TICKET)
            begun.set()
            time.sleep(LOOK_EVERY)

    beating = threading.Thread(target=beat)

    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None:
        if n == 2:
            beating.start()
            begun.wait()

    work.bulk([(1,), (2,)])
    with pytest.raises(ZeroDivisionError):
        run(2)
    beating.join()
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)] * 2


@pytest.mark.usefixtures("exits", "broken")
@pytest.mark.parametrize("obstacle", ["Postgres is away", "its ticket is locked for long"])
def test_a_process_that_cannot_let_its_rows_go_ends_with_them(
    app: Celeriac, database: Database, run: Run, away: Away, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.run.ticket.LOOKS", 2)
    with ExitStack() as lasting:

        @app.task(role="work", shared=False, prompt=False)
        def work(n: int) -> None:
            if n == 1:
                return
            if obstacle == "Postgres is away":
                lasting.enter_context(away())
            else:
                lasting.enter_context(database.transaction()).exec_driver_sql(TICKET)

        work.bulk([(1,), (2,)])
        with pytest.raises(Exited):
            run(2)
