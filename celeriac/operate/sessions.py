"""Sessions of the dashboard: the browser has a random id, Postgres its hash.

The token stays with the user. A code begins one session, once: `celeriac up` prints it as a link. Codes are kept with
the sessions, but hashed in another way, so that neither is taken for the other.

A session ends when its user signs out, with its token (revoked, expired), or after `LONGEST` seconds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from sqlalchemy import Connection, text

from celeriac.operate import tokens
from celeriac.operate.tokens import Bearer

#: The longest session (seconds).
LONGEST: Final = 12 * 3600

#: Seconds for which a code may be used.
CODE_LASTS: Final = 3600

_FORM = re.compile(r"[\w-]{43}", re.ASCII)

BEGIN = text("""
WITH over AS (DELETE FROM celeriac.dashboard_sessions WHERE expires_at <= statement_timestamp())
INSERT INTO celeriac.dashboard_sessions (hash, token, expires_at)
VALUES (:hash, :token, statement_timestamp() + CAST(:seconds AS double precision) * interval '1 second')
""")

END = text("DELETE FROM celeriac.dashboard_sessions WHERE hash = :hash")

# If two present the code at once, only one of them gets its row.
USE = text("""
DELETE FROM celeriac.dashboard_sessions WHERE hash = :hash AND expires_at > statement_timestamp() RETURNING token
""")

# A session that has ended has no row, like one that never existed, so checking either takes as long.
FIND = text("""
SELECT t.id, t.name, t.hash, t.scopes, t.roles, t.accounts, t.keys, t.priorities,
    t.last_used_at IS NULL OR t.last_used_at < statement_timestamp() - interval '1 minute' AS rested
FROM celeriac.dashboard_sessions s JOIN celeriac.api_tokens t ON t.id = s.token
WHERE s.hash = :hash AND s.expires_at > statement_timestamp() AND t.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > statement_timestamp())
""")


def begin(connection: Connection, token: str) -> str:
    """Begin a session of the token with this id. Return its own id, which is stored nowhere. Deletes ended sessions."""
    session = secrets.token_urlsafe(32)
    connection.execute(BEGIN, {"hash": _hash(session), "token": token, "seconds": LONGEST})
    return session


def make_code(connection: Connection, token: str) -> str:
    """Return a code that begins a session of the token with this id, once, within `CODE_LASTS`. It is not stored."""
    code = secrets.token_urlsafe(32)
    connection.execute(BEGIN, {"hash": _hash_of_code(code), "token": token, "seconds": CODE_LASTS})
    return code


def use_code(connection: Connection, code: str) -> str | None:
    """Return the id of the token whose session the code begins; None if it was used, has expired or never existed."""
    token: str | None = connection.execute(USE, {"hash": _hash_of_code(code)}).scalar_one_or_none()
    return token


def end(connection: Connection, session: str) -> None:
    connection.execute(END, {"hash": _hash(session)})


def has_form(presented: str) -> bool:
    """Return whether it has the form of a session's id; anything else is refused without a query."""
    return _FORM.fullmatch(presented) is not None


def verify(connection: Connection, presented: str) -> Bearer | None:
    """Return the bearer of the session's token, None if invalid or over. Records its use, at most once a minute."""
    row = connection.execute(FIND, {"hash": _hash(presented)}).one_or_none()
    return None if row is None else tokens.bearer_of(connection, row)


def _hash_of_code(code: str) -> bytes:
    return _hash(f"code {code}")


def _hash(session: str) -> bytes:
    return hashlib.sha256(session.encode(errors="replace")).digest()
