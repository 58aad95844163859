"""A session that many enqueues share tells of each commit once, and of nothing that was rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from celeriac import Celeriac, Task
from tests.processes import Rows


@pytest.fixture
def work(app: Celeriac) -> Task[[], None]:
    @app.task(role="work", shared=False)
    def work() -> None: ...

    return work


@pytest.fixture
def session(app: Celeriac) -> Iterator[Session]:
    with Session(app.database.engine) as session:
        yield session


@pytest.fixture
def kicked(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roles that were to look early, in order."""
    names: list[str] = []
    monkeypatch.setattr(app.enqueuer.kicker, "kick", lambda name, _: names.append(name))
    return names


def test_each_commit_is_told_of_once(work: Task[[], None], session: Session, kicked: list[str]) -> None:
    listeners = len(list(session.dispatch.after_commit))
    for n in range(1, 4):
        work.using(session=session).delay()
        work.using(session=session).delay()
        session.commit()
        assert len(kicked) == n
    assert len(list(session.dispatch.after_commit)) == listeners + 1
    session.commit()
    assert kicked == ["work"] * 3


@pytest.mark.parametrize("end", [Session.rollback, Session.close])
def test_a_commit_later_does_not_tell_of_what_was_rolled_back(
    work: Task[[], None], session: Session, kicked: list[str], end: Callable[[Session], None]
) -> None:
    work.using(session=session).delay()
    end(session)
    session.connection()
    session.commit()
    assert kicked == []


def test_a_savepoint_tells_with_the_commit_around_it(work: Task[[], None], session: Session, kicked: list[str]) -> None:
    with session.begin_nested():
        work.using(session=session).delay()
    assert kicked == []
    session.commit()
    assert kicked == ["work"]


def test_a_scoped_session_is_its_threads_own(
    app: Celeriac, work: Task[[], None], rows: Rows, kicked: list[str]
) -> None:
    scoped = scoped_session(sessionmaker(app.database.engine))
    work.using(session=scoped).delay()
    work.bulk([()], session=scoped)
    assert rows("SELECT FROM worker_tasks") == []
    scoped.commit()
    assert len(rows("SELECT FROM worker_tasks")) == 2
    assert kicked == ["work"]
    scoped.remove()
