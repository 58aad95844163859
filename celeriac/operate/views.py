"""Saved views: named filters of the list of tasks, for one owner or shared by all.

Only shared views are audited: an owner's own views change nothing for others, and every viewer may save some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from celeriac.errors import BadValue, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.roles.bounds import NAME

#: The owner of shared views; no token has this name.
ALL: Final = ""

#: Most views of one owner.
MOST = 100

# INVARIANT: two saves at the same time exceed the bound by at most one.
SAVE = text("""
INSERT INTO celeriac.saved_views (owner, name, filter)
SELECT :owner, :name, CAST(:filter AS json)
WHERE EXISTS (SELECT FROM celeriac.saved_views WHERE owner = :owner AND name = :name)
    OR (SELECT count(*) FROM celeriac.saved_views WHERE owner = :owner) < :most
ON CONFLICT (owner, name) DO UPDATE SET filter = excluded.filter, saved_at = clock_timestamp()
RETURNING true
""")

FORGET = text("DELETE FROM celeriac.saved_views WHERE owner = :owner AND name = :name RETURNING filter")


def save(connection: Connection, owner: str, name: str, conditions: Mapping[str, str], *, by: str) -> None:
    """Save a view, replacing the owner's view of that name. Raises BadValue."""
    if not NAME.fits(name):
        raise BadValue(f"name={name!r:.100}: give {NAME.right}")
    if not conditions:
        raise BadValue("filter: give at least one condition")
    parameters = {"owner": owner, "name": name, "filter": json.dumps(dict(conditions)), "most": MOST}
    if connection.execute(SAVE, parameters).scalar_one_or_none() is None:
        raise BadValue(f"name={name!r}: there are {MOST} views already: forget one first")
    if owner == ALL:
        audit.write(connection, "save", "view", [Change(name, None, dict(conditions))], by=by)


def forget(connection: Connection, owner: str, name: str, *, by: str) -> None:
    """Delete a view. Raises Unknown."""
    was = connection.execute(FORGET, {"owner": owner, "name": name}).scalar_one_or_none()
    if was is None:
        raise Unknown(f"there is no view {name!r}")
    if owner == ALL:
        audit.write(connection, "forget", "view", [Change(name, was, None)], by=by)
