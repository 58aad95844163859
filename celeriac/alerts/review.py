"""A check of all rules: beat's sweep runs it, and other processes if no beat does.

Beat's own silence is among the rules, so workers and API servers check too, once the last check is too long ago.
"""

from __future__ import annotations

import importlib
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import text

from celeriac import logged
from celeriac.alerts import deliver, record
from celeriac.alerts.judgement import judge
from celeriac.alerts.measure import EARLY, PATIENCE_MS
from celeriac.alerts.rules import NAMES, OF_THE_SCHEMA, RULES, SEVERITIES, Above, Rule, measure_of
from celeriac.errors import ConfigurationError
from celeriac.roles import bounds
from celeriac.settings import Settings
from celeriac.store.failures import Away, is_gone, log_error

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: The rule for the names of an application's rules.
NAME = bounds.name(100)

#: Maximum seconds of a whole check. Rules that it could not read by then are left to the next one.
WHOLE = 45.0

#: The longest time (seconds) that a rule may require its measure to last.
LONGEST = 366 * 86_400

#: After how many intervals a check is late.
LATE = 2

# INVARIANT: the process that writes the row runs the check. The row is read first, because a conflict locks it even if
# nothing is changed. A beat that ticks in time, and checked at its last instant, keeps the check; if an operator
# switched it off, it stays off.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT :name, clock_timestamp()
WHERE NOT EXISTS (
        SELECT FROM celeriac.repairs WHERE name = :name AND at > clock_timestamp() - :late * interval '1 second')
    AND NOT EXISTS (
        SELECT FROM celeriac.scheduled_jobs s WHERE s.kind = 'sweep' AND s.target = 'alerts' AND (NOT s.enabled OR (
            s.next_run_at >= statement_timestamp() - :late * interval '1 second'
            AND (SELECT at FROM celeriac.repairs WHERE name = :name) >= s.last_run_at)))
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE repairs.at <= excluded.at - :late * interval '1 second'
RETURNING true
""")

LOOKED = text("""
INSERT INTO celeriac.repairs (name, at) SELECT name, clock_timestamp() FROM unnest(CAST(:names AS text[])) AS name
ORDER BY name ON CONFLICT (name) DO UPDATE SET at = excluded.at
""")

ENDED = text("""
UPDATE celeriac.repairs SET ended_at = clock_timestamp(), unread = CAST(:unread AS text[]) WHERE name = :name
""")


def rules_of(app: Celeriac) -> dict[str, Sequence[Rule]]:
    """Return the rules by check: the engine's, and the application's own, which other applications do not know.

    Raises ConfigurationError.
    """
    engine: dict[str, Sequence[Rule]] = {"alerts": RULES}
    return engine | {name: added(app.alerts, app.settings) for name in looks_of(app.main, app.alerts)[1:]}


def looks_of(main: str | None, alerts: str | None) -> list[str]:
    """Return the names in `repairs` of the checks that have to run."""
    return ["alerts", *([f"alerts of {main}"] if alerts else [])]


def rules_there_are(app: Celeriac) -> dict[str, Sequence[Rule]]:
    """Return the rules; if the application's own cannot be loaded, log it and return the engine's."""
    try:
        return rules_of(app)
    except Exception:
        logger.exception("The alerts of the application are left out: alerts=%r", app.alerts)
        return {"alerts": RULES}


def added(alerts: str | None, settings: Settings) -> list[Rule]:
    """Return the application's own rules. Raises ConfigurationError."""
    if alerts is None:
        return []
    module, _, attribute = alerts.partition(":")
    rules = getattr(importlib.import_module(module), attribute or "rules", None)
    if rules is None or not all(isinstance(rule, Rule) and callable(rule.measure) for rule in rules):
        raise ConfigurationError(f"alerts={alerts!r}: give 'module:name' of a list of Rule(measure=a function)")
    for rule in rules:
        if problem := _problem(settings, rule):
            raise ConfigurationError(f"alerts={alerts!r}: the rule {rule.name!r} {problem}")
    if len({rule.name for rule in rules}) < len(rules):
        raise ConfigurationError(f"alerts={alerts!r}: two rules have the same name")
    if taken := NAMES & {rule.name for rule in rules}:
        raise ConfigurationError(f"alerts={alerts!r}: the engine has a rule {min(taken)!r}; give it another name")
    return list(rules)


