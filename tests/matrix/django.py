"""`python -m tests.matrix.django`: the tests of `tests/django_project` on each newer release of Django.

The suite by day has the release that `constraints.txt` names. Django 6 needs Python 3.12 or later.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.matrix.__main__ import PYTHONS, Missing, environment, tests

PROJECT = "tests/django_project"

#: What runs on each release: django-celery-beat is not there yet for the newest.
DJANGOS = {"6.0": (PROJECT,), "6.1": (f"{PROJECT}/test_django.py",)}

#: What the project needs beside Django itself.
BESIDE = {
    "6.0": ("psycopg[binary]", "django-celery-results", "django-celery-beat", "ephem", "pytest-django"),
    "6.1": ("psycopg[binary]", "django-celery-results", "pytest-django"),
}  # fmt: skip


def main() -> int:
    good = True
    for release, paths in DJANGOS.items():
        try:
            passed, came_to = tests(python(release), {}, paths)
            good &= passed
        except Missing as missing:
            came_to = f"not run: {missing}"
        print(f"Django {release}: {came_to}", flush=True)
    return 0 if good else 1


def python(release: str) -> Path:
    """Of an environment with that Django, on the newest Python there is. Raises Missing."""
    for version in reversed(PYTHONS[1:]):
        try:
            return environment(version, f"django-{release}", (f"Django=={release}.*", *BESIDE[release]))
        except Missing:
            continue
    raise Missing(f"no Python from {PYTHONS[1]} on is on the PATH")


if __name__ == "__main__":
    sys.exit(main())
