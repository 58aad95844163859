"""Glance: check in one statement whether there is anything to do, for all roles of a worker and for all workers
together.

It locks nothing and writes nothing. The work itself is done by other statements, which check again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.roles.limits import AS_OF
from celeriac.store.encoding import texts
from celeriac.store.prepared import Prepared

#: Up to this many dead entries in the ring's current segment do not matter.
MANY_DEAD = 5_000

# Each LIMIT has its index's ORDER BY. If a pass left resume points, `ready` begins with dead entries and is not read.
# In each period one worker reads `looks` for all (`look.TAKE`); if there are keys to check, the next one to glance
# does.
GLANCE = text(f"""
SELECT
    ARRAY(
        SELECT r.role FROM unnest(CAST(:roles AS text[])) AS r (role)
        WHERE coalesce(
            (SELECT true FROM celeriac.batcher(r.role) AS b
                WHERE b.points IS NOT NULL AND b.rescan_at > statement_timestamp()),
            (SELECT true FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT 1),
            (SELECT true FROM celeriac.later
                WHERE role = r.role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1),
            false)),
    pg_relation_size('celeriac.looks') + pg_relation_size('celeriac.joins') > 0 AND NOT EXISTS (
        SELECT FROM celeriac.repairs
        WHERE name = 'looks' AND at > clock_timestamp() - CAST(:turn AS double precision) * interval '1 second'),
    EXISTS (SELECT FROM celeriac.unparking u WHERE (
        SELECT p.paused OR p.cap = 0 FROM celeriac.account_policies p WHERE p.account = u.account LIMIT 1) IS NOT TRUE),
    EXISTS (SELECT FROM celeriac.intake),
    (SELECT pg_stat_get_dead_tuples(to_regclass('celeriac.ready_' || ring.seg)) > {MANY_DEAD} OR EXISTS (
        SELECT FROM generate_series(0, 2) AS n
        WHERE n <> ring.seg AND pg_relation_size(to_regclass('celeriac.ready_' || n)) > 0) FROM celeriac.ring),
    ({AS_OF.text})
""")

_GLANCE = Prepared(GLANCE, {"roles": "text[]", "turn": "double precision"})


@dataclass(frozen=True, slots=True)
class Glance:
    """The result of a glance. `roles`: those with ready or due tasks. `limits`: a number that changes with every change
    of a limit.
    """

    roles: set[str]
    has_looks: bool
    has_resumed: bool
    has_outbox: bool
    ring_is_worn: bool
    limits: int


def glance(connection: Connection, roles: Iterable[str], turn: float) -> Glance:
    """Check for work in these lanes. `turn`: for so many seconds the worker that last checked keys and barriers does it
    for all.
    """
    with_work, *more = _GLANCE.on(connection, {"roles": texts(roles), "turn": turn}).one()
    return Glance(set(with_work), *more)
