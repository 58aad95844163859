"""Alerts: rules over the metrics. What fires is a row of `alerts` that says since when, and a line in the log.

Each rule compares one measured value of each role (or schedule, or of dead letters) with a threshold from the settings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, text

from celeriac.insights.metrics import MEASURE
from celeriac.settings import Settings

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires for a subject while its `measure` is above the setting `threshold`. `says` is a format of both."""

    name: str
    measure: str
    threshold: str
    says: str


RULES = (
    Rule("queue_depth", "queue_depth", "alert_queue_depth", "{value:.0f} tasks wait, more than {threshold:g}"),
    Rule("failed_rate", "failed_rate", "alert_failed_rate", "{value:.1%} of its tasks fail, more than {threshold:.1%}"),
    Rule("long_running", "longest_running", "alert_running", "a task runs for {value:.0f} s, over {threshold:g} s"),
    Rule("missed_schedule", "late", "alert_schedule_grace", "is {value:.0f} s late, more than {threshold:g} s"),
    Rule("dead_letters", "letters", "alert_dead_letters", "{value:.0f} messages are no task, more than {threshold:g}"),
)

RULE_OF = {rule.measure: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Measured:
    """A value of a role, a schedule, or plain Celery's messages."""

    measure: str
    subject: str
    value: float


@dataclass(frozen=True, slots=True)
class Firing:
    name: str
    subject: str
    value: float
    threshold: float

    def __str__(self) -> str:
        (says,) = (rule.says for rule in RULES if rule.name == self.name)
        return f"{self.name}: {self.subject}: {says.format(value=self.value, threshold=self.threshold)}"


LATE = text("""
SELECT name, CAST(extract(epoch FROM statement_timestamp() - next_run_at) AS double precision) AS late
FROM celeriac.scheduled_jobs WHERE enabled AND next_run_at < statement_timestamp()
""")

#: Dead letters are counted to here.
MOST_LETTERS = 1_000

LETTERS = text("SELECT count(*) FROM (SELECT id FROM celeriac.dead_letters ORDER BY id LIMIT :most) AS letters")

LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac alerts', 0))")

FIRE = text("""
INSERT INTO celeriac.alerts (name, subject, value, threshold)
SELECT name, subject, value, threshold FROM jsonb_to_recordset(CAST(:firing AS jsonb))
    AS f (name text, subject text, value double precision, threshold double precision)
ORDER BY name, subject
ON CONFLICT (name, subject) DO UPDATE
SET value = excluded.value, threshold = excluded.threshold, last_seen_at = excluded.last_seen_at
RETURNING name, subject, value, threshold, firing_since = last_seen_at AS is_new
""")

END = text("""
DELETE FROM celeriac.alerts a WHERE NOT EXISTS (
    SELECT FROM jsonb_to_recordset(CAST(:firing AS jsonb)) AS f (name text, subject text)
    WHERE f.name = a.name AND f.subject = a.subject)
RETURNING name, subject, extract(epoch FROM now() - firing_since) AS seconds
""")


def evaluate(measured: Iterable[Measured], settings: Settings) -> list[Firing]:
    """Which rules fire for whom."""
    judged = [(RULE_OF[m.measure], m) for m in measured]
    asked = [Firing(r.name, m.subject, m.value, getattr(settings, r.threshold)) for r, m in judged]
    return [firing for firing in asked if firing.value > firing.threshold]


def measure(connection: Connection) -> list[Measured]:
    roles = connection.execute(MEASURE, {"role": None}).mappings().all()
    values = [(row, name) for row in roles for name in RULE_OF.keys() & row.keys()]
    of_roles = [Measured(name, row["role"], row[name]) for row, name in values if row[name] is not None]
    late = [Measured("late", row.name, row.late) for row in connection.execute(LATE)]
    letters = connection.execute(LETTERS, {"most": MOST_LETTERS}).scalar_one()
    return [*of_roles, *late, Measured("letters", "plain Celery", letters)]


def review(app: Celeriac) -> int:
    """The sweep: writes what fires now, logs each that began or ended once; how many did."""
    with app.database.transaction() as connection:
        if not connection.execute(LOCK).scalar_one():
            return 0
        began, ended = _write(connection, evaluate(measure(connection), app.settings))
    for alert in began:
        logger.warning("Alert %s", alert)
    for row in ended:
        logger.info("Alert %s: %s: over after %.0f s", row.name, row.subject, row.seconds)
    return len(began) + len(ended)


def _write(connection: Connection, firing: Sequence[Firing]) -> tuple[list[Firing], Sequence[Row[Any]]]:
    given = {"firing": json.dumps([asdict(alert) for alert in firing])}
    ended = connection.execute(END, given).all()
    rows = connection.execute(FIRE, given).all()
    return [Firing(*row[:4]) for row in rows if row.is_new], ended
