"""Where the demo takes place: a database and a Redis number of its own, the sandbox, a worker and a beat.

All of it goes with the `with` statement that set it up, whatever ends that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

import sandbox
from celeriac import Settings, local
from celeriac.settings import NO_REDIS
from sandbox import Plan

ROOT = Path(__file__).parent.parent

#: Seconds a process may take to get ready or to end.
PATIENCE = 60.0

#: Settings of the surroundings that must not leak into the demo: it talks to the sandbox and nobody else.
FOREIGN = (
    "DUDA_", "CLOUDFLARE_", "DUTCHIE_", "SMTP_", "QM_", "INSTASITES_", "THUMBNAILS_", "NODE_ENV", "STORES", "REDDIT_",
    "STALE_DAYS", "RESET_CRAWLING_", "WEBMENUS_", "PROXY_", "BROWSER_",
)  # fmt: skip


class StageError(Exception):
    """The demo could not be set up; the message says what to do."""


@dataclass(frozen=True)
class Setting:
    """What a demo runs with: settings of the application, latency, faults and proxies of the sandbox."""

    environ: Mapping[str, str] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    proxies: int = 0


@dataclass(frozen=True)
class Stage:
    environ: Mapping[str, str]
    outside: sandbox.Sandbox
    logs: Path


def browser() -> str:
    """The program. Raises StageError."""
    from tasks.chromium import NoBrowser, find

    try:
        return find()
    except NoBrowser as missing:
        raise StageError(str(missing)) from missing


@contextmanager
def stage(setting: Setting, logs: Path) -> Iterator[Stage]:
    """Servers and sandbox; `environ` is what a process needs to find them, `logs` the folder for its output."""
    with ExitStack() as stack:
        database_url, redis_url = stack.enter_context(_servers())
        with _told(OperationalError, "Postgres does not answer: check DATABASE_URL"):
            urls = {"DATABASE_URL": stack.enter_context(_fresh_database(database_url))}
        with _told(redis.RedisError, "Redis does not answer: check REDIS_URL"):
            is_none = redis_url == NO_REDIS
            urls["REDIS_URL"] = NO_REDIS if is_none else stack.enter_context(_empty_redis(redis_url))
        outside = stack.enter_context(sandbox.start(plan=setting.plan, proxies=setting.proxies))
        yield Stage({**_surroundings(), **setting.environ, **outside.environ(), **urls}, outside, logs)


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    """DATABASE_URL and REDIS_URL; the embedded stack for whichever is not set."""
    given = Settings.from_environ()
    if given.database_url and given.redis_url:
        yield given.database_url, given.redis_url
        return
    with local.join(postgres=not given.database_url, redis=not given.redis_url) as joined:
        yield given.database_url or joined.database_url, given.redis_url or joined.redis_url


@contextmanager
def _told(kind: type[Exception], as_what: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise StageError(f"{as_what} ({str(error).partition(chr(10))[0]})") from error


@contextmanager
def _fresh_database(url: str) -> Iterator[str]:
    name = f"celeriac_demo_{uuid.uuid4().hex[:8]}"
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg2"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


@contextmanager
def _empty_redis(url: str) -> Iterator[str]:
    """A numbered database nobody uses: with others in it, each one's worker would take the other's tickets."""
    client, taken = _take_number(url)
    try:
        yield taken
    finally:
        with contextlib.suppress(redis.RedisError):
            client.flushdb()
        client.close()


def _take_number(url: str) -> tuple[Any, str]:
    for number in range(16):
        candidate = urlsplit(url)._replace(path=f"/{number}").geturl()
        client = redis.Redis.from_url(candidate)
        if client.dbsize() == 0 and client.set("celeriac demo", os.getpid(), nx=True):
            return client, candidate
        client.close()
    raise StageError("no numbered database of the Redis server is empty: set REDIS_URL to another server")


class Process:
    """A process in a session of its own, so that the terminal's Ctrl-C is ours to pass on; its output in a file."""

    def __init__(self, name: str, command: list[str], on: Stage) -> None:
        self.name, self.log = name, on.logs / f"{name}.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=dict(on.environ), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until_printed(self, what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while what not in self.printed():
            if self.ended or time.monotonic() > give_up:
                raise StageError(f"the {self.name} did not get ready:\n{self.printed()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for its whole session if that is not enough or is interrupted."""
        try:
            self._process.terminate()
            self._process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def process(name: str, command: list[str], on: Stage) -> Iterator[Process]:
    running = Process(name, command, on)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def worker_and_beat(on: Stage, *options: str) -> Iterator[tuple[Process, Process]]:
    """`celery -A tasks worker` with these options and `celery -A tasks beat`, ready."""
    celery = ["celery", "-A", "tasks"]
    with (
        process("worker", [*celery, "worker", *options, "-l", "INFO"], on) as worker,
        process("beat", [*celery, "beat", "-l", "INFO"], on) as beat,
    ):
        worker.wait_until_printed(" ready.")
        beat.wait_until_printed("Starting")
        yield worker, beat
