"""Policies that operators set for a role or an account. The next pass applies them; claimed tasks still run."""

from __future__ import annotations

import logging
from typing import TypedDict, Unpack

from sqlalchemy import Connection, text

from celeriac import logged
from celeriac.errors import BadValue, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.roles import bounds
from celeriac.roles.limits import AS_DECLARED
from celeriac.roles.rates import rate
from celeriac.roles.rules import RULES
from celeriac.store.plans import lookups
from celeriac.store.role_names import parts_of_lane

logger = logging.getLogger(__name__)

_NO_ROLE = "no role {role!r}: start a worker of the code that declares it, or check the spelling"

# A role, its former names and the lanes of all of these count as one: the same handler runs their tasks. A lane that is
# named counts alone.
ROLE = text("""
SELECT r.role, r.paused FROM celeriac.roles r
JOIN (
    SELECT coalesce(definition ->> 'successor', role) AS today, definition ? 'lane_of' AS is_lane
    FROM celeriac.roles WHERE role = :role
) AS named ON r.role = :role
    OR NOT named.is_lane AND named.today IN (r.role, r.definition ->> 'successor', r.definition ->> 'lane_of')
ORDER BY r.role FOR UPDATE OF r
""")

# A role's pause holds each of its lanes, whatever the lane's own row says.
WHOLE = text("""
SELECT whole.role, whole.paused FROM celeriac.roles r
JOIN celeriac.roles whole ON whole.role = r.definition ->> 'lane_of'
WHERE r.role = :role FOR SHARE OF whole
""")

PAUSE = text("""
UPDATE celeriac.roles SET paused = :paused, updated_at = clock_timestamp(),
    paused_until = statement_timestamp() + CAST(:seconds AS double precision) * interval '1 second'
WHERE role = ANY (CAST(:roles AS text[])) RETURNING paused_until
""")

# Creates the row, so that there is one to lock.
DECLARED = text(f"{AS_DECLARED} WHERE r.role = :role ON CONFLICT DO NOTHING")

LIMITS = text("""
SELECT rate_limit,
    CASE WHEN is_told THEN timeout ELSE CAST(declared ->> 'timeout' AS double precision) END AS timeout,
    CASE WHEN is_told THEN hard_timeout ELSE CAST(declared ->> 'hard_timeout' AS double precision) END AS hard_timeout
FROM celeriac.role_limits WHERE role = :role FOR UPDATE
""")

# A new rate begins with the tokens left of the one before.
SET_RATE = text("""
UPDATE celeriac.role_limits l
SET rate_limit = CAST(:rate_limit AS text), taken_at = clock_timestamp(),
    tokens = least(celeriac.tokens(l), celeriac.burst(CAST(:rate_limit AS text))), updated_at = clock_timestamp()
WHERE role = :role
""")

SET_TIMEOUTS = text("""
UPDATE celeriac.role_limits
SET is_told = true, timeout = :timeout, hard_timeout = :hard_timeout, updated_at = clock_timestamp() WHERE role = :role
""")

# Only each role's last finished tasks are read. An account that is not among them has to be created explicitly.
KNOWN = text("""
SELECT EXISTS (SELECT FROM celeriac.account_policies WHERE account = :account)
    OR EXISTS (SELECT FROM celeriac.parked WHERE account = :account)
    OR EXISTS (SELECT FROM celeriac.tickets WHERE :account = ANY (accounts))
    OR EXISTS (
        SELECT FROM (SELECT account FROM celeriac.tasks ORDER BY id DESC LIMIT :most) AS t WHERE account = :account)
    OR EXISTS (SELECT FROM celeriac.roles r WHERE
        (SELECT true FROM celeriac.ready e WHERE e.role = r.role AND e.account = :account LIMIT 1)
        OR (SELECT true FROM celeriac.later e WHERE e.role = r.role AND e.account = :account LIMIT 1)
        OR (SELECT true FROM (
            SELECT h.account FROM celeriac.last_ended(r.role, CAST(:most AS integer)) AS h) AS h
            WHERE h.account = :account LIMIT 1))
""")

