"""The judgement: what is wrong now, the worst first, with its damage and its cure, for every surface.

`celeriac doctor`, `celeriac status`, the overview and `/api/doctor` show it as it is now. It becomes an alert once it
has lasted for as long as its rule requires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from celeriac.alerts.measure import measure, unseen
from celeriac.alerts.rules import RULES, Above, Rule, evaluate, measure_of
from celeriac.insights.history.alerts import damage
from celeriac.store.patience import lock_timeout

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Seconds that a statement waits for a lock, which is then reported with whatever else can be read.
PATIENCE = 0.3


@dataclass(frozen=True, slots=True)
class Judgement:
    """`wrong`: the worst first. `judged`: the rules whose measures were read. `unread`: the others.

    `unseen`: of the judged, those that do not fire by what this login may see of others' sessions. The statement
    `grants` lets it see all.
    """

    wrong: list[Above]
    judged: list[str]
    unread: list[str]
    unseen: list[str] = field(default_factory=list)
    grants: str = ""


def matters(one: Above) -> bool:
    """Return whether the problem is more than a note: a worker that is gone and held nothing costs no task."""
    return one.name != "dead_worker" or one.tasks > 0


def judge(
    connection: Connection, app: Celeriac, rules: Iterable[Rule] = RULES, *, ends: float | None = None
) -> Judgement:
    """Judge in the caller's transaction, at a cost that depends neither on the backlog nor on the history.

    `ends`: what is not read by then (`time.monotonic()`) is left unread.
    """
    rules = list(rules)
    connection.exec_driver_sql(lock_timeout(PATIENCE))
    blind, grants = unseen(connection)
    measured = measure(app, connection, rules, ends)
    judged = [rule for rule in rules if measure_of(rule) in measured]
    above = evaluate(judged, (one for some in measured.values() for one in some), app.settings)
    fired = {one.name for one in above}
    return Judgement(
        wrong=sorted(above, key=lambda one: (not matters(one), damage(one.name, one.severity), -one.tasks)),
        judged=[rule.name for rule in judged],
        unread=[rule.name for rule in rules if measure_of(rule) not in measured],
        unseen=[rule.name for rule in judged if measure_of(rule) in blind and rule.name not in fired],
        grants=grants,
    )
