"""The log's streams neither wait nor fail, lose nothing while they have room, and tell what they dropped."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path

import pytest

from celeriac.run.outlets import Outlet, patient
from celeriac.worker.logs import AsJson
from tests.processes import until

FULL = Path("/dev/full")
#: More than a pipe or a socket takes.
MUCH = 2_000
LINE = "x" * 500 + "\n"


@pytest.fixture(params=["a pipe", "a pipe that cannot be opened again", "a socket"])
def both_ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """What reads and what writes."""
    with ExitStack() as stack:
        if request.param == "a socket":
            reader, writer = (stack.enter_context(end) for end in socket.socketpair())
            yield reader.fileno(), writer.fileno()
            return
        for end in (ends := os.pipe()):
            stack.callback(os.close, end)
        if "cannot" in request.param:
            real = os.open
            monkeypatch.setattr(os, "open", lambda path, *more: real("/" if "/fd/" in str(path) else path, *more))
        yield ends


def of(descriptor: int, most: int = 1 << 20) -> Outlet:
    return Outlet(os.fdopen(descriptor, "w", encoding="utf-8", closefd=False), most)


def read(descriptor: int, n: int) -> str:
    """This many bytes."""
    read = b""
    while len(read) < n:
        read += os.read(descriptor, n - len(read))
    return read.decode()


def test_whoever_reads_late_gets_all_lines_in_their_order(both_ends: tuple[int, int]) -> None:
    reader, writer = both_ends
    outlet = of(writer)
    lines = "".join(f"{n} {LINE}" for n in range(MUCH))
    for line in lines.splitlines(keepends=True):
        outlet.write(line)
    assert read(reader, len(lines)) == lines
    outlet.finish()
    outlet.write("once more\n")
    assert read(reader, 10) == "once more\n"


def test_lines_beyond_what_is_kept_are_counted_and_told(
    both_ends: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = both_ends
    os.set_blocking(reader, False)
    outlet = of(writer, 10_000)
    for _ in range(MUCH):
        outlet.write(LINE)
    got = [""]

    def all_accounted_for() -> bool:
        with suppress(BlockingIOError):
            got[0] += os.read(reader, 1 << 20).decode()
        told = [record.data["lines"] for record in caplog.records]  # type: ignore[attr-defined]
        return got[0].count(LINE) + sum(map(int, told)) == MUCH

    until(all_accounted_for, "each line to be read or told of")
    assert caplog.records
    assert got[0] == LINE * got[0].count(LINE)


def test_a_reader_who_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    outlet = of(writer)
    os.close(reader)
    outlet.write(LINE)
    assert outlet.dropped == 1
    os.close(writer)


@pytest.mark.skipif(not FULL.exists(), reason="Linux")
def test_a_full_disk_is_no_error_and_told_when_there_is_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a rotation to where no file can be opened."""
    log = tmp_path / "log"
    log.symlink_to(FULL)
    celerys = WatchedFileHandler(log, encoding="utf-8")
    celerys.setFormatter(AsJson())
    handler = patient(celerys)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [handler])
    for _ in range(3):
        root.warning("is lost")
    log.unlink()
    log.mkdir()
    root.warning("cannot be opened")
    log.rmdir()
    root.warning("is written")
    handler.close()
    written, told = map(json.loads, log.read_text().splitlines())
    assert written["message"] == "is written"
    assert (told["event"], told["lines"]) == ("log.dropped", 4)
    assert capsys.readouterr().err == ""


def test_a_forked_process_does_not_write_what_its_parent_kept() -> None:
    reader, writer = os.pipe()
    outlet = of(writer)
    for _ in range(MUCH):
        outlet.write(LINE)
    child = os.fork()
    if child == 0:
        os._exit(len(outlet._kept) + outlet.dropped)
    assert os.waitpid(child, 0)[1] == 0
    assert outlet._kept
    read(reader, MUCH * len(LINE))
    outlet.finish()
    os.close(reader)
    os.close(writer)


def test_other_handlers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Own(logging.StreamHandler):  # type: ignore[type-arg]
        pass

    for handler in (Own(), logging.NullHandler(), logging.StreamHandler()):  # the last one's stream is pytest's
        stream = getattr(handler, "stream", None)
        assert patient(handler) is handler
        assert getattr(handler, "stream", None) is stream
