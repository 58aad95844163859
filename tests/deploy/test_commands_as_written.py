"""Every command of README.md and docs/*.md is run as it is written there.

Here, by test_compose.py (`docker compose`, and each service's own command), or by tests/api/test_api_page.py (`curl`).
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from click.testing import CliRunner

from celeriac.cli import main
from tasks import app
from tests.conftest import Servers
from tests.deploy import test_compose
from tests.deploy.surroundings import free_ports, surroundings
from tests.deploy.written import ASKING, EVERY, PAGES, WRITTEN, commands, lasting
from tests.processes import ROOT, Rows, Running, process, until
from tests.systems.stack import QUICK, on_servers


class Finishing(NamedTuple):
    """What a command prints when it is done, and what is set for it, so that it is done soon."""

    prints: str
    environ: Mapping[str, str] = {}


SMALL = {"DEMO_SIZE": "small", "BENCH_SIZE": "small"}

DEMOS = {
    "make demo SYSTEM=all": Finishing("4 of 4 demos hold", SMALL),
    "make demo": Finishing("Everything holds", SMALL),
}
MEASURED = {
    "make bench": Finishing("start latency p99", SMALL),
    "make proof": Finishing("1 passed", {"PYTEST_ADDOPTS": "-k 100_000_stuck"}),
    "make test": Finishing(" passed", {"PYTEST_ADDOPTS": "tests/pure/test_retries.py"}),
    "python -m bench.backlog": Finishing("not due", SMALL),
    "pip install 'celeriac[api]'": Finishing("Requirement already satisfied: fastapi", {"PIP_NO_INDEX": "1"}),
}
ASIDE = {"celery -A tasks celeriac status": Finishing(" workers, ")}

STACKS = ["celeriac up", "make up"]

#: Run beside them.
HEALTH = "python deploy/health.py beat"

COMPOSED = {test_compose.COMMAND} | {test_compose.FILE["services"][name]["command"] for name in test_compose.OURS}
LASTS = sorted(command for command in EVERY - COMPOSED - set(STACKS) if lasting(command))

#: In this process, page by page.
QUICKLY = sorted(command for command in EVERY - COMPOSED if command.startswith("celeriac ") and not lasting(command))


@pytest.fixture
def environ(database_url: str, redis_url: str, venv: Path) -> Iterator[dict[str, str]]:
    """Of commands that need a migrated database."""
    given = QUICK | {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    with on_servers(app, given):
        app.register_roles()
        yield surroundings(venv, **given)


@pytest.mark.parametrize("page", [p for p in PAGES if {*QUICKLY} & {*WRITTEN[p]}], ids=lambda page: str(page.stem))
def test_the_commands_that_end_do_what_they_say(page: Path, environ: dict[str, str], rows: Rows) -> None:
    rows("INSERT INTO workers (worker_id, hostname, pid, concurrency) VALUES ('store-7:31', 'store-7', 31, 3)")
    for command in WRITTEN[page]:
        if command in QUICKLY:
            result = CliRunner().invoke(main, shlex.split(command)[1:])
            assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("chromium")
def test_the_commands_that_take_their_time_succeed(servers: Servers, environ: dict[str, str], tmp_path: Path) -> None:
    """The demos and measurements have servers of their own; demos, a database of its own each."""
    alone = {name: value for name, value in environ.items() if name not in ("DATABASE_URL", "REDIS_URL", *QUICK)}
    demo = alone | {"DATABASE_URL": servers.database_url, "CELERIAC_DATA_DIR": str(tmp_path)}
    given = dict.fromkeys(MEASURED, alone) | dict.fromkeys(DEMOS, demo) | dict.fromkeys(ASIDE, environ)
    assert failing({**DEMOS, **MEASURED, **ASIDE}, given) == {}


def failing(commands: Mapping[str, Finishing], given: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Runs them, three at a time; what those printed that did not succeed."""
    with ThreadPoolExecutor(3) as side_by_side:
        done = {c: side_by_side.submit(finish, c, {**given[c], **one.environ}) for c, one in commands.items()}
    printed = {command: one.result() for command, one in done.items()}
    return {c: one.stdout for c, one in printed.items() if one.returncode or commands[c].prints not in one.stdout}


