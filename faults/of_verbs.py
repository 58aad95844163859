"""The answer of each verb lost: what the load does by itself, and what an operator does beside it."""

from __future__ import annotations

import json

from faults.ledger import ACCEPTED
from faults.members import PATIENCE, Unmet, until
from faults.of_callers import celeriac
from faults.rounds import Fault
from faults.stack import Stack
from faults.verbs import VERBS

#: How often each is lost, and how often an operator tries a command whose answer was.
TIMES, TRIES = 2, 4

LATER = """
SELECT (celeriac.enqueue('quick', CAST(:arguments AS jsonb), scheduled_for => now() + interval '1 hour')).task_id
"""


def verbs_lost(stack: Stack) -> None:
    ((task,),) = stack.sql(LATER, arguments=json.dumps({"account": "operator"}))
    stack.pen.write(ACCEPTED, id=task, expects="completed")
    stack.spoil("postgres", "lose-verbs", times=TIMES)
    try:
        stack.kill(stack.fleet.of("worker-0")[0].children()[0])  # what it ran is released
        for command in (
            ("prioritise", "7", task), ("cancel", task), ("retry", task), ("pause", "role", "leaky"),
            ("resume", "role", "leaky"),
        ):  # fmt: skip
            _insist(stack, *command)
        lost: dict[str, int] = {}

        def all_lost() -> bool:
            lost.update(stack.spoil("postgres", "told"))
            return not VERBS.keys() - lost.keys()

        if not until(all_lost, PATIENCE / 2):
            raise Unmet(f"no answer was lost of {', '.join(sorted(VERBS.keys() - lost.keys()))}")
    finally:
        stack.spoil("postgres", "pass")


def _insist(stack: Stack, *command: str) -> None:
    """As an operator does who got no answer. One that was done already says so, and fails."""
    for _ in range(TRIES):
        if celeriac(stack, *command, check=False) == 0:
            return


FAULTS = [Fault("verbs-lost", "the first two answers of each verb are lost, an operator's among them", verbs_lost)]
