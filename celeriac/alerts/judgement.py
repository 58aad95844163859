"""The judgement: what is wrong now, the worst first, with its damage and its cure, for every surface.

`celeriac doctor`, `celeriac status`, the overview and `/api/doctor` show it as it is now. It becomes an alert once it
has lasted for as long as its rule requires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from celeriac.alerts.measure import measure
from celeriac.alerts.rules import RULES, Above, Rule, evaluate, measure_of
from celeriac.insights.history.alerts import damage

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: How long (milliseconds) a statement waits for a lock, so that a lock is reported at once, and everything else as far
#: as it can be read.
PATIENCE_MS = 300


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result. `wrong`: the problems, the worst first. `judged`: the rules whose measures were read; `unread`: the
    others.
    """

    wrong: list[Above]
    judged: list[str]
    unread: list[str]


def matters(one: Above) -> bool:
    """Return whether the problem is more than a note: a worker that is gone and held nothing costs no task."""
    return one.name != "dead_worker" or one.tasks > 0


def judge(connection: Connection, app: Celeriac, rules: Iterable[Rule] = RULES) -> Judgement:
    """Judge in the caller's transaction, at a cost that depends neither on the backlog nor on the history."""
    rules = list(rules)
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE_MS} ms'")
    measured = measure(app, connection, rules)
    judged = [rule for rule in rules if measure_of(rule) in measured]
    above = evaluate(judged, (one for some in measured.values() for one in some), app.settings)
    return Judgement(
        wrong=sorted(above, key=lambda one: (not matters(one), damage(one.name, one.severity), -one.tasks)),
        judged=[rule.name for rule in judged],
        unread=[rule.name for rule in rules if measure_of(rule) not in measured],
    )
