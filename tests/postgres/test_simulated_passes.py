"""The simulator's passes choose what the real ones do, of any backlog, pass after pass."""

from __future__ import annotations

import random

import pytest

from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import split
from celeriac.dispatch.window import may_claim
from celeriac.simulate.backlog import Backlog, SimulatedPolicy, SimulatedTask
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.passes import policy, role
from tests.postgres.stages import enqueued
from tests.processes import Rows

DUE = "2020-01-{:02}T00:00:00Z"


@pytest.mark.parametrize("seed", range(4))
def test_a_simulated_pass_claims_what_a_real_one_does(
    database: Database, dispatcher: Dispatcher, rows: Rows, seed: int
) -> None:
    dice = random.Random(seed)
    names = sorted(["", *(f"account{n:03}" for n in range(dice.choice([2, 12, 60])))][dice.randint(0, 1) :])
    policies = {
        n: SimulatedPolicy(dice.choice([0.5, 1.0, 3.0]), dice.choice([None, 2, 9])) for n in range(0, len(names), 3)
    }
    for account, (weight, cap) in policies.items():
        policy(rows, names[account], weight=weight, cap=cap)
    work = role(batch_size=dice.choice([3, 20, 90]), window=dice.choice([10, 100]), chunk=dice.choice([1, 4]))
    simulated = Backlog(names, policies)
    active: dict[int, SimulatedTask] = {}
    for _ in range(8):
        comes = [
            SimulatedTask(-dice.choice([0, 0, 5]), dice.randint(1, 28), 0, dice.randrange(len(names)), 1.0)
            for _ in range(dice.randint(0, 120))
        ]
        made = [new_task(account=names[t.account], priority=-t.rank, at=DUE.format(int(t.due))) for t in comes]
        for task, receipt in zip(comes, enqueued(database, *made) if made else (), strict=True):
            simulated.add(task._replace(id=receipt.id))
        real = [list(ticket.ids) for ticket in dispatcher.run_pass(work).tickets]
        taken = simulated.run_pass(may_claim(work, simulated.active, 0, None))
        assert [[task.id for task in ticket] for ticket in split(taken, int(work.chunk))] == real
        assert [(simulated.cursor,)] == (rows("SELECT cursor FROM celeriac.batchers") or [("",)])
        active |= {task.id: task for task in taken}
        over = [task for task in active if dice.random() < 0.4]
        rows("UPDATE worker_tasks SET status = 'completed', completed_at = now() WHERE id = ANY(:ids)", ids=over)
        for task_id in over:
            simulated.settle(active.pop(task_id))
