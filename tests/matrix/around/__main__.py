"""`python -m tests.matrix.around`: the packages' tests, in an environment that has them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.matrix.__main__ import environment, tests

PACKAGES = ("celery-once", "ddtrace", "elastic-apm", "Flask", "gevent", "newrelic", "psycopg[binary]")

HERE = Path(__file__).parent
PARTS = ("traces.py", "locks.py", "flask_page.py")


def main() -> int:
    python = environment(".".join(map(str, sys.version_info[:2])), "around", PACKAGES)
    passed, came_to = tests(python, {}, sys.argv[1:] or [str(HERE / name) for name in PARTS])
    print(came_to)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
