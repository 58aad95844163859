"""The documents' calls are answered as they stand there; what they leave out are host and token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import quoted
from tests.api import curl
from tests.api.server import Api
from tests.quoted import Request

#: What a call is answered with, by the end of its path; `told` unless it is here.
TELLS = {"recover-stale": "recovered", "resync": "created"}

TRIGGERS = quoted.requests("instasite-builds", "stale-thumbnails")


def test_the_documents_calls_are_answered(api: Api, tmp_path: Path) -> None:
    """In one shell, in their order: each prints a document of JSON."""
    theirs = quoted.curls()
    ours = [call.replace(" /api", f" {quoted.SERVER}/api") for call in theirs]
    authorised = [f'{call} -H "Authorization: Bearer $TOKEN" && echo' for call in ours]
    printed = curl.answered(api, " && ".join(authorised), tmp_path)
    answers = [json.loads(line) for line in printed.splitlines() if line]
    wanted = [told(call) for call in theirs]
    assert [name for name, answer in zip(wanted, answers, strict=True) if name not in answer] == []
    assert answers[1]["told"]["dry_run"] is False


def told(call: str) -> str:
    end = next(word for word in call.split() if word.startswith("/api")).rpartition("/")[2]
    return TELLS.get(end, "told")


@pytest.mark.parametrize("asked", TRIGGERS, ids=lambda asked: asked.path)
def test_the_documents_triggers_run_their_jobs(api: Api, tmp_path: Path, asked: Request) -> None:
    assert answered(api, asked, tmp_path)["told"]


def test_the_documents_task_is_created(api: Api, tmp_path: Path) -> None:
    (given,) = quoted.objects()
    made = answered(api, Request("POST", "/api/tasks", json.dumps(given)), tmp_path)
    shown = "SELECT role, dispensary_id, scheduled_for = CAST(:at AS timestamptz) FROM worker_tasks WHERE id = :id"
    assert api.rows(shown, at=given["scheduled_for"], id=made["id"]) == [("product_resync", 123, True)]


def answered(api: Api, asked: Request, folder: Path) -> Any:
    """By curl, with nothing but a token."""
    return json.loads(curl.answered(api, curl.command(*asked), folder).strip() or "null")
