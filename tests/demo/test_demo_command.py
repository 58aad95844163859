"""`python -m demo` as a stranger meets it where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, Servers


@pytest.mark.parametrize(("away", "says"), [("DATABASE_URL", "Postgres"), ("REDIS_URL", "Redis")])
def test_a_server_that_is_away_is_told_in_a_line(servers: Servers, away: str, says: str) -> None:
    nowhere = {"DATABASE_URL": "postgresql://127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    given = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url, away: nowhere[away]}
    ended = subprocess.run(
        [sys.executable, "-m", "demo", "stores"], cwd=ROOT, env=os.environ | given, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"The demo broke off: {says} does not answer" in ended.stdout
    assert "Traceback" not in ended.stderr
