"""A host that vanishes costs a connection half a minute, not the quarter of an hour that TCP would give it."""

from __future__ import annotations

from celeriac.store.connections import Database


def test_every_connection_ends_when_what_it_sent_is_not_acknowledged_in_time(database: Database) -> None:
    with database.statement() as verbs, database.engine.connect() as handlers:
        for connection in (verbs, handlers):
            parameters = connection.connection.dbapi_connection.info.dsn_parameters  # type: ignore[union-attr]
            assert (parameters["tcp_user_timeout"], parameters["keepalives_idle"]) == ("30000", "10")
