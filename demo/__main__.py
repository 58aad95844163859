"""`python -m demo [SYSTEM]`: sets the stage, lets a system work, judges what happened. Exit status 0 if all holds.

DATABASE_URL and REDIS_URL name servers to use; the demo makes a database of its own there and takes an empty
Redis number. Without them the embedded stack serves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn, Protocol, cast

from demo.screen import Screen, judgement, tally
from demo.stage import ROOT, Setting, Stage, StageError, stage
from demo.verdict import Verdict
from demo.watch import TASKS

#: In the order of `all`.
SYSTEMS = ("instasites", "thumbnails", "stores", "subreddits")

INTERRUPTED = 130


class System(Protocol):
    """What a system's module offers; see `demo`."""

    def setting(self, seed: int | None) -> Setting: ...
    def play(self, on: Stage, screen: Screen) -> Sequence[Verdict]: ...


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser("demo", description=__doc__)
    options.add_argument("system", nargs="?", default=SYSTEMS[0], choices=(*SYSTEMS, "all"), help=f"[{SYSTEMS[0]}]")
    options.add_argument(
        "--seed",
        type=int,
        help="of latency and faults; a demo's own is chosen: with others its work may take longer than it accepts",
    )
    given = options.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    return _all(given.seed) if given.system == "all" else _one(given.system, given.seed)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _all(seed: int | None) -> int:
    """One after the other, each in a process of its own: the application reads its environment once."""
    screen, failed = Screen(), []
    seeded = [] if seed is None else [f"--seed={seed}"]
    for name in SYSTEMS:
        screen.say(f"== {name} ==")
        status = _wait_for([sys.executable, "-m", "demo", name, *seeded])
        if status == INTERRUPTED:
            return status
        failed += [name] * bool(status)
    screen.say(f"\n{tally(SYSTEMS, failed)}")
    return 1 if failed else 0


def _wait_for(command: Sequence[str]) -> int:
    """Its exit status. In a session of its own: Ctrl-C is passed on to it, once, and it has the time to clean up."""
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as demo:
        try:
            return demo.wait()
        except KeyboardInterrupt:
            demo.terminate()
            demo.wait()
            return INTERRUPTED


def _one(name: str, seed: int | None) -> int:
    logs, screen = Path(tempfile.mkdtemp(prefix="celeriac-demo-")), Screen()
    status = _perform(cast(System, import_module(f"demo.{name}")), seed, logs, screen)
    if status == 1:
        screen.say(f"What the worker and beat printed is in {logs}")
    else:
        shutil.rmtree(logs)
    return status


def _perform(system: System, seed: int | None, logs: Path, screen: Screen) -> int:
    began = time.monotonic()
    try:
        with stage(system.setting(seed), logs) as on:
            verdicts = _play(system, on, screen)
    except StageError as error:
        screen.say(f"The demo broke off: {error}")
        return 1
    except KeyboardInterrupt:
        screen.say("Interrupted; everything is stopped.")
        return INTERRUPTED
    holds = bool(verdicts) and all(verdict.holds for verdict in verdicts)
    screen.say(judgement(verdicts))
    screen.say(f"\n{'Everything holds' if holds else 'NOT everything holds'}, {time.monotonic() - began:.0f} s.")
    return 0 if holds else 1


def _play(system: System, on: Stage, screen: Screen) -> Sequence[Verdict]:
    os.environ.clear()
    os.environ.update(on.environ)
    from celeriac.store.migrate import migrate
    from tasks.app import app  # Only now: it reads the environment.

    try:
        migrate(app.database.engine, app.migrations)
        with app.database.statement() as connection:
            connection.execute(TASKS)
        return system.play(on, screen)
    finally:
        app.publisher.close()
        app.database.dispose()


if __name__ == "__main__":
    sys.exit(main())
