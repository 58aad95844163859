"""Silences: alerts that are not sent until an instant. They are still checked and shown."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.errors import BadValue, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.roles.bounds import LONGEST_DELAY, TEXT

SILENCE = text("""
INSERT INTO celeriac.alert_silences AS s (name, subject, until, by, why)
SELECT :name, :subject, until, :by, :why
FROM (
    SELECT coalesce(CAST(:until AS timestamptz), clock_timestamp() + :seconds * interval '1 second') AS until
) AS wanted
WHERE until > clock_timestamp()
ON CONFLICT (name, subject) DO UPDATE SET until = excluded.until, by = excluded.by, why = excluded.why
RETURNING until
""")

SILENCED = text("""
SELECT until FROM celeriac.alert_silences
WHERE name = :name AND subject = :subject AND until > clock_timestamp() FOR UPDATE
""")

END = text("DELETE FROM celeriac.alert_silences WHERE name = :name AND subject = :subject")


def silence(
    connection: Connection, name: str, subject: str = "", *, by: str, why: str = "", until: datetime | None = None,
    seconds: float | None = None,
) -> Change:  # fmt: skip
    """Silence an alert until then, or for so many seconds. An empty subject means every subject. Raises BadValue."""
    if (until is None) == (seconds is None):
        raise BadValue("give either until or seconds; nothing was changed")
    if seconds is not None and not 0 < seconds <= LONGEST_DELAY:
        raise BadValue(f"seconds={seconds:g}: give a number above 0, at most 100 years; nothing was changed")
    for field, value in (("name", name), ("subject", subject)):
        if not TEXT.fits(value):
            raise BadValue(f"{field}={value!r:.100}: give {TEXT.right}; nothing was changed")
    which = {"name": name, "subject": subject}
    before = connection.execute(SILENCED, which).scalar_one_or_none()
    asked = {"by": by, "why": why or None, "until": until, "seconds": seconds}
    after = connection.execute(SILENCE, which | asked).scalar_one_or_none()
    if after is None:
        raise BadValue(f"until={until}: give an instant that is still to come; nothing was changed")
    change = Change(_target(name, subject), _as_value(before), _as_value(after))
    audit.write(connection, "silence", "alert", [change], by=by, why=why)
    return change


def end_silence(connection: Connection, name: str, subject: str = "", *, by: str, why: str = "") -> Change:
    """End a silence, so that the alert is sent again. Raises Unknown."""
    which = {"name": name, "subject": subject}
    before = connection.execute(SILENCED, which).scalar_one_or_none()
    if before is None:
        raise Unknown(f"{_target(name, subject)} is not silenced")
    connection.execute(END, which)
    change = Change(_target(name, subject), _as_value(before), None)
    audit.write(connection, "end silence", "alert", [change], by=by, why=why)
    return change


def _target(name: str, subject: str) -> str:
    return f"{name} {subject}".strip()


def _as_value(until: datetime | None) -> dict[str, str] | None:
    return None if until is None else {"until": until.isoformat()}
