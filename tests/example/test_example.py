"""An ordinary code base passes its own tests, the same ones, on stock Celery and on Celeriac."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

SUITE = Path(__file__).parent / "suite"

#: The plugin that an installed Celeriac brings, and one that takes no part.
PLUGINS = ["-p", "pytest_celeriac", "-p", "no:xdist"]

#: Variables that would tell Celery, or pytest, of this run of the tests.
OURS = ("CELERY_", "PYTEST_")


#: Tests that the shop has, as functions.
FUNCTIONS = sum(path.read_text().count("\ndef test_") for path in SUITE.glob("test_*.py"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "which",
    ["celeriac", pytest.param("stock", marks=pytest.mark.nightly("stock Celery changes when a release of it does"))],
)
def test_the_shops_tests_pass(database_url: str, redis_url: str, tmp_path: Path, which: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environ |= {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    assert passed(which, tmp_path / which, environ) >= FUNCTIONS > 0


def passed(which: str, home: Path, environ: dict[str, str]) -> int:
    """How many tests did, where every one has to."""
    home.mkdir()
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-c", SUITE / "pytest.ini", "--confcutdir", SUITE, SUITE]
    given = {**environ, "SHOP_CELERY": which, "SHOP_HOME": str(home)}
    done = subprocess.run(command, cwd=home, env=given, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"on {which}:\n{done.stdout[-8000:]}{done.stderr[-2000:]}"
    last = re.fullmatch(r"(\d+) passed(, \d+ warnings?)? in .*", done.stdout.strip().splitlines()[-1])
    assert last, f"on {which}, not every test: {done.stdout[-500:]}"
    return int(last[1])
