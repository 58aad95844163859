"""The log's lines about tasks are written many at once, and read as if each were written by itself."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery.app.defaults import DEFAULT_PROCESS_LOG_FMT
from celery.utils.log import ColorFormatter

from celeriac import Celeriac
from celeriac.run import outlets
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from celeriac.worker.logs import AsText
from tests.postgres.stages import claimed

N = 5


class Another(logging.Handler):
    """A handler of an application's own, which gets every record by itself."""

    def emit(self, record: logging.LogRecord) -> None: ...


Lines = Callable[..., list[str]]


@pytest.fixture
def lines(app: Celeriac, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The lines of a ticket, as a worker with `-f` writes them; without times, and what is different in each run."""
    ran: list[int] = []

    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> Any:
        if n == 2:
            logging.getLogger("mine").info("in the third")
        ran.append(n)
        return "two\nlines" if n == 3 else None

    app.register_roles()
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    for name in ("mine", "celery.app.trace", "celeriac.run.lines"):
        logging.getLogger(name).setLevel(logging.INFO)

    def run(*more: logging.Handler) -> list[str]:
        path = tmp_path / f"log-{len(ran)}"
        handler = outlets.patient(logging.handlers.WatchedFileHandler(path))
        handler.setFormatter(AsText(ColorFormatter(DEFAULT_PROCESS_LOG_FMT, use_color=False)))
        with monkeypatch.context() as patched:
            patched.setattr(logging.root, "handlers", [handler, *more])
            work.bulk([(n,) for n in range(N)])
            run_ticket(app, "work", *claimed(database, "work", N))
        handler.close()
        told = re.sub(r"succeeded in \S+s", "succeeded", path.read_text())
        first = min(map(int, re.findall(r"Claimed task (\d+)", told)))
        told = re.sub(r"(?<=ask )\d+", lambda one: str(int(one[0]) - first), told)
        told = re.sub(r"work\[.*?\]", "work[id]", told)
        return re.findall(r"^\[\d{4}-\d\d-\d\d [\d:,]+: (.*(?:\n [^\n]*)*)", told, re.MULTILINE)

    yield run  # type: ignore[misc]
    for name in ("mine", "celery.app.trace", "celeriac.run.lines"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_they_read_the_same_and_are_few_writes(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    write = outlets.Outlet.write

    def counted(outlet: outlets.Outlet, said: str) -> int:
        writes.append(said)
        return write(outlet, said)

    monkeypatch.setattr(outlets.Outlet, "write", counted)
    together, at_once = lines(), len(writes)
    apart = lines(Another())
    assert together == apart
    assert len(together) == 3 * N + 1
    assert at_once < len(writes) - at_once


def test_a_line_of_a_handler_comes_after_those_of_the_tasks_before_it(lines: Lines) -> None:
    told = lines()
    at = next(i for i, line in enumerate(told) if "in the third" in line)
    assert [line for line in told[:at] if "succeeded" in line] == [
        "INFO/MainProcess] Task work[id] succeeded: None"
    ] * 2
