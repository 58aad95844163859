"""Traces: which tasks a process has begun, in a file in memory that survives it, however it ends.

What a lost process had begun, or may have begun, counts a loss; its tickets' other tasks wait again without one. A
trace is read on its own machine alone (in Kubernetes: its pod). Where there is none, each task may have begun.
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
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, text

from celeriac.run.shared import worker_id
from celeriac.settle import release
from celeriac.store.connections import Database

logger = logging.getLogger(__name__)

#: Whose trace it is stands in the first page, as JSON.
HEADER = 1024

#: What a process notes last: the mark of a ticket with 0, then the same mark with each of its tasks as it begins.
#: INVARIANT: where a ticket's 0 is still there, so are all of its tasks that have begun; where it is not, any may have.
_ENTRY = struct.Struct("qq")
ENTRIES = 1024
SIZE = HEADER + _ENTRY.size * ENTRIES

#: A dead process' trace that nobody has read goes after so long (seconds), in which it is read-only.
FORGOTTEN = 3600.0
SEEN = 0o400

#: Files in memory where there are some: who dies with its container is read by its successor in the same pod.
MEMORY = Path("/dev/shm")

WHY = "its process was lost before it began"

HELD = text("""
SELECT CAST(token AS text) AS token, worker_id, worker_pid, ids FROM celeriac.tickets
WHERE token = ANY (CAST(:tokens AS uuid[])) AND worker_pid IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class Trace:
    """What one process has noted. `path`: its file."""

    path: Path
    worker_id: str
    pid: int
    begun: Mapping[int, frozenset[int]]

    def unbegun(self, token: str, ids: Iterable[int]) -> list[int]:
        """Which of a ticket's tasks have certainly not begun."""
        begun = self.begun.get(_mark(token))
        return [] if begun is None else [task for task in ids if task not in begun]


class Traces:
    """What this process leaves behind. Only workers do: `keep` is called before their processes are forked."""

    def __init__(self) -> None:
        self._keeps = False
        self._open: dict[tuple[int, str, str], _File] = {}

    def keep(self, *, on: bool) -> None:
        """Begins, or ends and removes the traces of this process."""
        self._keeps = on
        for file in self._open.values():
            file.remove()
        self._open.clear()
        if on:
            with suppress(OSError):
                _forget_the_old()

    def opened(self, database: Database, token: str) -> Callable[[int], None]:
        """Notes that this process asks for a ticket; the function notes each of its tasks as it begins."""
        if not self._keeps:
            return _nothing
        key = (os.getpid(), worker_id(), database.url)
        file = self._open.get(key)
        if file is None:
            self._open = {of: other for of, other in self._open.items() if of[0] == key[0]}  # not those of a parent
            file = self._open[key] = _File(database.url)
        return file.ticket(token)


class _File:
    def __init__(self, url: str) -> None:
        self._path: Path | None = None
        self._cursor = count()
        try:
            self._memory = self._create(path_of(url, worker_id(), os.getpid()))
        except OSError as error:
            logger.warning("No trace of what begins here is kept: %s; whatever a lost process held is a loss", error)

    def _create(self, path: Path) -> mmap.mmap:
        """Under its name once it is whole: who can lock a trace takes its process for dead. A file that has no room
        would end the process that writes to it, so it has it from the beginning.
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
        mark, cursor, memory, pack_into = _mark(token), self._cursor, self._memory, _ENTRY.pack_into

        def begin(task: int) -> None:
            pack_into(memory, HEADER + next(cursor) % ENTRIES * 16, mark, task)

        begin(0)
        return begin

    def remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._memory.close()
            os.close(self._file)


def _nothing(_: int) -> None:
    """No trace is kept."""


def _mark(token: str) -> int:
    """Never 0; a token that is none has its ticket refused."""
    try:
        return int(token[-12:], 16) + 1
    except ValueError:
        return -1


def folder() -> Path:
    """Of this user's traces. Raises OSError where it is somebody else's."""
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
    """None where there is none, or none that can be read."""
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
    """Of processes that worked on this database and are gone."""
    mine = f"{_digest(url)}-"
    for path in folder().iterdir():
        if path.name.startswith(mine) and not path.suffix and _is_dead(path) and (trace := read(path)) is not None:
            yield trace


def _is_dead(path: Path) -> bool:
    """Nobody holds its lock, which ends with the process, in whichever namespace that was."""
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
    """Removes what was seen to be dead long ago, whichever database it is of."""
    for path in filter(_is_dead, folder().iterdir()):
        seen = path.stat()
        if stat.S_IMODE(seen.st_mode) != SEEN:
            path.chmod(SEEN)
            os.utime(path)
        elif time.time() - seen.st_mtime > FORGOTTEN:
            path.unlink()


def spare_neighbours(database: Database) -> None:
    """Hands back what processes of this machine that are gone held and had not begun, whichever worker's they were.

    What they had begun goes when its lease is over. A trace is kept until its process holds nothing.
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
    """Hands back those tasks of lost processes' tickets that had not begun; which."""
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
    """Removes the traces of a worker that has ended in order."""
    with suppress(OSError):
        for path in folder().glob(f"{_digest(url)}-{_digest(worker)}-*"):
            path.unlink(missing_ok=True)


#: This process's.
traces = Traces()
