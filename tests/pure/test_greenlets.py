"""With gevent, who waits for Postgres lets others run. In a process of its own, which gevent has patched."""

from __future__ import annotations

import subprocess
import sys

SILENT = """
import gevent.monkey
gevent.monkey.patch_all()
import socket, threading
from sqlalchemy.exc import OperationalError
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone
from celeriac.worker import greenlets

greenlets.wait_for_postgres()
greenlets.CONNECT_TIMEOUT = 0.2
silent = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: print("others run")).start()
try:
    with Database(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none").statement():
        pass
except OperationalError as error:
    print(is_gone(error), error.orig)
"""


def test_a_postgres_that_does_not_answer_is_given_up_and_others_run_meanwhile() -> None:
    told = subprocess.run([sys.executable, "-c", SILENT], capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout.splitlines() == [
        "others run", "True Postgres has not let us in within 0.2 s: timeout expired",
    ], told.stderr  # fmt: skip
