"""The calls of the worker tasks' document are answered as they stand there; what it leaves out are host and token."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api import curl
from tests.api.server import Api

CALLS = """
curl -X POST /api/tasks/recover-stale \\
  -H 'Content-Type: application/json' \\
  -d '{"threshold_minutes": 10}'

curl -X POST /api/tasks/migration/full-migrate

curl /api/tasks/migration/status

curl -X POST /api/tasks/migration/disable-old-schedules

curl -X POST /api/tasks/migration/cancel-pending-crawl-jobs

curl -X POST /api/tasks/migration/create-resync-tasks \\
  -H 'Content-Type: application/json' \\
  -d '{"state_code": "AZ"}'

curl -X POST /api/tasks/generate/resync \\
  -H 'Content-Type: application/json' \\
  -d '{"batches_per_day": 6}'
"""

#: What each is answered with.
TELLS = ("recovered", "told", "told", "told", "told", "told", "created")


def test_the_documents_calls_are_answered(api: Api, tmp_path: Path) -> None:
    """In one shell, in their order: each prints a document of JSON."""
    theirs = CALLS.strip().split("\n\n")
    ours = [call.replace(" /api", " http://127.0.0.1:6002/api") for call in theirs]
    authorised = [f'{call} -H "Authorization: Bearer $TOKEN" && echo' for call in ours]
    printed = curl.answered(api, " && ".join(authorised), tmp_path)
    answers = [json.loads(line) for line in printed.splitlines() if line]
    assert [name for name, answer in zip(TELLS, answers, strict=True) if name not in answer] == []
    assert answers[1]["told"]["dry_run"] is False
