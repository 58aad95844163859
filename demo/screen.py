"""What every demo says: a line now and then, and its judgement."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

from demo.verdict import Verdict

#: Seconds between two lines where there is no terminal.
LINE_EVERY = 5.0


class Screen:
    """On a terminal the progress line renews itself; elsewhere there is one now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._next = 0.0

    def say(self, line: str = "") -> None:
        print(f"\r\x1b[2K{line}" if self._terminal else line, flush=True)

    def progress(self, line: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{line[:width]}", end="", flush=True)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            self.say(line)


def tally(systems: Sequence[str], failed: Sequence[str]) -> str:
    not_these = f"; not: {', '.join(failed)}" if failed else ""
    return f"{len(systems) - len(failed)} of {len(systems)} demos hold{not_these}"


def judgement(verdicts: Sequence[Verdict]) -> str:
    lines = [f"{'ok    ' if verdict.holds else 'FAILED'}  {verdict.says}" for verdict in verdicts]
    return "\n".join(lines)
