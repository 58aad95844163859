"""A bulk whose rows are inserted while the next are made is still one transaction: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task
from celeriac.enqueue.bulk import BULK
from celeriac.errors import BadArguments
from tests.processes import Rows

MANY = 3 * BULK + 7

IN_TRANSACTION = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL
"""


@pytest.fixture
def work(app: Celeriac) -> Task[..., Any]:
    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None: ...

    return work


def written(rows: Rows) -> int:
    return int(rows.one("SELECT count(*) FROM celeriac.tasks"))


def test_each_result_is_of_its_call(work: Task[..., Any], rows: Rows) -> None:
    results = work.bulk([(n,) for n in range(MANY)])
    found = rows("SELECT id, task_id, CAST(kwargs ->> 'n' AS integer) FROM celeriac.tasks ORDER BY 3")
    assert [(result.row_id, result.id, n) for n, result in enumerate(results)] == found
    assert all(result.is_new for result in results)


def test_a_call_that_is_refused_after_rows_were_inserted_leaves_none(work: Task[..., Any], rows: Rows) -> None:
    with pytest.raises(BadArguments, match="nothing was enqueued"):
        work.bulk([(n,) for n in range(MANY)] + [(object(),)])
    assert written(rows) == 0
    assert len(work.bulk([(n,) for n in range(MANY)])) == MANY


def test_what_postgres_refuses_later_leaves_none(work: Task[..., Any], rows: Rows) -> None:
    rows("ALTER TABLE celeriac.tasks ADD CONSTRAINT small CHECK (CAST(kwargs ->> 'n' AS integer) < 2500)")
    with pytest.raises(DBAPIError, match="small"):
        work.bulk([(n,) for n in range(MANY)])
    assert written(rows) == 0


def test_calls_that_are_waited_for_keep_no_transaction_open(work: Task[..., Any], rows: Rows) -> None:
    def coming() -> Iterator[tuple[int]]:
        for n in range(MANY):
            assert n % BULK or rows.one(IN_TRANSACTION) == 0
            yield (n,)

    assert len(work.bulk(coming())) == MANY


def test_where_threads_have_ended_rows_are_inserted_one_batch_after_the_other(
    work: Task[..., Any], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a function of `atexit`."""

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert len(work.bulk([(n,) for n in range(MANY)])) == MANY
    assert written(rows) == MANY


def test_nor_do_functions_that_give_keys(app: Celeriac, rows: Rows) -> None:
    def account(given: Mapping[str, Any]) -> object:
        assert given["n"] % BULK or rows.one(IN_TRANSACTION) == 0
        return given["n"] % 3

    @app.task(role="asking", shared=False, prompt=False, fair_by=account)
    def asking(n: int) -> None: ...

    assert len(asking.bulk([(n,) for n in range(MANY)])) == MANY
    assert rows("SELECT DISTINCT account FROM celeriac.tasks ORDER BY 1") == [("0",), ("1",), ("2",)]


def test_in_a_session_of_the_callers_they_come_and_go_with_it(app: Celeriac, work: Task[..., Any], rows: Rows) -> None:
    with Session(app.database.engine) as session:
        work.bulk([(n,) for n in range(MANY)], session=session)
        session.rollback()
    assert written(rows) == 0


def test_those_of_one_unique_key_are_one_row_wherever_they_stand(app: Celeriac, rows: Rows) -> None:
    @app.task(role="single", shared=False, prompt=False, unique_by="n")
    def single(n: int) -> None: ...

    results = single.bulk([(n % 2,) for n in range(MANY)])
    assert written(rows) == 2
    assert [result.is_new for result in results] == [True, True] + [False] * (MANY - 2)
