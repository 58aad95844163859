"""Savepoints of a handler's session, as many as it likes, cost the same each."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from celeriac.run import sessions
from celeriac.run.sessions import HandlersSession
from celeriac.store.connections import Database


def test_each_statement_is_looked_at_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(sessions, "_ENDS", type("Ends", (), {"match": staticmethod(looked.append)}))
    with HandlersSession(database.engine) as session:
        for _ in range(20):
            with session.begin_nested():
                session.execute(text("SELECT 1"))
        session.rollback()
        session.execute(text("SELECT 2"))
    assert looked.count("SELECT 1") == 20
    assert looked.count("SELECT 2") == 1
