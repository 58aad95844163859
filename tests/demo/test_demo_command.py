"""`python -m demo` where something is missing, and when it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import ROOT, Servers
from tests.processes import until


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


def test_told_to_stop_all_demos_leave_no_process(servers: Servers) -> None:
    given = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
    with subprocess.Popen(
        [sys.executable, "-m", "demo", "all"], cwd=ROOT, env=os.environ | given, stdout=subprocess.PIPE, text=True
    ) as demo:  # fmt: skip
        assert demo.stdout
        until(lambda: "builds are accepted" in str(demo.stdout.readline()), "the first demo to begin")
        started = psutil.Process(demo.pid)
        until(lambda: len(started.children(recursive=True)) >= 3, "its worker and its beat")
        processes = started.children(recursive=True)
        demo.send_signal(signal.SIGTERM)
        told = demo.stdout.read()
        assert demo.wait(60) == 130
    assert "Interrupted; everything is stopped." in told
    assert not psutil.wait_procs(processes, timeout=5)[1]
