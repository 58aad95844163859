"""The ledger: what was accepted and what ran, written by whoever did it, outside of the engine and its tables.

A file a process, opened to append, a write a line: who is killed leaves whole lines. Times are the machine's monotonic
clock, which is one for all processes, and which nobody sets.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

#: What a line may say (`what`).
ACCEPTED, REFUSED, ROLLED_BACK = "accepted", "refused", "rolled_back"
BEGIN, END, BROKE, FELL = "begin", "end", "broke", "fell"
PAUSED, THAWED, HOARDED = "paused", "thawed", "hoarded"

Line = dict[str, Any]


class Pen:
    """Writes this process's lines; after a fork those of the child."""

    def __init__(self, folder: Path, who: str) -> None:
        self.folder, self.who = folder, who
        self._lock = threading.Lock()
        self._pid, self._file = 0, -1

    def write(self, what: str, **more: Any) -> None:
        line = {"what": what, "at": time.monotonic(), "who": self.who, "pid": os.getpid(), **more}
        os.write(self._opened(), json.dumps(line).encode() + b"\n")

    def _opened(self) -> int:
        with self._lock:
            if self._pid != os.getpid():
                name = self.folder / f"{self.who}.{os.getpid()}"
                self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                self._pid = os.getpid()
            return self._file


class Ledger:
    """Reads what has been written since it read last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[Line] = []
        self._read: dict[Path, int] = {}
        self._lock = threading.Lock()

    def read(self) -> list[Line]:
        """All lines since `turn_page`. Of a file whose last line is being written, those before it."""
        with self._lock:
            for file in self.folder.iterdir():
                with file.open("rb") as opened:
                    opened.seek(self._read.get(file, 0))
                    whole, newline, _ = opened.read().rpartition(b"\n")
                self._read[file] = self._read.get(file, 0) + len(whole) + len(newline)
                self.lines += [json.loads(line) for line in whole.splitlines()]
            return self.lines

    def turn_page(self) -> list[Line]:
        """What stood on it."""
        read, self.lines = self.read(), []
        return read
