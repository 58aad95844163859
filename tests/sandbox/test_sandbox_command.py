"""`python -m sandbox` says where it listens and goes when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sandbox", *arguments],
        cwd=ROOT,
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_line_when_ready_and_ends_cleanly_on_a_signal(number: signal.Signals) -> None:
    with start("--latency-ms", "1-2", "--faults", "0.07", SANDBOX_SEED="9") as process:
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        faults = httpx.get(f"{ready['http_url']}/_sandbox/faults", trust_env=False).json()
        process.send_signal(number)
        rest, complaints = process.communicate(timeout=20)
    assert (process.returncode, rest, complaints) == (0, "", "")
    assert (faults["seed"], faults["latency_ms"]) == (9, [1, 2])
    assert sum(faults["rates"].values()) == pytest.approx(0.07)
    assert ready["environ"]["DUDA_BASE_URL"] == f"{ready['http_url']}/api"


def test_a_bad_setting_ends_with_its_name_and_what_would_be_right() -> None:
    with start(SANDBOX_LATENCY_MS="fast") as process:
        _, complaints = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "--latency-ms" in complaints
    assert "50-200" in complaints
