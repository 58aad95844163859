"""Marks: notes by people on a kind of failure. A group without one is open."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.roles.bounds import LONGEST_KEY

State = Literal["open", "known", "resolved"]

STATES: Final = ("open", "known", "resolved")

MARKED = text("SELECT state, note FROM celeriac.failure_marks WHERE fingerprint = :fingerprint FOR UPDATE")

MARK = text("""
INSERT INTO celeriac.failure_marks (fingerprint, state, note, by, at)
VALUES (:fingerprint, :state, nullif(:note, ''), :by, clock_timestamp())
ON CONFLICT (fingerprint) DO UPDATE
SET state = excluded.state, note = excluded.note, by = excluded.by, at = excluded.at
""")

UNMARK = text("DELETE FROM celeriac.failure_marks WHERE fingerprint = :fingerprint")

#: The form of fingerprints, as `insights.fingerprints` makes them.
_FORM = re.compile("[0-9a-f]{12}")


def mark(connection: Connection, fingerprint: str, state: str, *, by: str, note: str = "") -> Change:
    """Mark a kind of failure. Known: somebody has seen it, and the note says what it is. Resolved: it opens by itself
    when it fails again. Open: the mark is removed. Raises BadValue.
    """
    if not _FORM.fullmatch(fingerprint):
        raise BadValue(f"fingerprint={fingerprint!r:.50}: give one that `celeriac failures list` lists")
    if state not in STATES:
        raise BadValue(f"state={state!r:.50}: give one of {', '.join(STATES)}")
    if len(note.encode(errors="replace")) > LONGEST_KEY or "\x00" in note:
        raise BadValue(f"note={note!r:.50}: give at most {LONGEST_KEY} bytes without NUL")
    before = connection.execute(MARKED, {"fingerprint": fingerprint}).mappings().one_or_none()
    parameters = {"fingerprint": fingerprint, "state": state, "note": note, "by": by}
    if state == "open":
        connection.execute(UNMARK, {"fingerprint": fingerprint})
    else:
        connection.execute(MARK, parameters)
    change = Change(fingerprint, _as_value(before), _as_value(parameters))
    audit.write(connection, "mark", "failure", [change], by=by, why=note)
    return change


def _as_value(row: Any) -> dict[str, Any]:
    return {"state": row["state"], "note": row["note"] or None} if row is not None else {"state": "open", "note": None}
