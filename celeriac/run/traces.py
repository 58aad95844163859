"""Traces: a file in memory that lists the tasks a process has begun.

It survives the process, however that ends. A task that a lost process had begun, or may have begun, counts a loss; its
tickets' other tasks wait again without one. A trace is read on its own machine only (in Kubernetes: its pod). Without a
trace, every task of the process may have begun.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import mmap
import os
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from sqlalchemy import Connection, text

from celeriac.run.shared import worker_id
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.forks import after_fork

logger = logging.getLogger(__name__)

#: The size (bytes) of the header, which has the process's identity as JSON.
HEADER = 1024

#: The latest entries of a process: a ticket's mark with 0, then the same mark with each of its tasks as it begins.
#: INVARIANT: if a ticket's 0 is still there, so are all of its tasks that have begun; otherwise any of them may have
#: begun.
_ENTRY = struct.Struct("qq")
ENTRIES = 1024
SIZE = HEADER + _ENTRY.size * ENTRIES

#: Seconds that a dead process's unread trace is kept. It is made read-only (`SEEN`) when it is first found.
FORGOTTEN = 3600.0
SEEN = 0o400

#: A folder of files in memory, if there is one: a successor in the same pod reads a dead container's traces there.
MEMORY = Path("/dev/shm")

WHY = "its process was lost before it began"

HELD = text("""
SELECT CAST(token AS text) AS token, worker_id, worker_pid, ids FROM celeriac.tickets
WHERE token = ANY (CAST(:tokens AS uuid[])) AND worker_pid IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class Trace:
    """The notes of one process. `path`: its file."""

    path: Path
    worker_id: str
    pid: int
    begun: Mapping[int, frozenset[int]]

    def unbegun(self, token: str, ids: Iterable[int]) -> list[int]:
        """Return those of a ticket's tasks that have certainly not begun."""
        begun = self.begun.get(_mark(token))
        return [] if begun is None else [task for task in ids if task not in begun]


class Traces:
    """The traces of this process. Only workers leave any: they call `keep` before their processes are forked."""

    def __init__(self) -> None:
        self._keeps = False
        self._open: dict[tuple[int, str, str], _File] = {}
        after_fork(self._let_go)

    def keep(self, *, on: bool) -> None:
        """Begin to keep traces, or stop and remove this process's."""
        self._keeps = on
        for file in self._open.values():
            file.remove()
        self._open.clear()
        if on:
            with suppress(OSError):
                _forget_the_old()

    def _let_go(self) -> None:
        """Close, in a forked child, its parent's files: each is locked for as long as any process has it open."""
        for file in self._open.values():
            file.close()
        self._open = {}

    def opened(self, database: Database, token: str) -> Callable[[int], None]:
        """Note that this process is about to take a ticket;
        return a function that notes each of its tasks as it begins.
        """
        if not self._keeps:
            return _nothing
        key = (os.getpid(), worker_id(), database.url)
        file = self._open.get(key)
        if file is None:
            file = self._open[key] = _File(database.url)
        return file.ticket(token)


class _File:
    def __init__(self, url: str) -> None:
        self._path: Path | None = None
        self._places = cycle(range(HEADER, SIZE, _ENTRY.size))
        try:
            self._memory = self._create(path_of(url, worker_id(), os.getpid()))
        except OSError as error:
            logger.warning(
                "No trace of what begins here is kept: %s; all tasks that a lost process held count as losses", error
            )

    def _create(self, path: Path) -> mmap.mmap:
        """Create the file, and give it its name once it is whole: whoever can lock a trace takes its process for dead.
        Its space is allocated at once, because a write to a file without room would end the process.
        """
        temporary = path.with_suffix(".new")
        self._file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(self._file, bytes(SIZE)) < SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            memory = mmap.mmap(self._file, SIZE)
            header = json.dumps({"worker_id": worker_id(), "pid": os.getpid()}).encode()
            memory[: len(header)] = header
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            os.close(self._file)
            raise
        self._path = path
        return memory

    def ticket(self, token: str) -> Callable[[int], None]:
        if self._path is None:
            return _nothing
        mark, places, memory, pack_into = _mark(token), self._places, self._memory, _ENTRY.pack_into

        def begin(task: int) -> None:
            pack_into(memory, next(places), mark, task)

        begin(0)
        return begin

    def remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file, which ends its lock in this process."""
        if self._path is not None:
            self._path = None
            self._memory.close()
            os.close(self._file)


def _nothing(_: int) -> None:
    """Do nothing: no trace is kept."""


def _mark(token: str) -> int:
    """Return a ticket's mark, never 0; a string that is no token gets -1, and its ticket is refused."""
    try:
        return int(token[-12:], 16) + 1
    except ValueError:
        return -1


