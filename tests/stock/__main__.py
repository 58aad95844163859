"""Runs Celery's integration suites on plain Celery and on Celeriac, prints both columns and judges them.

Exits with 1 if a test passes on plain Celery alone that `known.toml` does not name, or if one that it names passes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from tests.stock.columns import Outcomes, run
from tests.stock.sdist import fetch
from tests.stock.verdict import Verdict, known

SUITES = (
    "test_serialization.py",
    "test_inspect.py",
    "test_group_chains.py",
    "test_beat.py",
    "test_tasks.py",
    "test_canvas.py",
)


def main() -> int:
    asked, differs = arguments(), known()
    suites = fetch()
    limits = {"limit": asked.limit, "whole": asked.whole}
    print(f"Celery's suites, twice; pytest's output: {suites}/*.log", flush=True)
    plain = column(suites, "plain", asked.tests or SUITES, {}, **limits)
    ours = column(suites, "celeriac", asked.tests or SUITES, differs, plugins=["tests.stock.plugin"], **limits)
    verdict = Verdict(plain, ours, differs)
    print("\n".join(verdict.lines()))
    return 0 if verdict.is_good else 1


def column(suites: Path, name: str, tests: Sequence[str], fail: Container[str], **given: Any) -> Outcomes:
    """What fails, but for what is known to `fail`, is tried once more: Celery marks most of these tests as flaky."""
    first = run(suites, name, tests, **given)
    again = [test for test, outcome in first.items() if outcome in ("failed", "unfinished") and test not in fail]
    return {**first, **run(suites, f"{name}-again", again, **given)} if again else first


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stock")
    parser.add_argument("tests", nargs="*", help="test_tasks.py, test_tasks.py::test_tasks; else all suites")
    parser.add_argument("--limit", type=float, default=240, help="of a test, in seconds")
    parser.add_argument("--whole", type=float, default=3600, help="of a column, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