#: Maximum number of each role's last tasks that are read for their accounts.
LOOKS_AT = 1_000

# Creates the row, so that there is one to lock.
ACCOUNT = text("INSERT INTO celeriac.account_policies (account) VALUES (:account) ON CONFLICT DO NOTHING")

POLICY = text("SELECT weight, cap, paused FROM celeriac.account_policies WHERE account = :account FOR UPDATE")

SET_POLICY = text("""
UPDATE celeriac.account_policies SET weight = :weight, cap = :cap, paused = :paused, updated_at = clock_timestamp()
WHERE account = :account
""")


# A rate begins with the tokens left of the one before.
RESET = text("""
UPDATE celeriac.role_limits l
SET rate_limit = declared ->> 'rate_limit', is_told = false, timeout = NULL, hard_timeout = NULL,
    tokens = least(celeriac.tokens(l), celeriac.burst(declared ->> 'rate_limit')), taken_at = clock_timestamp(),
    updated_at = clock_timestamp()
WHERE role = :role
""")


class AccountChanges(TypedDict, total=False):
    """Changes to an account. `weight`: its share; others have 1. `cap`: tasks claimed or running at once, or None."""

    weight: float
    cap: int | None
    paused: bool


class RoleLimits(TypedDict, total=False):
    """Limits of a role. `rate_limit`: "10/m", a number a second, None for none. Time limits: seconds, None for none."""

    rate_limit: str | float | None
    timeout: float | None
    hard_timeout: float | None


def pause_role(
    connection: Connection, role: str, *, by: str, why: str = "", seconds: float | None = None
) -> Change:  # fmt: skip
    """Pause the role with its former names and queues: no pass claims its tasks until resumed, or for so many seconds.

    A lane (`role,queue`) is paused alone; as long as its role is paused, that is refused. Raises Unknown and BadValue.
    """
    if seconds is not None and not 0 < seconds <= bounds.LONGEST_DELAY:
        raise BadValue(f"seconds={seconds!r:.50}: give more than 0, and at most {bounds.LONGEST_DELAY:,}")
    return _set_paused(connection, role, True, by=by, why=why, seconds=seconds)


def resume_role(connection: Connection, role: str, *, by: str, why: str = "") -> Change:
    """Resume what `pause_role` pauses. Raises Unknown; BadValue for a lane whose role is paused."""
    return _set_paused(connection, role, False, by=by, why=why)


def set_limits(connection: Connection, role: str, *, by: str, why: str = "", **changes: Unpack[RoleLimits]) -> Change:
    """Set limits until they are set again or the code declares others; those not given stay. Workers apply them within
    a second. Raises Unknown and BadValue.
    """
    if error_text := bounds.wrong(RULES, changes):
        raise BadValue(f"{error_text}; nothing was changed")
    _refuse_lane(role)
    connection.execute(DECLARED, {"role": role})
    row = connection.execute(LIMITS, {"role": role}).mappings().one_or_none()
    if row is None:
        raise Unknown(_NO_ROLE.format(role=role))
    before, after = dict(row), {**row, **changes}
    if "rate_limit" in changes:
        after["rate_limit"] = rate(changes["rate_limit"])
    change = Change(role, before, after)
    if before == after:  # each worker that receives a broadcast sets the same
        return change
    if "rate_limit" in changes:
        connection.execute(SET_RATE, {"role": role, "rate_limit": after["rate_limit"]})
    if changes.keys() - {"rate_limit"}:
        connection.execute(SET_TIMEOUTS, {"role": role, **after})
    audit.write(connection, "limits", "role", [change], by=by, why=why)
    return change