def folder() -> Path:
    """Return the folder of this user's traces. Raises OSError if it is somebody else's."""
    base = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    path = base / f"celeriac-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{path} is not this user's directory")
    return path


def path_of(url: str, worker: str, pid: int) -> Path:
    return folder() / f"{_digest(url)}-{_digest(worker)}-{pid}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def read(path: Path) -> Trace | None:
    """Return the trace in this file; None if there is none, or it cannot be read."""
    try:
        content = path.read_bytes()
        header = json.loads(content[:HEADER].rstrip(b"\0"))
        begun: dict[int, set[int]] = {}
        opened: set[int] = set()
        for mark, task in _ENTRY.iter_unpack(content[HEADER:]):
            begun.setdefault(mark, set()).add(task)
            if mark and not task:
                opened.add(mark)
        known = {mark: frozenset(begun[mark]) for mark in opened}
        return Trace(path, header["worker_id"], header["pid"], known)
    except (OSError, ValueError, KeyError, struct.error):
        return None


def dead(url: str) -> Iterator[Trace]:
    """Yield the traces of processes that worked on this database and are gone."""
    mine = f"{_digest(url)}-"
    for path in folder().iterdir():
        if path.name.startswith(mine) and not path.suffix and _is_dead(path) and (trace := read(path)) is not None:
            yield trace


def _is_dead(path: Path) -> bool:
    """Return whether nobody holds the file's lock, which ends with its process, in whichever namespace that was."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _forget_the_old() -> None:
    """Remove traces that were found dead long ago, of any database."""
    for path in filter(_is_dead, folder().iterdir()):
        seen = path.stat()
        if stat.S_IMODE(seen.st_mode) != SEEN:
            path.chmod(SEEN)
            os.utime(path)
        elif time.time() - seen.st_mtime > FORGOTTEN:
            path.unlink()


def spare_neighbours(database: Database) -> None:
    """Hand back tasks that lost processes of this machine held and had not begun, whichever worker's they were.

    Tasks they had begun are rescued when their lease is over. A trace is kept until its process holds nothing.
    """
    try:
        gone = {(trace.worker_id, trace.pid): trace.path for trace in dead(database.url)}
        if not gone:
            return
        with database.transaction() as connection:
            held = release.of_processes(connection, list(gone))
            spare(connection, database.url, [token for tokens in held.values() for token in tokens])
        for process in gone.keys() - held.keys():
            gone[process].unlink(missing_ok=True)
    except OSError as error:
        logger.debug("The traces of lost processes cannot be read: %s", error)


def spare(connection: Connection, url: str, tokens: Sequence[str]) -> list[release.Freed]:
    """Hand back and return those tasks of lost processes' tickets that had not begun."""
    held = connection.execute(HELD, {"tokens": list(tokens)}).all() if tokens else []
    try:
        known = {key: read(path_of(url, *key)) for key in {(row.worker_id, row.worker_pid) for row in held}}
    except OSError:
        return []
    unbegun = {
        row.token: trace.unbegun(row.token, row.ids)
        for row in held
        if (trace := known[row.worker_id, row.worker_pid]) is not None
    }
    return release.release(
        connection, [token for token, ids in unbegun.items() if ids], started=True, kind="handed_back", why=WHY,
        by=worker_id(), loss=False, only=[task for ids in unbegun.values() for task in ids],
    )  # fmt: skip


def forget(url: str, worker: str) -> None:
    """Remove the traces of a worker that has ended in order."""
    with suppress(OSError):
        for path in folder().glob(f"{_digest(url)}-{_digest(worker)}-*"):
            path.unlink(missing_ok=True)


#: The traces of this process.
traces = Traces()
