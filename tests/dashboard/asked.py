"""Why a task waits, asked of each surface."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner
from playwright.sync_api import Page, expect

from celeriac.cli import within_celery
from tests.dashboard.stack import Stack


def why(stack: Stack, page: Page, task: int) -> str:
    """In one word, which page, API, command line and app have alike, as they have what was asked and what it said."""
    told = stack.app.why(task)
    (no,) = [check for check in told.checks if check.outcome == "no"]
    answer = stack.api.get(f"/api/tasks/{task}/why")
    line = CliRunner().invoke(within_celery, ["why", str(task), "--json"], obj=SimpleNamespace(app=stack.app))
    expected = (told.reason, [(check.name, check.outcome) for check in told.checks])
    assert [_told(answer), _told(json.loads(line.stdout))] == [expected] * 2
    page.goto(f"tasks/{task}")
    expect(page.locator(".checks .no")).to_have_count(1)
    expect(page.locator(f"#check-{no.name}")).to_have_class("no")
    return told.reason


def _told(answer: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    return answer["reason"], [(check["name"], check["outcome"]) for check in answer["checks"]]