def reset_limits(connection: Connection, role: str, *, by: str, why: str = "") -> Change:
    """Restore the limits that the code declares. Raises Unknown, BadValue."""
    _refuse_lane(role)
    connection.execute(DECLARED, {"role": role})
    before = connection.execute(LIMITS, {"role": role}).mappings().one_or_none()
    if before is None:
        raise Unknown(_NO_ROLE.format(role=role))
    connection.execute(RESET, {"role": role})
    change = Change(role, dict(before), dict(connection.execute(LIMITS, {"role": role}).mappings().one()))
    audit.write(connection, "limits", "role", [change], by=by, why=why)
    return change


def _refuse_lane(role: str) -> None:
    name, queue = parts_of_lane(role)
    if queue is not None:
        raise BadValue(f"{role}: a role's limits are one for all its queues: give {name!r}; nothing was changed")


def limits_in_words(change: Change) -> str:
    after = change.after or {}
    limits = [f"{name}={after[name]}" for name in ("rate_limit", "timeout", "hard_timeout") if after[name] is not None]
    return f"{change.target}: {', '.join(limits) or 'no limits'}"


def set_account(
    connection: Connection, account: str, *, by: str, why: str = "", create: bool = True,
    **changes: Unpack[AccountChanges],
) -> Change:  # fmt: skip
    """Set an account's policy; values not given stay. Raises BadValue; Unknown without `create` for an unknown one."""
    if not bounds.is_text(account):
        raise BadValue(f"account={account!r:.100}: give {bounds.TEXT.right}")
    if error_text := bounds.wrong(bounds.ACCOUNT, changes):
        raise BadValue(f"{error_text}; nothing was changed")
    if not create and not is_known(connection, account):
        raise Unknown(f"account {account!r:.100} has no policy and had no task lately: check it, or say that it is new")
    connection.execute(ACCOUNT, {"account": account})
    before = dict(connection.execute(POLICY, {"account": account}).mappings().one())
    change = Change(account, before, before | changes)
    connection.execute(SET_POLICY, {"account": account, **before, **changes})
    audit.write(connection, "policy", "account", [change], by=by, why=why)
    return change


def is_known(connection: Connection, account: str) -> bool:
    """Return whether the account has a policy or an unfinished task, or had a task lately."""
    with lookups(connection):
        return bool(connection.execute(KNOWN, {"account": account, "most": LOOKS_AT}).scalar_one())


def pause_account(connection: Connection, account: str, *, by: str, why: str = "", create: bool = True) -> Change:
    """Pause the account: none of its tasks is claimed until it is resumed."""
    return set_account(connection, account, by=by, why=why, create=create, paused=True)


def resume_account(connection: Connection, account: str, *, by: str, why: str = "", create: bool = True) -> Change:
    return set_account(connection, account, by=by, why=why, create=create, paused=False)


def _set_paused(
    connection: Connection, role: str, paused: bool, *, by: str, why: str, seconds: float | None = None
) -> Change:  # fmt: skip
    whole = connection.execute(WHOLE, {"role": role}).one_or_none()
    if whole and whole.paused:
        raise BadValue(f"{role}: {whole.role!r} is paused with all its queues: resume that; nothing was changed")
    before = {row.role: row.paused for row in connection.execute(ROLE, {"role": role})}
    if role not in before:
        raise Unknown(_NO_ROLE.format(role=role))
    until = connection.execute(PAUSE, {"roles": list(before), "paused": paused, "seconds": seconds}).scalars().all()[0]
    after = {"paused": paused} | ({"until": until.isoformat()} if until else {})
    changes = {name: Change(name, {"paused": was}, after) for name, was in before.items()}
    audit.write(connection, "pause" if paused else "resume", "role", [*changes.values()], by=by, why=why)
    change = changes[role]
    event, message = f"role.{'paused' if paused else 'resumed'}", f"Role {role} is {'paused' if paused else 'resumed'}"
    logged.after_commit(connection, logger, logging.INFO, message, event=event, role=role, by=by, why=why or None)
    return change