def _problem(settings: Settings, rule: Rule) -> str | None:
    """Return the part of the rule that Postgres would refuse, and all other alerts with it; None if there is none."""
    if not NAME.fits(rule.name):
        return f"wants a name of {NAME.right}"
    if rule.severity not in SEVERITIES:
        return f"has the severity {rule.severity!r}: {' or '.join(SEVERITIES)}"
    if not 0 <= rule.lasts <= LONGEST:
        return f"lasts {rule.lasts} s: 0 to {LONGEST}"
    try:
        return None if math.isfinite(rule.limit(settings)) else "has a threshold that is not finite"
    except (AttributeError, TypeError, ValueError):
        return f"has the threshold {rule.threshold!r}: give a number, or a setting's name"


def review(app: Celeriac) -> int:
    """Run the check: values above their threshold fire, are logged, and are sent once at the beginning and the end."""
    rules = rules_there_are(app)
    with record.unflushed(app.database) as connection:
        connection.execute(LOOKED, {"names": list(rules)})
    return look(app, rules)


def review_if_late(app: Celeriac) -> int:
    """Run the check if the last one is too long ago. If several processes try, one of them runs it."""
    late = LATE * app.settings.sweep_interval
    with record.unflushed(app.database) as connection:
        due = {
            name: some
            for name, some in rules_there_are(app).items()
            if connection.execute(TAKE, {"name": name, "late": late}).scalar_one_or_none()
        }
    return look(app, due) if due else 0


def look(app: Celeriac, by_turn: Mapping[str, Sequence[Rule]]) -> int:
    """Check these rules; return how many alerts began or ended.

    What is quick to read is written and sent before the rest is read: where Postgres is slow, that is what is wrong.
    """
    rules = [rule for some in by_turn.values() for rule in some]
    ends = time.monotonic() + WHOLE
    unread: set[str] = set()
    changed, looked = 0, False
    for some in _in_parts(rules):
        done = _look_at(app, some, ends)
        if done is None and not looked:
            return 0  # another process checks
        looked = True
        if done is None:  # another one has begun since: these are its
            unread |= {rule.name for rule in some}
            continue
        changed += done[0]
        unread |= {*done[1]}
    with record.unflushed(app.database) as connection:
        for name, of_turn in by_turn.items():
            names = [rule.name for rule in of_turn if rule.name in unread]
            connection.execute(ENDED, {"name": name, "unread": names})
    return changed


def _in_parts(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return the rules that are quick to check, and the others, with those by which the others can be read at all."""
    early = [rule for rule in rules if measure_of(rule) in EARLY]
    late = [rule for rule in rules if measure_of(rule) not in EARLY]
    return [some for some in (early, [*(rule for rule in early if rule.name in OF_THE_SCHEMA), *late]) if some]


def _look_at(app: Celeriac, rules: Sequence[Rule], ends: float) -> tuple[int, list[str]] | None:
    """Check these rules; return how many alerts began or ended, and the unread rules. None: another process checks."""
    channels = deliver.channels(app.settings)
    with record.unflushed(app.database) as connection:
        if not connection.execute(record.LOCK).scalar_one():
            return None
        judgement = judge(connection, app, rules, ends=ends)
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{PATIENCE_MS} ms'")
        began, ended = record.write(connection, judgement.judged, judgement.wrong, channels, app.process_name)
    _log(began, ended)
    if channels:
        deliver.start(app.database, app.settings)
    return len(began) + len(ended), judgement.unread


def _log(began: Sequence[Above], ended: Sequence[record.EndedAlert]) -> None:
    for alert in began:
        logger.warning("Alert %s", alert, extra=logged.of("alert.began", **asdict(alert)))
    for one in ended:
        extra = logged.of("alert.ended", **asdict(one))
        logger.info("Alert %s: %s: over after %.0f s", one.name, one.subject, one.seconds, extra=extra)


class AlertWatch(threading.Thread):
    """The thread that checks if nobody else does, until `ending`."""

    def __init__(self, app: Celeriac, ending: threading.Event) -> None:
        super().__init__(name="celeriac-alerts", daemon=True)
        self.app = app
        self.ending = ending
        self.away = Away()

    def run(self) -> None:
        while not self.ending.wait(self.app.settings.sweep_interval):
            self.look()

    def look(self) -> None:
        try:
            review_if_late(self.app)
        except Exception as error:
            if is_gone(error):
                self.away.say(error)
            else:
                log_error(logger, error, "Alerts could not be checked; they are checked again")
