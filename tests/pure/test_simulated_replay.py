"""A replay of what the simulator itself did comes out the same, whatever fleet it was; what differs is told."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from celeriac.cli import main
from celeriac.insights.history.ran import Before, LastRun
from celeriac.roles.role import Role
from celeriac.simulate.backlog import Backlog, SimulatedTask
from celeriac.simulate.fleet import Fleet
from celeriac.simulate.line import SimulatedRole, TicketPace
from celeriac.simulate.replay import Replay, together

ROLE = Role(name="work", chunk=1, window=6)
NAMES = ["a", "b", "c"]


def ran(workers: int, pace: TicketPace, role: Role = ROLE, n: int = 300, keys: bool = False) -> list[LastRun]:
    """What history has of a fleet's work: a flood that comes faster than it is done, at an hour of some epoch."""
    dice, epoch = random.Random(workers), 1_700_000_000.0
    tasks = [
        SimulatedTask(
            0, i * 0.02, i, dice.choice([0, 0, 0, 1, 2]), dice.uniform(0.1, 1.0), f"k{i % 9}" if keys else None
        )
        for i in range(n)
    ]
    history: list[LastRun] = []
    free, process = [(0.0, number) for number in range(workers)], count()

    def began(task: SimulatedTask, now: float) -> None:
        at, number = min((at, number) for at, number in free if at <= now + 1e-9)
        free[free.index((at, number))] = (now + task.seconds, number)
        due, start = epoch + task.due, epoch + now
        claimed = min(start, due + pace.arrive)
        history.append(
            LastRun(task.id, role.name, NAMES[task.account], 0, task.key, ("host", number), due, claimed, start,
                start + task.seconds, due, again=next(process) == 0)
        )  # fmt: skip

    Fleet([SimulatedRole(role, Backlog(NAMES), pace)], workers, on_start=began).run(tasks)
    return history


def play(history: list[LastRun], workers: int | None = None) -> dict[str, Any]:
    (told,) = Replay(history, [ROLE], {}).report(workers)
    return told


@pytest.mark.parametrize(("workers", "keys"), [(1, False), (3, False), (4, True)])
def test_a_replay_finds_how_many_processes_there_were_and_comes_out_as_it_was(workers: int, keys: bool) -> None:
    told = play(ran(workers, TicketPace(0.02, 0.002), keys=keys))
    assert (told["workers_there"], told["tasks"], told["accounts"], told["ran_before"]) == (workers, 300, 3, 1)
    assert told["arrive"] == pytest.approx(0.01, abs=0.011)
    assert told["between"] == pytest.approx(0.002, abs=0.0005)
    assert told["error"]["mean"] < 0.02
    assert told["error"]["p95"] < 0.02
    assert told["would_be"] == told["replayed"]


def test_a_task_that_took_no_time_was_run_by_somebody() -> None:
    told = play([LastRun(1, "work", "a", 0, None, (None, None), 5.0, 5.0, 5.0, 5.0, 5.0)])
    assert (told["workers_there"], told["replayed"]["n"], told["error"]["mean"]) == (1, 1, None)


def test_more_workers_would_have_let_less_wait() -> None:
    told = play(ran(2, TicketPace(0.01, 0.002)), 8)
    assert (told["workers_there"], told["workers"]) == (2, 8)
    assert told["would_be"]["mean"] < told["replayed"]["mean"] / 2
    assert told["would_take_hours"] < told["hours"] / 2


def test_what_a_process_needs_between_two_tickets_is_read_from_those_that_could_be_claimed_by_then() -> None:
    one = LastRun(1, "work", "a", 0, None, ("w", 1), due=0.0, claimed=0.0, started=0.1, ended=1.0, created=0.0)
    rows = [
        one,
        one._replace(id=2, started=1.2, ended=2.0),
        one._replace(id=3, started=2.4, ended=3.0),
        one._replace(id=4, claimed=5.0, started=5.0, ended=6.0, lock_key="held until then"),
        one._replace(id=5, due=9.0, claimed=9.0, started=9.1, ended=9.5),
    ]
    told = play(rows)
    assert told["between"] == pytest.approx(0.3)
    assert told["arrive"] == pytest.approx(0.0)


def test_the_tasks_of_a_ticket_share_its_time_and_its_start() -> None:
    one = LastRun(1, "work", "a", 0, None, ("w", 1), due=0.0, claimed=0.5, started=1.0, ended=2.0, created=0.0)
    rows = [one, one._replace(id=2, ended=4.0), one._replace(id=3, due=0.2, process=("w", 2), ended=1.5)]
    replay = Replay(rows, [replace(ROLE, chunk=2)], {})
    assert replay.there == 2
    arrivals = replay._arrivals([SimulatedRole(ROLE, Backlog(["a"]), TicketPace())])
    assert [task.seconds for task in arrivals] == pytest.approx([1.5, 1.5, 0.5])


