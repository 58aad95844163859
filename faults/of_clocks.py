"""Faults of clocks: a process whose wall clock is wrong or jumps. libfaketime lies to it; the machine's clock stays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from faults.ledger import BEGIN
from faults.members import until
from faults.rounds import Fault
from faults.stack import Stack

#: Debian's package libfaketime; `FAULTS_LIBFAKETIME` names another place.
USUAL = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

#: How long (seconds) a step lasts until the next one, and until a process that is started has begun to work.
STEP, PATIENCE = 3.0, 30.0


def no_faketime() -> str | None:
    return None if _library().exists() else f"there is no {_library()}: apt-get install libfaketime"


def _library() -> Path:
    return Path(os.environ.get("FAULTS_LIBFAKETIME", USUAL))


def _lied_to(said: Path) -> dict[str, str]:
    """What a process is started with, so that its wall clock is as that file says. Monotonic clocks stay."""
    return {
        "LD_PRELOAD": str(_library()), "FAKETIME_TIMESTAMP_FILE": str(said), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip


def worker_adrift(stack: Stack) -> None:
    """One more worker, an hour ahead, then an hour behind; and a beat."""
    said = stack.folder / "faketime"
    said.write_text("+0")
    worker = stack.member("worker-adrift", "worker", "-c", "2", "-l", "WARNING", **_lied_to(said))
    beat = stack.member("beat-adrift", "beat", "-l", "INFO", **_lied_to(said))
    for member in (worker, beat):
        stack.fleet.add(member)
    until(lambda: _works(stack, worker.name), PATIENCE)
    for offset in ("+3600", "-3600", "+0"):
        said.write_text(offset)
        time.sleep(STEP)
    for member in (worker, beat):
        member.terminate()
        stack.fleet.remove(member)


def _works(stack: Stack, who: str) -> bool:
    return any(line["what"] == BEGIN and line["who"] == who for line in stack.ledger.read())


def server_adrift(stack: Stack) -> None:
    """Postgres' clock, which is the engine's: it jumps by ten minutes ahead, and back."""
    said = stack.folder / "faketime-postgres"
    said.write_text("+0")
    said.chmod(0o644)
    with _restarted(stack, _lied_to(said)):
        time.sleep(STEP)
        for offset in ("+600", "+0"):
            said.write_text(offset)
            time.sleep(STEP)


@contextmanager
def _restarted(stack: Stack, environ: dict[str, str]) -> Iterator[None]:
    stack.postgres.stop()
    with patch.dict(os.environ, environ):
        stack.postgres.start()
    yield
    stack.postgres.stop()
    stack.postgres.start()


FAULTS = [
    Fault("worker-adrift", "a worker's and a beat's clock jump by an hour, ahead and back", worker_adrift,
          impossible=no_faketime),
    Fault("server-adrift", "Postgres' clock jumps ten minutes ahead, and back", server_adrift, impossible=no_faketime),
]  # fmt: skip
