"""`make flame`: a drain of no-op tasks as a flame graph of the worker's processes, in build/flame.svg (py-spy).

A box is a function, its width the share of the samples it was met in, and what it called stands on it. One process
runs the tasks; the worker's own is beside it. Reading another process' stack may need root, as `py-spy --help` tells.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from bench.__main__ import _fill_rows, _left_rows, _no_rows, prepared, until, worker
from bench.size import sized

TASKS = sized(300_000, 3_000)
GRAPH = Path("build/flame.svg")

#: Samples a second. py-spy stops a process for each, for some hundred microseconds.
RATE = 200


def main() -> int:
    GRAPH.parent.mkdir(exist_ok=True)
    with prepared():
        _fill_rows(TASKS)
        with worker("rows", "-c", "1") as pid:
            until(lambda: _left_rows() < TASKS)
            record = [
                str(Path(sys.executable).with_name("py-spy")),
                "record",
                "--subprocesses",
                "--rate",
                str(RATE),
                "--output",
                str(GRAPH),
            ]
            recorder = subprocess.Popen([*record, "--pid", str(pid)])
            until(lambda: _no_rows() or recorder.poll() is not None)
            recorder.send_signal(signal.SIGINT)  # it writes what it has
            status = recorder.wait()
    print(f"{GRAPH}: {TASKS:,} tasks" if status == 0 else f"py-spy ended with status {status}")
    return status


if __name__ == "__main__":
    sys.exit(main())
