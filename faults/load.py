"""The harness's side of the producers: how fast they go, and when they rest."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

from faults.members import PATIENCE, ROOT


class Load:
    """The producers' process; killed, another one takes its place."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self.environ, self.log, self.rate = environ, log, 0.0
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "faults.producers"], cwd=ROOT, env={**self.environ, "FAULTS_WHO": "producer"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, start_new_session=True,
            )  # fmt: skip

    def go(self, rate: float) -> None:
        """So many calls a second from now on."""
        self.rate = rate
        self._say(rate)

    def rest(self) -> None:
        """Returns once no call is under way."""
        self.rate = 0.0
        self._say(0.0)

    def _say(self, rate: float) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{rate}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        if not ready or not self.process.stdout.readline():
            raise RuntimeError(f"the producers hang or ended:\n{self.log.read_text()[-3000:]}")

    def kill_and_replace(self) -> None:
        """SIGKILL, in the midst of whatever they do."""
        self.close()
        self._start()
        self.go(self.rate)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
