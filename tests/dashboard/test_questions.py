"""What docs/dashboard.md says operators ask at night: its page and its command say the same, and both are enough."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from html import unescape
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from celeriac.cli import within_celery
from tests.api.works import task
from tests.dashboard.site import Site, worker
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "dashboard.md").read_text()

ROLE = "product_resync"

#: What stands on the page, as a pattern, and what the command prints.
ANSWERS = {
    "what is wrong?": (rf"no worker takes the queue {ROLE}", f"no worker takes the queue {ROLE}"),
    "why is it not running?": ("is running and has its lock 'store:7'", "is running and has its lock 'store:7'"),
    "who holds that lock?": (r"on <a [^>]*>store-9:12</a>", "store-9:12"),
    "who starves?": (r"(?s)id=\"share-[^\"]*starved\"", "starved"),
    "how many workers do I need?": (rf'id="role-{ROLE}"', ROLE),
    "how late is beat?": ("the last tick was", "ticked"),
    "what failed most in the last hour?": ("HTTPStatusError: 502", "HTTPStatusError: 502"),
    "retry all of that": ("<h1>Retry 1 task\\?</h1>", "1 changed"),
    "cancel all of these": (r"<h1>Cancel \d tasks\?</h1>", "changed, 0 not"),
    "free what a dead worker holds": ("Free what it holds…", "1 of 1 tasks recovered"),
}


def table() -> Iterator[tuple[str, str, str]]:
    rows = re.findall(r"^\| ([^|`]+) \| `/admin([^`]*)` \| `celeriac ([^`]+)` \|$", PAGE, re.MULTILINE)
    yield from rows


@pytest.fixture
def night(site: Site) -> Site:
    """Each question has something to answer."""
    alert = "INSERT INTO alerts (name, subject, value, threshold, says) VALUES ('queue_depth', :role, 2, 1, :says)"
    site.rows(alert, role=ROLE, says="too much waits")
    site.rows("INSERT INTO beats (beat_id, hostname, pid) VALUES ('b', 'h', 3)")
    worker(site, "store-9:12", ago=3_600)
    task(site, "running", "crawl", lock_key="store:7")
    site.rows("UPDATE tickets SET worker_id = 'store-9:12', heartbeat_at = now() - interval '1 hour'")
    task(site, "pending", ROLE, id=1000, lock_key="store:7", account="starved")
    task(site, "pending", ROLE, account="starved")
    task(site, "failed", ROLE)
    site.rows("UPDATE history SET error_message = :says", says="HTTPStatusError: 502 of 'https://dutchie.example/7'")
    return site


def test_each_question_of_the_night_has_its_page_and_its_command(night: Site) -> None:
    asked = list(table())
    assert {question for question, _, _ in asked} == set(ANSWERS)
    for question, path, command in asked:
        shown, printed = ANSWERS[question]
        assert re.search(shown, unescape(night.html(path.removeprefix("/")))), question
        given = SimpleNamespace(app=night.app)
        result = CliRunner().invoke(within_celery, shlex.split(command), obj=given)
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert printed in result.output, f"{command}: {result.output}"
