"""Runs Celery's integration suites on plain Celery and on Celeriac, prints both columns and judges them.

Exits with 1 if a test passes on plain Celery alone that `known.toml` does not name, or if one that it names passes.
"""

from __future__ import annotations

import argparse
import sys

from tests.stock.columns import FOLDER, run
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
COLUMNS = {"plain": [], "celeriac": ["tests.stock.plugin"]}


def main() -> int:
    asked = arguments()
    suites = fetch()
    tests = [f"{FOLDER}{test}" for test in asked.tests or SUITES]
    limits = {"limit": asked.limit, "whole": asked.whole}
    print(f"Celery's suites, twice; pytest's output: {suites}/*.log", flush=True)
    plain, ours = (run(suites, name, tests, plugins=plugins, **limits) for name, plugins in COLUMNS.items())
    verdict = Verdict(plain, ours, known())
    print("\n".join(verdict.lines()))
    return 0 if verdict.is_good else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stock")
    parser.add_argument("tests", nargs="*", help="test_tasks.py, test_tasks.py::test_tasks; else all suites")
    parser.add_argument("--limit", type=float, default=60, help="of a test, in seconds")
    parser.add_argument("--whole", type=float, default=3600, help="of a column, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
