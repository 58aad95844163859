"""A `docker` for machines without: `docker compose up --build` with a local process for each container, in a jail.

Postgres and Redis are those of DATABASE_URL and REDIS_URL, the containers' ports those of COMPOSE_PORTS (JSON). What a
service prints goes to a file of its name in COMPOSE_LOGS. Nothing is built. Until Ctrl-C, as the real one, or until a
service ends by itself, which the real one would start again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.deploy import compose
from tests.deploy.compose import Service
from tests.processes import ROOT, Running


def main(arguments: list[str]) -> int:
    assert arguments == ["compose", "up", "--build"], arguments
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    services = compose.services(os.environ, json.loads(os.environ["COMPOSE_PORTS"]))
    logs = Path(os.environ["COMPOSE_LOGS"])
    _migrate(services.pop("migrate"), logs / "migrate")
    running = {name: Running(one.contained, one.environ, logs / name, alone=True) for name, one in services.items()}
    (logs / "pids").write_text(json.dumps({name: one.pid for name, one in running.items()}))
    while not ended.wait(0.1):
        if gone := [one for one in running.values() if one.process.poll() is not None]:
            print(gone[0].printed()[-2000:])
            _end(running)
            return 1
    _end(running)
    return 0


def _migrate(service: Service, log: Path) -> None:
    """The others wait for it."""
    with log.open("wb") as output:
        subprocess.run(service.contained, cwd=ROOT, env=service.environ, stdout=output, stderr=output, check=True)


def _end(running: dict[str, Running]) -> None:
    for one in running.values():
        one.process.terminate()
    for name, one in running.items():
        print(f"{name} exited with code {one.process.wait()}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
