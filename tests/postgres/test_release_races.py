"""A release decides on what it saw; what became of the row meanwhile counts more."""

from __future__ import annotations

from celeriac import Celeriac
from celeriac.run import start
from celeriac.settle import release
from tests.postgres.stages import claimed


def test_a_ticket_believed_lost_that_was_started_meanwhile_is_left_alone(app: Celeriac) -> None:
    @app.task(role="late")
    def late() -> None: ...

    late.delay()
    ids, token = claimed(app.database, "late")
    with app.database.statement() as connection:
        suspects = release.unstarted(connection, grace=0)
        started = start.start(connection, "late", ids, token, worker_id="w", pid=1)
        freed = release.release(
            connection, [s.token for s in suspects], started=False, kind="ticket_lost", why="", by="sweep", loss=False
        )
    assert [s.token for s in suspects] == [token]
    assert [s.id for s in started] == ids
    assert freed == []


def test_a_start_whose_answer_was_lost_is_answered_when_asked_again(app: Celeriac) -> None:
    @app.task(role="asked")
    def asked() -> None: ...

    asked.delay()
    ids, token = claimed(app.database, "asked")
    with app.database.statement() as connection:

        def ask(pid: int, again: bool) -> list[int]:
            rows = start.start(connection, "asked", ids, token, worker_id="w", pid=pid, again=again)
            return [row.id for row in rows]

        assert [ask(1, False), ask(1, False), ask(2, True), ask(1, True)] == [ids, [], [], ids]
