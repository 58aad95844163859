"""Every event of the log is in one list, which docs/observability.md tells; lines hide what nobody is to be told."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from typing import Any

import pytest
from celery.utils.log import ColorFormatter

from celeriac import logged
from celeriac.run import shared
from celeriac.settings import Settings
from celeriac.settle.release import EVENTS as OF_KINDS
from celeriac.worker.governor import Governor
from celeriac.worker.logs import AsJson, AsText
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "observability.md").read_text()
CODE = "\n".join(path.read_text() for path in (ROOT / "celeriac").rglob("*.py") if path.name != "logged.py")

NAMED = re.compile(r"""(?:logged\.of\(|_say\(|\bevent=)\s*"([\w.]+)\"""")

#: Made of several parts, as the code has them.
COMPOSED = {
    'f"task.{event}"': {"task.retried", "task.failed", "task.cancelled"},
    "f\"role.{'paused' if paused else 'resumed'}\"": {"role.paused", "role.resumed"},
    '"worker.resumed" if after is None else "worker.backing_off"': {"worker.resumed", "worker.backing_off"},
}  # fmt: skip


def test_what_is_logged_is_in_the_list_and_what_is_listed_is_logged() -> None:
    assert all(part in CODE for part in COMPOSED)
    found = {*NAMED.findall(CODE), *OF_KINDS.values(), "task.rescued"}.union(*COMPOSED.values())
    assert found == {*logged.EVENTS}


def test_the_page_tells_every_event() -> None:
    table = PAGE.partition("## The log")[2].partition("| --- |")[2]
    assert dict(re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", table, re.MULTILINE)) == logged.EVENTS


def line(message: str, *given: Any, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("a.logger", logging.INFO, __file__, 1, message, given, None)
    record.__dict__.update(more)
    found: dict[str, Any] = json.loads(AsJson().format(record))
    return found


def test_celerys_lines_tell_no_result_and_no_argument() -> None:
    context = {"id": "i", "return_value": "canary", "args": "canary", "kwargs": "canary", "runtime": 1.0}
    told = line("Task %(id)s succeeded in %(runtime)ss: %(return_value)s", context, data=context)
    assert (told["message"], told["runtime"]) == ("Task i succeeded in 1.0s: ***", 1.0)
    assert "canary" not in json.dumps(told)


def test_a_statements_parameters_are_not_told() -> None:
    told = line("Not written: x\n[SQL: INSERT]\n[parameters: {'a': 'canary'}]\n(more)")
    assert told["message"] == "Not written: x\n[SQL: INSERT]\n[parameters are not shown]\n(more)"


@pytest.mark.parametrize("odd", ["\ud800", "\x00", "a\nb", object(), {1: {2}}])
def test_every_line_is_one_object(odd: object) -> None:
    record = logging.LogRecord("a.logger", logging.INFO, __file__, 1, "%s", (odd,), None)
    record.data = {"odd": odd}
    told = AsJson().format(record)
    assert "\n" not in told
    json.loads(told.encode(errors="surrogatepass"))


def test_no_text_of_a_tenant_is_a_line_of_the_log() -> None:
    """Nor moves the cursor of a terminal, be it in the message or in what an error says."""
    forged = "x\n[2026-11-29 04:00:00,000: INFO/MainProcess] Task sync succeeded\r\x1b[2J\x1b]0;t\x07\x9b1A\u2028y"
    try:
        raise ValueError(forged)
    except ValueError:
        record = logging.LogRecord("a.logger", logging.ERROR, __file__, 1, "of %s", (forged,), sys.exc_info())
    written = AsText(ColorFormatter("[%(asctime)s] %(message)s", use_color=False)).format(record)
    first, *others = written.split("\n")
    assert first.endswith("of x")
    assert all(line.startswith("    ") for line in others if "Traceback" not in line)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", written)
    assert r"\x1b[2J" in written
    assert record.args == (forged,), "others have the record as it was"


def test_a_worker_that_drains_says_so_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the signal's handler, which may have interrupted who writes a line."""
    caplog.set_level(logging.INFO)
    governor = Governor(Settings(), lambda: None, threading.Event())
    governor.check()
    monkeypatch.setattr(shared, "draining", lambda: True)
    governor.check()
    governor.check()
    assert [record.data["event"] for record in caplog.records if hasattr(record, "data")] == ["worker.draining"]
