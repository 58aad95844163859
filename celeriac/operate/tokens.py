"""Tokens of the HTTP API: the secret is shown once, Postgres keeps its hash.

A token reads `celeriac_<id>_<secret>`. The id finds the row; the secret is compared in constant time. It has 256 random
bits, so it cannot be guessed, and a plain SHA-256 is as good as a slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError

from celeriac.errors import TokenLimited, TokenRefused
from celeriac.operate.allowed import ANYTHING, Allowed, Call
from celeriac.roles import bounds
from celeriac.roles.bounds import LONGEST_DELAY

logger = logging.getLogger(__name__)

VIEW: Final = "view"
READ: Final = "read"
SUBMIT: Final = "submit"
ENQUEUE: Final = "enqueue"
OPERATE: Final = "operate"
ADMIN: Final = "admin"

#: Not a scope of tokens: the right to see tasks' arguments, results and the text of errors.
CALLS: Final = "calls"

#: The rights of each scope. `view` sees what `read` sees, but no calls; `submit` sees nothing.
IMPLIED: Final = {
    VIEW: {READ},
    READ: {READ, CALLS},
    SUBMIT: {ENQUEUE},
    ENQUEUE: {READ, CALLS, ENQUEUE},
    OPERATE: {READ, CALLS, OPERATE},
    ADMIN: {READ, CALLS, ENQUEUE, OPERATE, ADMIN},
}

#: The rule for names; they are repeated in the audit trail.
NAME = bounds.name(100)

_PREFIX = "celeriac_"

_FORM = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}_[\w-]{{43}}", re.ASCII)

CREATE = text("""
INSERT INTO celeriac.api_tokens (id, name, hash, scopes, roles, accounts, keys, priorities, created_by, expires_at)
VALUES (:id, :name, :hash, CAST(:scopes AS text[]), CAST(:roles AS text[]), CAST(:accounts AS text[]),
    CAST(:keys AS text[]), CAST(:priorities AS integer[]), :by,
    statement_timestamp() + CAST(:seconds AS double precision) * interval '1 second')
ON CONFLICT (name) DO NOTHING
RETURNING id
""")

REVOKE = text("""
UPDATE celeriac.api_tokens SET revoked_at = statement_timestamp() WHERE name = :name AND revoked_at IS NULL RETURNING id
""")

LIST = text("""
SELECT id, name, scopes, roles, accounts, keys, priorities, created_by, created_at, expires_at, last_used_at,
    revoked_at, revoked_at IS NULL AND (expires_at IS NULL OR expires_at > statement_timestamp()) AS valid
FROM celeriac.api_tokens ORDER BY name
""")

# As the audit trail's trigger compares them.
IN_TRAIL = text("""
SELECT jsonb_strip_nulls(to_jsonb(t)) FROM (
    SELECT scopes, roles, accounts, keys, priorities, expires_at FROM celeriac.api_tokens WHERE name = :name) AS t
""")

# `valid` is a column, not a condition, so that an expired token costs the same as one that never existed.
FIND = text("""
SELECT id, name, hash, scopes, roles, accounts, keys, priorities,
    revoked_at IS NULL AND (expires_at IS NULL OR expires_at > statement_timestamp()) AS valid,
    last_used_at IS NULL OR last_used_at < statement_timestamp() - interval '1 minute' AS rested
FROM celeriac.api_tokens WHERE id = :id
""")

# Who only reads does not wait for a commit, which may be what they come to see.
USED = text("""
UPDATE celeriac.api_tokens SET last_used_at = statement_timestamp() WHERE id = ANY (ARRAY(
    SELECT id FROM celeriac.api_tokens WHERE id = :id FOR NO KEY UPDATE SKIP LOCKED))
    AND set_config('synchronous_commit', 'off', true) IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class Token:
    """A token's record, without its secret."""

    id: str
    name: str
    scopes: list[str]
    roles: list[str] | None
    accounts: list[str] | None
    keys: list[str] | None
    priorities: list[int] | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    valid: bool


@dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a valid token. `may`: its scopes, implied ones included. `key`: the token's hash, which is never
    shown; it turns Idempotency-Keys into task ids.
    """

    id: str
    name: str
    may: frozenset[str]
    allowed: Allowed = ANYTHING
    key: bytes = field(default=b"", repr=False)

    def id_of(self, key: str) -> str:
        """Return the task's id for an Idempotency-Key. Only the token's bearer can compute it, so nobody else can take
        it first.
        """
        return str(UUID(bytes=hmac.digest(self.key, key.encode(errors="replace"), "sha256")[:16], version=5))

    def refuse_role(self, role: str) -> None:
        """Raise TokenLimited if the token may not enqueue that role at all."""
        self._refuse(self.allowed.of_role(role))

    def refuse(self, call: Call, task_id: str | None = None) -> None:
        """Raise TokenLimited if the token may not enqueue that call. `task_id`: given if the caller chose it."""
        self._refuse(self.allowed.refusal(call, task_id))

    def refuse_if_limited(self) -> None:
        """Raise TokenLimited if the token may enqueue only some calls."""
        if limits := self.allowed.limits():
            self._refuse(f"is limited to certain {', '.join(limits)}, and this chooses its calls itself")

    def _refuse(self, why: str | None) -> None:
        if why:
            raise TokenLimited(f"the token {self.name!r} {why}")


def create(
    connection: Connection, name: str, scopes: Collection[str], *, by: str, seconds: float | None = None,
    allowed: Allowed = ANYTHING,
) -> str:  # fmt: skip
    """Create a token and return it; it is stored nowhere. `seconds`: its lifetime, None for ever. Raises TokenRefused.

    `allowed`: what it may enqueue; roles need not be registered yet.
    """
    _refuse_bad(name, scopes, seconds)
    _refuse_bad_limits(scopes, allowed)
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    row = {"id": token_id, "name": name, "hash": _hash(secret), "scopes": sorted(set(scopes)), "by": by}
    if connection.execute(CREATE, row | asdict(allowed) | {"seconds": seconds}).one_or_none() is None:
        raise TokenRefused(
            f"there is or was a token named {name!r}: choose another name, the audit trail keeps this one"
        )
    return f"{_PREFIX}{token_id}_{secret}"


def in_trail(connection: Connection, name: str) -> dict[str, Any]:
    """Return what the audit trail has to have of a new token: its scopes, what limits it, and when it expires."""
    return dict(connection.execute(IN_TRAIL, {"name": name}).scalar_one())


def id_of(token: str) -> str:
    """Return the id of the token's row, which is no secret."""
    return token.removeprefix(_PREFIX).partition("_")[0]


def revoke(connection: Connection, name: str) -> bool:
    """Revoke the token from now on. Return False if there is none, or it was revoked before."""
    return connection.execute(REVOKE, {"name": name}).one_or_none() is not None


def every(connection: Connection) -> list[Token]:
    """Return all tokens, past ones included, by name."""
    return [Token(*row) for row in connection.execute(LIST)]


def has_form(presented: str) -> bool:
    """Return whether it has the form of a token; anything else is refused without a query."""
    return _FORM.fullmatch(presented) is not None


def verify(connection: Connection, presented: str) -> Bearer | None:
    """Return the token's bearer, None if there is no such token, or it was revoked or has expired."""
    token_id, _, secret = presented.removeprefix(_PREFIX).partition("_")
    row = connection.execute(FIND, {"id": token_id}).one_or_none() if token_id.isalnum() else None
    known = bytes(row.hash) if row else bytes(32)
    if not hmac.compare_digest(known, _hash(secret)) or row is None or not row.valid:
        return None
    return bearer_of(connection, row)


def bearer_of(connection: Connection, row: Row[Any]) -> Bearer:
    """Build the bearer from the row of a valid token. Records the use, at most once a minute, if Postgres takes it; who
    comes because it takes no writes is let in. Execute nothing after it in this transaction.
    """
    if row.rested:
        try:
            connection.execute(USED, {"id": row.id})
        except DBAPIError as error:
            if connection.invalidated:
                raise
            logger.warning("The use of the token %s could not be recorded: %s", row.name, error.orig)
    may = frozenset().union(*(IMPLIED[scope] for scope in row.scopes))
    allowed = Allowed(row.roles, row.accounts, row.keys, row.priorities)
    return Bearer(row.id, row.name, may, allowed, bytes(row.hash))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def _refuse_bad(name: str, scopes: Collection[str], seconds: float | None) -> None:
    if not NAME.fits(name):
        raise TokenRefused(f"name={name!r:.120}: give {NAME.right}")
    if not scopes or not set(scopes) <= set(IMPLIED):
        raise TokenRefused(f"scopes={sorted(scopes)}: give one or more of {', '.join(IMPLIED)}")
    if seconds is not None and not 0 < seconds <= LONGEST_DELAY:
        raise TokenRefused(f"seconds={seconds:g}: give how long it lasts, above 0 and at most 100 years")


def _refuse_bad_limits(scopes: Collection[str], allowed: Allowed) -> None:
    if wrong := allowed.wrong():
        raise TokenRefused(wrong)
    if (limits := allowed.limits()) and not any(ENQUEUE in IMPLIED[scope] for scope in scopes):
        said = ", ".join(f"{name}={value!r:.120}" for name, value in limits.items())
        raise TokenRefused(f"{said}: they limit what a token enqueues, and this one lacks the scope {ENQUEUE}")
