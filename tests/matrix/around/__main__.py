"""`python -m tests.matrix.around`: the packages' tests, in an environment that has them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.matrix.__main__ import apart, environment, tests

#: celery-exporter, and the newest Celery that takes the redis-py which that wants.
EXPORTER = ("prometheus-exporter-celery==0.11.2", "celery[redis]==5.5.3")

PACKAGES = ("celery-once", "ddtrace", "elastic-apm", "Flask", "gevent", "newrelic", "psycopg[binary]")

HERE = Path(__file__).parent
PARTS = ("traces.py", "locks.py", "flask_page.py", "exporter.py")


def main() -> int:
    release = ".".join(map(str, sys.version_info[:2]))
    python, exporter = environment(release, "around", PACKAGES), apart(release, "exporter", EXPORTER)
    passed, came_to = tests(
        python, {"EXPORTER_PYTHON": str(exporter)}, sys.argv[1:] or [str(HERE / name) for name in PARTS]
    )
    print(came_to)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
