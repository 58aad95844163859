"""A release decides on what it saw; what became of the row meanwhile counts more."""

from __future__ import annotations

import uuid

from celeriac import Celeriac
from celeriac.dispatch import claim
from celeriac.run import start
from celeriac.settle import release


def test_a_ticket_believed_lost_that_was_started_meanwhile_is_left_alone(app: Celeriac) -> None:
    @app.task(role="late")
    def late() -> None: ...

    late.delay()
    token = str(uuid.uuid4())
    with app.database.transaction() as connection:
        ids = list(claim.claim(connection, "late", {"": 1}, token).losses)
    with app.database.statement() as connection:
        suspects = release.unstarted(connection, grace=0)
        started = start.start(connection, ids, token, worker_id="w", pid=1, timeout=None)
        freed = release.release(
            connection, suspects, status="claimed", kind="ticket_lost", why="", by="sweep", loss=False
        )
    assert [s.id for s in suspects] == [s.id for s in started] == ids
    assert freed == []


def test_a_start_whose_answer_was_lost_is_answered_when_asked_again(app: Celeriac) -> None:
    @app.task(role="asked")
    def asked() -> None: ...

    asked.delay()
    token = str(uuid.uuid4())
    with app.database.statement() as connection:
        ids = list(claim.claim(connection, "asked", {"": 1}, token).losses)

        def ask(pid: int, again: bool) -> list[int]:
            rows = start.start(connection, ids, token, worker_id="w", pid=pid, timeout=None, again=again)
            return [row.id for row in rows]

        assert [ask(1, False), ask(1, False), ask(2, True), ask(1, True)] == [ids, [], [], ids]
