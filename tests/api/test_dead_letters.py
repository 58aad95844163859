"""Dead letters over HTTP: seen, replayed, discarded."""

from __future__ import annotations

import itertools
import json

from tests.api.server import Api
from tests.api.works import audited

_number = itertools.count()

BURY = """
INSERT INTO celeriac.dead_letters (digest, name, task_id, sender, args, kwargs, reason, size, message)
VALUES (sha256(:message), :name, :task_id, 'gen1@web', '[]', CAST(:kwargs AS jsonb), 'nobody took it', length(:message),
    :message)
RETURNING id
"""


def letter(api: Api, name: str, **kwargs: object) -> int:
    """A message for that task that became none; its id."""
    task_id = f"letter-{next(_number)}"
    message = {
        "body": json.dumps([[], kwargs, {}]), "content-type": "application/json", "content-encoding": "utf-8",
        "headers": {"task": name, "id": task_id}, "properties": {},
    }  # fmt: skip
    given = {"name": name, "task_id": task_id, "kwargs": json.dumps(kwargs), "message": json.dumps(message).encode()}
    return int(str(api.rows.one(BURY, **given)))


def test_they_are_listed_and_shown(api: Api) -> None:
    first, last = letter(api, "mail.send", to="anna"), letter(api, "mail.send", to="bert")
    listed = api.get("/api/dead-letters?name=mail.send")["dead_letters"]
    assert [(one["id"], one["kwargs"]) for one in listed] == [(last, {"to": "bert"}), (first, {"to": "anna"})]
    assert [one["id"] for one in api.get(f"/api/dead-letters?after={last}&limit=1")["dead_letters"]] == [first]
    shown = api.get(f"/api/dead-letters/{first}")
    assert (shown["reason"], shown["sender"], shown["args"]) == ("nobody took it", "gen1@web", [])
    assert json.loads(shown["message"])["headers"]["task"] == "mail.send"
    api.refused(404, "GET", f"/api/dead-letters/{last + 1000}")


def test_one_is_replayed_once_it_fits(api: Api) -> None:
    fits, unknown = letter(api, "product_resync", dispensary_id=4711), letter(api, "no.such.task")
    after = api.post(f"/api/dead-letters/{fits}/replay", {"why": "it is ours"})["after"]
    assert after["role"] == "product_resync"
    task = "SELECT role, kwargs FROM worker_tasks WHERE task_id = :task_id"
    assert api.rows(task, task_id=after["task_id"]) == [("product_resync", {"dispensary_id": 4711})]
    assert [(entry[1], entry[4]) for entry in audited(api, "dead_letter", fits)] == [("replay", "it is ours")]
    api.refused(404, "POST", f"/api/dead-letters/{fits}/replay")
    api.refused(422, "POST", f"/api/dead-letters/{unknown}/replay")
    assert api.get(f"/api/dead-letters/{unknown}")["name"] == "no.such.task"


def test_one_that_postgres_refuses_stays_and_says_so(api: Api) -> None:
    refused = letter(api, "product_resync", dispensary_id=7411)
    api.rows("""ALTER TABLE celeriac.tasks ADD CONSTRAINT none CHECK (kwargs <> '{"dispensary_id": 7411}')""")
    try:
        told = api.refused(422, "POST", f"/api/dead-letters/{refused}/replay")
        assert "Postgres refused it" in told["detail"]
        assert api.get(f"/api/dead-letters/{refused}")["id"] == refused
    finally:
        api.rows("ALTER TABLE celeriac.tasks DROP CONSTRAINT none")


def test_one_that_nobody_wants_is_discarded(api: Api) -> None:
    unwanted = letter(api, "no.such.task", n=1)
    assert api.post(f"/api/dead-letters/{unwanted}/discard")["after"] is None
    api.refused(404, "GET", f"/api/dead-letters/{unwanted}")
    assert [entry[1] for entry in audited(api, "dead_letter", unwanted)] == ["discard"]
