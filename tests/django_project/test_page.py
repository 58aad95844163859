"""docs/django.md: its shop, made as it says in an empty folder, passes its tests and charges its first order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests import processes
from tests.deploy.written import of
from tests.django_project.test_django import OURS
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, until

BLOCKS = of("docs/django.md", "python", "ini")

#: What Django's own command makes and the page adds to; the other blocks are files.
ADDED_TO = ("project/settings.py",)

FIRST_ORDER = """
import django
django.setup()
from django.test import Client
print(Client(SERVER_NAME="localhost").post("/buy/", {"customer": 7, "pence": 100}).status_code)
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def environ(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    url = make_url(database_url)
    return kept | QUICK | {
        "PGDATABASE": url.database or "", "PGUSER": url.username or "", "PGPASSWORD": url.password or "",
        "PGHOST": url.host or str(url.query.get("host", "")), "PGPORT": str(url.port or url.query.get("port", "")),
        "REDIS_URL": redis_url, "DJANGO_SETTINGS_MODULE": "project.settings",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }  # fmt: skip


def python(environ: dict[str, str], folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def write(folder: Path) -> None:
    for block in BLOCKS:
        first, _, body = block.text.partition("\n")
        path = folder / first.removeprefix("# ")
        path.write_text((path.read_text() if str(path.relative_to(folder)) in ADDED_TO else "") + body)


def test_its_shop_goes_as_it_says(environ: dict[str, str], tmp_path: Path, rows: Rows) -> None:
    without = {name: value for name, value in environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    for arguments in (("startproject", "project", "."), ("startapp", "shop")):
        python(without, tmp_path, "-m", "django", *arguments)
    write(tmp_path)
    python(environ, tmp_path, "manage.py", "makemigrations", "shop")
    assert "Ran 5 tests" in python(environ, tmp_path, "manage.py", "test")
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_shop.py"]
    assert "2 passed" in python(environ, tmp_path, *tests)
    python(environ, tmp_path, "manage.py", "migrate")
    worker = [sys.executable, "-m", "celery", "-A", "project", "worker", "-l", "INFO", "-c", "1"]
    with processes.process(worker, environ, tmp_path / "worker.log") as running:
        until(lambda: " ready." in running.printed(), "the worker")
        assert "200" in python(environ, tmp_path, "-c", FIRST_ORDER)
        until(lambda: rows("SELECT FROM shop_order WHERE is_paid AND is_confirmed"), "it to be charged")
