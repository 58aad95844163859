"""Whatever breaks inside, a stranger reads a problem document, and nothing of how the server is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import make_url

from celeriac.api.problems import KINDS, Kind, Problem
from tests.api.broken import SECRET
from tests.api.server import Api, problem, serving
from tests.conftest import Servers
from tests.renewed import Renewed

#: The server, its log, and the name of its database.
Broken = tuple[Api, Path, str]


@pytest.fixture(scope="module")
def served(servers: Servers, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renewed[Broken]]:
    @contextmanager
    def serve() -> Iterator[Broken]:
        log = tmp_path_factory.mktemp("broken") / "log"
        with servers.cloned(template) as url, serving(url, servers.redis_url, log, app="tests.api.broken") as api:
            yield api, log, str(make_url(url).database)

    shared = Renewed(serve)
    yield shared
    shared.close()


@pytest.fixture
def broken(served: Renewed[Broken], request: pytest.FixtureRequest) -> Broken:
    return served.of(request.node.nodeid)


def test_what_breaks_is_told_to_the_log_and_nobody_else(broken: Broken) -> None:
    api, log, _ = broken
    for path in ("/api/broken/code", "/api/broken/sql", "/api/broken/engine"):
        logged = log.stat().st_size
        answer = api.ask("GET", path)
        document = problem(answer, 500)
        assert not [word for word in (SECRET, "SELECT", "Traceback", "RuntimeError") if word in answer.text], document
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert SECRET in log.read_text()[logged:]


def test_a_statement_that_takes_long_is_ended(broken: Broken) -> None:
    api, *_ = broken
    document = problem(api.ask("GET", "/api/broken/slow"), 503)
    assert (document["type"], "5 s" in document["detail"]) == ("urn:celeriac:problem:too-slow", True)


def test_while_postgres_is_away_only_the_process_is_well(broken: Broken, servers: Servers) -> None:
    """Last: it has no database any more."""
    api, _, name = broken
    servers.execute(f"DROP DATABASE {name} WITH (FORCE)")
    answer = api.ask("GET", "/api/tasks")
    assert "Postgres" in problem(answer, 503)["detail"]
    assert answer.headers["retry-after"]
    assert api.http.get("/healthz").status_code == 200
    assert api.http.get("/healthz").headers["cache-control"] == "no-store"


def test_each_kind_of_problem_has_a_status_and_a_meaning() -> None:
    assert {*KINDS} == {*get_args(Kind)}
    for kind, (status, meaning) in KINDS.items():
        assert HTTPStatus(status) >= HTTPStatus.BAD_REQUEST
        assert meaning
        assert Problem(status, "so", kind=kind).document("/").type == f"urn:celeriac:problem:{kind}"
