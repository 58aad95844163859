"""A clock that jumps: Postgres', which is the engine's, and those of all other processes. The machine's clock stays.

libfaketime lies to the server. To workers, beats, the API and producers it cannot: it breaks `time.sleep` of Python.
They have a clock of their own (`faults/adrift`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from faults.rounds import Fault
from faults.stack import Stack

#: Debian's package libfaketime; `FAULTS_LIBFAKETIME` names another place.
USUAL = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

#: How long (seconds) a step lasts until the next one.
STEP = 3.0


def no_faketime() -> str | None:
    return None if _library().exists() else f"there is no {_library()}: apt-get install libfaketime"


def _library() -> Path:
    return Path(os.environ.get("FAULTS_LIBFAKETIME", USUAL))


def server_adrift(stack: Stack) -> None:
    """Five leases ahead, and back: no further, as what waits for a time waits until this clock says so."""
    said = stack.folder / "faketime"
    said.write_text("+0")
    said.chmod(0o644)
    with _restarted(stack, said):
        time.sleep(STEP)
        for offset in ("+20", "+0"):
            said.write_text(offset)
            time.sleep(STEP)


def processes_adrift(stack: Stack) -> None:
    """Five leases ahead, back, five leases behind, and back: all of them at once, and no tick or lease is to notice."""
    for offset in (20.0, 0.0, -20.0, 0.0):
        stack.set_clocks(offset)
        time.sleep(STEP)


@contextmanager
def _restarted(stack: Stack, said: Path) -> Iterator[None]:
    """A Postgres whose wall clock is as that file says; monotonic clocks stay."""
    lie = {"LD_PRELOAD": str(_library()), "FAKETIME_TIMESTAMP_FILE": str(said), "FAKETIME_NO_CACHE": "1"}
    stack.postgres.stop()
    with patch.dict(os.environ, lie | {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}):
        stack.postgres.start()
    try:
        yield
    finally:
        stack.postgres.stop()
        stack.postgres.start()


FAULTS = [
    Fault("server-adrift", "Postgres' clock jumps 20 s ahead, and back", server_adrift, impossible=no_faketime),
    Fault(
        "processes-adrift",
        "the clock of every other process jumps 20 s ahead, back, behind, and back",
        processes_adrift,
    ),
]
