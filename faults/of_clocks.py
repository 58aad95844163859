"""A clock that jumps: Postgres', which is the engine's. libfaketime lies to the server; the machine's clock stays.

It cannot be had of workers and beats: libfaketime 0.9.10 breaks `time.sleep` of Python 3.11.
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


FAULTS = [Fault("server-adrift", "Postgres' clock jumps 20 s ahead, and back", server_adrift, impossible=no_faketime)]