def test_roles_that_share_a_worker_are_one_group_by_way_of_others_too() -> None:
    one = LastRun(1, "a", "", 0, None, ("w1", 1), 0.0, 0.0, 0.0, 1.0, 0.0)
    both = [one, one._replace(process=("w2", 1))]
    apart = {"a": [one], "b": [one._replace(process=("w2", 1))], "c": [one._replace(process=("w3", 1))]}
    assert together(apart) == [["a"], ["b"], ["c"]]
    assert sorted(map(sorted, together({**apart, "d": both}))) == [["a", "b", "d"], ["c"]]


def test_runs_that_were_not_the_last_take_their_process_and_are_not_compared() -> None:
    """The second task waits for a second, in which the first one fails, to be tried again later."""
    before = (Before(1.0, "retry", 1),)
    rows = [
        LastRun(1, "work", "a", 0, None, ("w", 1), 5.0, 5.0, 5.0, 6.0, 0.0, later=True, again=True, earlier=before),
        LastRun(2, "work", "a", 0, None, ("w", 1), 0.0, 0.0, 1.0, 2.0, 0.0),
    ]
    told = play([*rows, rows[1]._replace(id=3, due=-1.0, claimed=-1.0, started=-1.0, ended=0.0)])
    assert (told["tasks"], told["later"], told["earlier"], told["happened"]["n"]) == (3, 1, 1, 2)
    assert told["replayed"]["max"] == pytest.approx(1.0, abs=0.1)


def test_who_was_given_another_priority_while_it_waited_is_not_compared() -> None:
    one = LastRun(1, "work", "a", 0, None, ("w", 1), 0.0, 0.0, 0.0, 1.0, 0.0)
    told = play([one, one._replace(id=2, priority=9, started=1.0, ended=2.0, moved=0.5)])
    assert (told["moved"], told["happened"]["n"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from-history", "--seed", "1"), "--seed means nothing with --from-history"),
        (("--from-history", "--window", "1"), "--window means nothing with --from-history"),
        (("--role", "work"), "--role needs --from-history"),
        (("--since", "60"), "--since needs --from-history"),
        (("--from-history", "--since", "0"), "is not in the range"),
    ],
)
def test_options_that_would_not_count_are_refused(arguments: tuple[str, ...], says: str) -> None:
    refused = CliRunner().invoke(main, ["workers", "simulate", *arguments])
    assert refused.exit_code == 2
    assert says in refused.stderr


def test_roles_on_the_same_processes_come_out_as_they_were_only_when_they_are_played_together() -> None:
    """A flood of one role, and tasks of two others that come while it waits: alone, they would find processes idle."""
    dice, epoch, workers, pace = random.Random(5), 1_700_000_000.0, 3, TicketPace(0.02, 0.002)
    roles = [replace(ROLE, name=name, queue=name) for name in ("flood", "few", "fewer")]
    tasks = [SimulatedTask(0, 0.0, i, 0, dice.uniform(0.1, 1.0)) for i in range(90)]
    tasks += [SimulatedTask(0, 1.0 + i * 0.9, 100 + i, 0, dice.uniform(0.1, 1.0), line=1 + i % 2) for i in range(24)]
    free, history = [(0.0, number) for number in range(workers)], list[LastRun]()

    def began(task: SimulatedTask, now: float) -> None:
        at, number = min((at, number) for at, number in free if at <= now + 1e-9)
        free[free.index((at, number))] = (now + task.seconds, number)
        due, start = epoch + task.due, epoch + now
        claimed, name = min(start, due + pace.arrive), roles[task.line].name
        history.append(
            LastRun(task.id, name, "a", 0, None, ("w", number), due, claimed, start, start + task.seconds, due)
        )  # fmt: skip

    Fleet([SimulatedRole(role, Backlog(["a"]), pace) for role in roles], workers, on_start=began, poll=1.0).run(
        sorted(tasks, key=lambda task: task.due)
    )
    of = {role.name: [one for one in history if one.role == role.name] for role in roles}
    assert [sorted(names) for names in together(of)] == [["few", "fewer", "flood"]]
    shared = Replay(history, roles, {}).report(None)
    alone = [Replay(of[role.name], [role], {}).report(None)[0] for role in roles]
    assert all(max(told["error"].values()) < 0.1 for told in shared)
    assert [max(told["error"].values()) > 0.9 for told in alone] == [False, True, True]
