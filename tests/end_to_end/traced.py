"""A worker whose child writes down which of the engine's functions each ticket goes through, up to its settle."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from celery.signals import worker_process_init

import celeriac
from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.run.settler import Settler

ENGINE = f"{Path(celeriac.__file__).parent}/"

app = Celeriac("traced")


@app.task(role="woken")
def woken(n: int) -> None: ...


@app.task(role="sent", prompt=False)
def sent(n: int) -> None: ...


class Trace:
    """The engine's functions that this thread calls while the trace is on, and their files."""

    def __init__(
        self, begins: CodeType | None = None, on_return: Callable[[FrameType], object] = lambda _: None
    ) -> None:
        """`begins`: whatever came before a call of this function is forgotten."""
        self.calls: list[tuple[str, str]] = []
        self.begins, self.on_return = begins, on_return

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code is self.begins:
            self.calls.clear()
        if event == "call" and code.co_filename.startswith(ENGINE):
            self.calls.append((code.co_filename.removeprefix(ENGINE), code.co_qualname))
        elif event == "return":
            self.on_return(frame)


def trace_tickets() -> None:
    def on_return(frame: FrameType) -> None:
        if frame.f_code is Settler.settle.__code__:
            settled[:] = trace.calls
        elif frame.f_code is run_ticket.__code__:
            with Path(os.environ["TRACED"]).open("a") as file:
                file.write(json.dumps(settled) + "\n")
            settled.clear()

    settled: list[tuple[str, str]] = []
    trace = Trace(run_ticket.__code__, on_return)
    sys.setprofile(trace)


@worker_process_init.connect
def _begin(**_: Any) -> None:
    if "TRACED" not in os.environ:
        return  # a solo pool of another test, in the process that has imported this module
    logging.getLogger().setLevel(logging.WARNING)  # Celery's default; the test waits for a line of INFO in the parent
    trace_tickets()


def delays(n: int) -> list[list[tuple[str, str]]]:
    """What each of so many calls of `.delay()` goes through."""
    traces = []
    for i in range(n):
        trace = Trace()
        sys.setprofile(trace)
        try:
            woken.delay(i)
        finally:
            sys.setprofile(None)
        traces.append(trace.calls)
    return traces


if __name__ == "__main__":
    print(json.dumps(delays(int(sys.argv[1]))))