def finish(command: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(["bash", "-c", command], cwd=ROOT, env=environ, text=True, check=False, **both)  # type: ignore[call-overload,no-any-return]


def test_the_commands_that_last_come_up_and_go_when_told(environ: dict[str, str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = {command: stack.enter_context(start(command, environ | free_ports(), tmp_path)) for command in LASTS}
        wait_until_up(running)
        for command, one in running.items():
            one.process.send_signal(signal.SIGINT if "--watch" in command else signal.SIGTERM)
        for command, one in running.items():
            until(lambda o=one: o.process.poll() is not None, f"{command} to end")  # type: ignore[misc]


def test_the_whole_stack_answers_and_is_gone_after_ctrl_c(environ: dict[str, str], tmp_path: Path) -> None:
    ports = {command: free_ports() for command in STACKS}
    with ExitStack() as stack:
        running = {c: stack.enter_context(start(c, environ | ports[c], tmp_path)) for c in STACKS}
        wait_until_up(running)
        for asked in (
            *(f"http://127.0.0.1:{ports[command]['FLOWER_PORT']}/" for command in STACKS),
            f"http://127.0.0.1:{ports['make up']['CELERIAC_API_PORT']}/readyz",
            f"http://127.0.0.1:{ports['make up']['SANDBOX_HTTP_PORT']}/_sandbox/state",
        ):
            until(lambda url=asked: answers(url), asked)  # type: ignore[misc]
        until(lambda: finish(HEALTH, environ).returncode == 0, HEALTH)
        children = [child for one in running.values() for child in psutil.Process(one.pid).children(recursive=True)]
        for one in running.values():
            one.signal_all(signal.SIGINT)
        for command, one in running.items():
            until(lambda o=one: o.process.poll() is not None, f"{command} to end")  # type: ignore[misc]
    assert len(children) > 10
    assert [child for child in children if child.is_running()] == []


def start(command: str, environ: Mapping[str, str], folder: Path) -> Any:
    log = folder / f"{abs(hash(command))}.log"
    return process(["bash", "-c", f"exec env {command}"], environ, log, alone=True)


def wait_until_up(running: Mapping[str, Running]) -> None:
    for command, one in running.items():
        up = str(lasting(command))
        until(lambda o=one, up=up: up in o.printed() or o.process.poll() is not None, f"{command} to be up")  # type: ignore[misc]
        assert one.process.poll() is None, f"{command}\n{one.printed()[-2000:]}"


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_no_command_is_left_out() -> None:
    """What stands in no list has no test; what is in a list and nowhere written is no longer as written."""
    run = {*QUICKLY, *DEMOS, *MEASURED, *ASIDE, *LASTS, *STACKS, HEALTH, *(COMPOSED & EVERY), *ASKING}
    assert run == EVERY


def test_a_command_is_found_wherever_it_stands() -> None:
    page = """
Try `make demo`, or in an environment `.venv/bin/python -m
demo`: the package is `celeriac`, a request `GET /healthz`.

    make test      # all of them
    WORKER_ID=a celery -A tasks worker
    SELECT 1;

```console
$ curl -d '{}' \\
    http://127.0.0.1/
{"made": 1}
```
```sh
psql -c "SELECT 1"
```
```python
    make("demo")  # `make bench`
```
"""
    assert commands(page) == [
        "make demo", ".venv/bin/python -m demo", "make test", "WORKER_ID=a celery -A tasks worker",
        "curl -d '{}' http://127.0.0.1/", 'psql -c "SELECT 1"',
    ]  # fmt: skip


def test_every_command_has_a_place_in_the_pages() -> None:
    def names(group: Any, before: str = "") -> set[str]:
        found = {f"{before}{name}": command for name, command in group.commands.items()}
        return {n for name, c in found.items() for n in (names(c, f"{name} ") if hasattr(c, "commands") else {name})}

    pages = "".join(page.read_text() for page in PAGES)
    assert {name for name in names(main) if f"celeriac {name}" not in pages} == set()
