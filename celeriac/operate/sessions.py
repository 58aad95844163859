"""Sessions of the dashboard: the browser has a random id, Postgres its hash. The token stays with whoever signed in.

A session ends as one signs out, with its token (revoked, expired), or after `LONGEST` seconds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from sqlalchemy import Connection, text

from celeriac.operate import tokens
from celeriac.operate.tokens import Bearer

#: Seconds.
LONGEST: Final = 12 * 3600

_FORM = re.compile(r"[\w-]{43}", re.ASCII)

BEGIN = text("""
WITH over AS (DELETE FROM celeriac.dashboard_sessions WHERE expires_at <= statement_timestamp())
INSERT INTO celeriac.dashboard_sessions (hash, token, expires_at)
VALUES (:hash, :token, statement_timestamp() + CAST(:seconds AS double precision) * interval '1 second')
""")

END = text("DELETE FROM celeriac.dashboard_sessions WHERE hash = :hash")

# Of a session that is over and of one that never was there is no row, and neither costs more.
FIND = text("""
SELECT t.id, t.name, t.hash, t.scopes, t.roles, t.accounts, t.keys, t.priorities,
    t.last_used_at IS NULL OR t.last_used_at < statement_timestamp() - interval '1 minute' AS rested
FROM celeriac.dashboard_sessions s JOIN celeriac.api_tokens t ON t.id = s.token
WHERE s.hash = :hash AND s.expires_at > statement_timestamp() AND t.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > statement_timestamp())
""")


def begin(connection: Connection, bearer: Bearer) -> str:
    """The id of a new session, which nobody can read again. Deletes those that are over."""
    session = secrets.token_urlsafe(32)
    connection.execute(BEGIN, {"hash": _hash(session), "token": bearer.id, "seconds": LONGEST})
    return session


def end(connection: Connection, session: str) -> None:
    connection.execute(END, {"hash": _hash(session)})


def has_form(presented: str) -> bool:
    """Whether it could be a session's id: what could not needs no look at Postgres."""
    return _FORM.fullmatch(presented) is not None


def verify(connection: Connection, presented: str) -> Bearer | None:
    """Whose session that is, if it is one and has not ended. Notes the token's use, at most once a minute."""
    row = connection.execute(FIND, {"hash": _hash(presented)}).one_or_none()
    return None if row is None else tokens.bearer_of(connection, row)


def _hash(session: str) -> bytes:
    return hashlib.sha256(session.encode(errors="replace")).digest()
