"""pytest-celery's worker node over a local process: what its container wrapper asks of Docker, answered without it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_celery import CeleryTestWorker, CeleryWorkerContainer

from tests.end_to_end.shop import app
from tests.processes import ROOT, Running


class LocalProcess:
    """Stands where a Docker container object is expected; restarts under the same name."""

    def __init__(self, command: list[str], environ: Mapping[str, str], log: Path) -> None:
        self.command, self.environ, self.log = command, environ, log
        self.id = self.name = "shop-worker"
        self.attrs: dict[str, Any] = {
            "Config": {"Hostname": "localhost", "Env": []},
            "NetworkSettings": {"Networks": {}, "Ports": {}},
            "HostConfig": {"PortBindings": {}},
        }
        self.running = Running(command, environ, log)

    @property
    def status(self) -> str:
        return "running" if self.running.process.poll() is None else "exited"

    def reload(self) -> None:
        """Its state is asked for, never cached."""

    def logs(self, **_: Any) -> bytes:
        return self.log.read_bytes()

    def kill(self, signal: str | int | None = None) -> None:
        self.running.signal_all(_number(signal or "SIGKILL"))
        self.running.process.wait(30)

    def restart(self, timeout: float = 30) -> None:
        self.running.stop(timeout)
        self.running = Running(self.command, self.environ, self.log)


def _number(given: str | int) -> int:
    return given if isinstance(given, int) else int(getattr(signal, given))


class ShopWorkerContainer(CeleryWorkerContainer):
    """The shop's worker, as its users start it."""

    @classmethod
    def command(cls, *arguments: str, **_: Any) -> list[str]:
        return [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-l", "INFO", *arguments]

    @classmethod
    def worker_queue(cls) -> str:
        return "add"


def worker_node(environ: Mapping[str, str], log: Path) -> CeleryTestWorker:
    command = ShopWorkerContainer.command("-c", "2", "-Q", "add,slow", "--without-mingle", "--without-gossip")
    process = LocalProcess(command, {"PYTHONPATH": str(ROOT), **environ}, log)
    return CeleryTestWorker(ShopWorkerContainer(process), app)
