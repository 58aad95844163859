"""`python -m tests.matrix.packages`: the engine's tests on other releases of the packages that it stands on.

SQLAlchemy's and Celery's older minor version in its newest release; and Celery and kombu as new as the index has them,
pre-releases and what the pins refuse included. The list of private parts is compared with each.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.matrix import SHORT
from tests.matrix.__main__ import environment, tests
from tests.processes import ROOT

#: What the engine's modules import, and the extras do not bring.
BESIDE = ("Django", "gevent", "psycopg[binary]")


SHOWN = ("billiard", "celery", "kombu", "sqlalchemy")


class Release(NamedTuple):
    """`packages`: as pip takes them. `beyond`: those that are upgraded in the end, whatever pins say."""

    name: str
    packages: Sequence[str]
    beyond: Sequence[str] = ()
    paths: Sequence[str] = SHORT


#: What meets Celery: its tracer, canvas, results, signals, commands, remote control and beat.
CELERYS = (
    *SHORT,
    *(
        f"tests/postgres/test_{name}.py"
        for name in (
            "async_handlers", "calls_words", "celerys_beat", "celerys_classes", "eager", "heard", "hooks",
            "ordinary_tasks", "priority_order", "received", "results", "routes", "stamps", "streamed_chords",
            "unfit_links", "whole_workflows", "workflow_faults", "workflows",
        )
    ),
    *(
        f"tests/end_to_end/test_{name}.py"
        for name in ("celerys_commands", "control", "embedded_beat", "embedded_worker", "events", "ordinary_celery",
            "pools", "pytest_plugin")
    ),
    "tests/example/test_seventy.py",
)  # fmt: skip

#: What Celery's older minor version has not itself: models as arguments, and by name a task's own `ignore_result`.
NOT_YET = (
    "--deselect=tests/postgres/test_ordinary_tasks.py::test_models_are_given_as_arguments",
    "--deselect=tests/postgres/test_calls_words.py::test_a_call_of_a_task_that_ignores_results_may_want_its_own",
)

RELEASES = (
    Release("sqlalchemy-2.0", ("SQLAlchemy==2.0.*",)),
    Release("celery-5.6", ("celery==5.6.*", "ephem", "pytest-celery"), paths=(*CELERYS, *NOT_YET)),
    Release(
        "celery-newest", ("ephem", "pytest-celery"), ("celery>=5.7.0a1", "kombu>=5.7.0a1", "billiard", "vine"), CELERYS
    ),
)


def main() -> int:
    good = True
    for release in RELEASES:
        python = environment(".".join(map(str, sys.version_info[:2])), release.name, (*release.packages, *BESIDE))
        if release.beyond:
            upgrade(python, release.beyond)
        has_all = subprocess.run([python, "-m", "tests.private"], cwd=ROOT, check=False).returncode == 0
        passed, came_to = tests(python, {}, release.paths)
        good &= passed and has_all
        print(f"{release.name} ({installed(python)}): {came_to}", flush=True)
    return 0 if good else 1


def upgrade(python: Path, packages: Sequence[str]) -> None:
    """Install the newest releases, as pre-releases are where the index has any, without what else they would bring."""
    command = [python, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", *packages]
    subprocess.run(command, check=True)


def installed(python: Path) -> str:
    """Return which releases that environment has."""
    done = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    return ", ".join(line for line in done.stdout.split() if line.partition("==")[0].lower() in SHOWN)


if __name__ == "__main__":
    sys.exit(main())
