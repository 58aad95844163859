"""The simulator: the same day from the same seed, nothing lost, nothing idle without a reason, a check that fails."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from celeriac.cli import main
from celeriac.dispatch.fairness import Claimant
from celeriac.roles.role import Role
from celeriac.simulate import backlog
from celeriac.simulate.backlog import Backlog, SimulatedTask
from celeriac.simulate.day import Day
from celeriac.simulate.fifo import Fifo
from celeriac.simulate.fleet import Fleet
from celeriac.simulate.line import SimulatedRole, TicketPace
from celeriac.simulate.queues import Queues
from celeriac.simulate.rounds import Rounds
from celeriac.simulate.turns import WIDTH, Rotation
from celeriac.simulate.waits import Ledger, WaitTimes

SMALL = ("workers", "simulate", "--accounts", "50", "--workers", "4", "--hours", "1", "--seconds", "5")
AT_ONCE = TicketPace(0.0, 0.0)
Started = list[tuple[float, SimulatedTask]]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*SMALL, *arguments])


def run(
    tasks: Sequence[SimulatedTask],
    workers: int = 1,
    pace: TicketPace = AT_ONCE,
    names: Sequence[str] = "abc",
    **options: Any,
) -> Started:
    """When each began."""
    began: Started = []
    role = Role(**({"name": "work", "chunk": 1} | options))
    fleet = Fleet(
        [SimulatedRole(role, Backlog(names), pace)], workers, on_start=lambda task, now: began.append((now, task))
    )
    fleet.run(tasks)
    return began


def task(number: int, due: float = 0.0, account: int = 0, seconds: float = 1.0, **more: Any) -> SimulatedTask:
    return SimulatedTask(0, due, number, account, seconds, **more)


def run_several(
    tasks: Sequence[SimulatedTask], workers: int = 1, poll: float | None = None, roles: int = 2, **options: Any
) -> list[tuple[float, int]]:
    """When each began, and its id; of roles that share the processes."""
    began: list[tuple[float, int]] = []
    lines = [
        SimulatedRole(Role(**({"name": f"role{n}", "chunk": 1} | options)), Backlog(["a"]), AT_ONCE)
        for n in range(roles)
    ]  # fmt: skip
    Fleet(lines, workers, on_start=lambda task, now: began.append((now, task.id)), poll=poll).run(tasks)
    return began


# -- the whole -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_day_and_another_one_another() -> None:
    first, again, other = (simulate("--json", "--seed", seed).stdout for seed in ("1", "1", "2"))
    assert first == again
    assert json.loads(first)["tasks"] != json.loads(other)["tasks"]


def test_every_task_starts_once_in_either_order_and_the_quiet_wait_less_than_the_noisy() -> None:
    found = json.loads(simulate("--json").stdout)
    waits = {(row["of"], row["order"]): row for row in found["waits"]}
    assert waits["all tasks", "fair"]["n"] == waits["all tasks", "fifo"]["n"] == found["tasks"]
    assert sum(line["tasks"] for line in found["course"]) == found["tasks"]
    assert 0.7 < found["utilisation"] < 0.9
    fair, fifo = waits["mean wait of an account", "fair"], waits["mean wait of an account", "fifo"]
    assert fair["p50"] < fifo["p50"] / 2
    assert waits["the noisy customer", "fair"]["mean"] > waits["the noisy customer", "fifo"]["mean"]
    for share in found["shares"]:
        assert share["held"] == pytest.approx(share["fair"], abs=0.03)


def test_a_day_that_kept_the_promise_is_exit_status_0_and_one_that_broke_it_1(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = simulate()
    assert (kept.exit_code, "fairness held" in kept.output) == (0, True)

    def greedy(claimants: Sequence[Claimant], free: int) -> dict[str, int]:
        """All to whoever has most."""
        most = max(claimants, key=lambda claimant: claimant.waiting)
        return {most.account: min(free, most.waiting)}

    monkeypatch.setattr(backlog, "allocate", greedy)
    broken = simulate()
    assert broken.exit_code == 1
    assert "the promise of fairness was broken in" in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--workers", "0"), "0 is not in the range 1<=x<=100000"),
        (("--accounts", "many"), "'many' is not a valid integer"),
        (("--hours", "nan"), "not a number of seconds"),
        (("--rate", "0"), "is not in the range"),
        (("--hours", "100", "--rate", "1000"), "tasks would wait at once"),
        (("--hours", "24", "--workers", "100000", "--seconds", "10"), "tasks would wait at once"),
        (("--hours", "24", "--workers", "100000", "--rate", "5000"), "tasks would wait at once"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_what_would_be_right(arguments: tuple[str, ...], says: str) -> None:
    refused = simulate(*arguments)
    assert refused.exit_code == 2
    assert says in refused.stderr


def test_how_many_wait_at_most_is_known_before() -> None:
    day = Day(accounts=50, hours=1.0, rate=0.64, seconds=5.0)
    most = json.loads(simulate("--json").stdout)["backlog"]["max"]
    assert day.most_waiting(0.8) == pytest.approx(most, rel=0.3)  # a rule of thumb, of one day


# -- the fleet -------------------------------------------------------------------------------------------------------


def test_a_lone_task_waits_for_its_kick_alone_and_the_next_one_for_the_worker() -> None:
    began = run([task(1), task(2, 0.5)], pace=TicketPace(arrive=0.01, between=0.1))
    assert [at for at, _ in began] == pytest.approx([0.01, 1.11])


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 2), st.floats(0.01, 9)), max_size=60), st.integers(1, 5))
def test_no_more_run_than_there_are_workers_and_none_waits_beside_an_idle_one(
    given: list[tuple[float, int, float]], workers: int
) -> None:
    tasks = [task(n, *one) for n, one in enumerate(sorted(given))]
    began = run(tasks, workers)
    assert sorted(one.id for _, one in began) == [one.id for one in tasks]
    for at, one in began:
        busy = sum(start <= at < start + other.seconds for start, other in began if other is not one)
        assert busy < workers
        if at > one.due:  # somebody's end was waited for
            before = sum(start < at <= start + other.seconds for start, other in began)
            assert before >= workers


def test_of_equal_accounts_a_window_of_one_for_each_worker_lets_each_have_its_turn() -> None:
    flood = [task(n) for n in range(20)]
    began = run([*flood, task(20, account=1), task(21, account=2)], 2, window=2)
    assert {one.id for _, one in began[:6]} >= {20, 21}
    assert [one.id for _, one in run([*flood, task(20, 0.1, 1)], 2, window=2000)][-1] == 20


def test_of_a_lock_key_one_runs_at_a_time_and_the_best_behind_it_is_next() -> None:
    urgent = task(3, key="k")._replace(rank=-5)
    began = run([task(1, key="k"), task(2, 0.1, key="k"), urgent._replace(due=0.2), task(4, 0.3)], workers=3)
    keyed = [(at, one.id) for at, one in began if one.key]
    assert [number for _, number in keyed] == [1, 3, 2]
    assert all(later - sooner >= 1.0 for (sooner, _), (later, _) in pairwise(keyed))
    assert [at for at, one in began if one.id == 4] == [0.3]


def test_a_role_without_prompt_passes_starts_when_beat_makes_one() -> None:
    assert [at for at, _ in run([task(1), task(2, 3.0)], prompt=False, every=2.0)] == [2.0, 4.0]


def test_small_tasks_share_a_ticket_once_they_are_measured() -> None:
    began = run([task(n, seconds=0.01) for n in range(100)], chunk="auto")
    together = [n for _, n in sorted(Counter(at for at, _ in began).items())]
    assert together[:8] == [1] * 8
    assert max(together) > 5


def test_first_come_first_served_waits_as_erlangs_formula_says() -> None:
    """M/M/c: Poisson arrivals, exponential run times, c servers; Kleinrock, *Queueing Systems I*, 3.5."""
    c, load, dice, now, n = 4, 3.2, random.Random(1), 0.0, 200_000
    queue, waited = Fifo(c, 0.0, 0.0), 0.0
    for _ in range(n):
        now += dice.expovariate(load)
        waited += queue.start(now, dice.expovariate(1.0)) - now
    all_busy = load**c / math.factorial(c) * c / (c - load)
    busy = all_busy / (sum(load**k / math.factorial(k) for k in range(c)) + all_busy)
    assert waited / n == pytest.approx(busy / (c - load), rel=0.05)


# -- its parts -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * WIDTH))), st.integers(0, 3 * WIDTH))
def test_turns_go_from_a_place_on_and_around_to_it(changes: list[tuple[bool, int]], first: int) -> None:
    turns, members = Rotation(3 * WIDTH + 1), set[int]()
    for comes, number in changes:
        (turns.add if comes else turns.discard)(number)
        (members.add if comes else members.discard)(number)
    assert list(turns.walk(first)) == sorted(members, key=lambda n: (n < first, n))


@given(st.lists(st.floats(0.001, 1e5), min_size=1), st.floats(0, 1))
def test_a_quantile_is_off_by_a_hundredth_at_most(waited: list[float], share: float) -> None:
    waits = WaitTimes()
    for seconds in waited:
        waits.add(seconds)
    exact = sorted(waited)[max(0, math.ceil(share * len(waited)) - 1)]
    assert waits.quantile(share) == pytest.approx(exact, rel=0.01, abs=0.001)
    assert (waits.max, waits.n) == (max(waited), len(waited))
    assert waits.mean == pytest.approx(sum(waited) / len(waited))


def test_an_account_without_tasks_has_no_wait() -> None:
    ledger = Ledger(3, [2])
    for account, seconds in ((0, 1.0), (0, 3.0), (2, 5.0)):
        ledger.add(account, seconds)
    assert (ledger.means(), ledger.longest()) == ([2.0, 5.0], [3.0, 5.0])
    assert ledger.watched[2].n == 1


def test_an_account_that_waits_while_another_gets_a_second_slot_breaks_the_promise() -> None:
    at_once = Rounds(2)
    at_once.waits(0)
    at_once.passed({1: 2})
    assert at_once.broken == 1
    in_turn = Rounds(3)
    in_turn.passed({1: 1})
    in_turn.waits(0)
    in_turn.passed({1: 1})
    in_turn.passed({2: 1})
    assert (in_turn.broken, in_turn.longest) == (0, 0)
    in_turn.passed({1: 1})
    assert in_turn.broken == 1
    in_turn.passed({0: 1})
    assert in_turn.longest == 3


def test_a_made_up_day_has_its_rate_its_run_time_its_busy_hours_and_its_noise() -> None:
    day = Day(accounts=100, hours=2, rate=5, seconds=3)
    tasks = list(day.arrivals())
    assert len(tasks) == pytest.approx(5 * 7200, rel=0.03)
    assert sum(one.seconds for one in tasks) / len(tasks) == pytest.approx(3, rel=0.03)
    assert all(sooner.due <= later.due for sooner, later in pairwise(tasks))
    of = Counter(one.account for one in tasks)
    assert of[day.noisy] > 0.1 * len(tasks)
    assert of[day.heaviest[0]] == pytest.approx(2 * of[day.heaviest[1]], rel=0.1)
    calm = [one for one in tasks if one.account != day.noisy]
    assert sum(2400 < one.due < 4800 for one in calm) > 2 * sum(one.due < 2400 for one in calm)


# -- several roles ---------------------------------------------------------------------------------------------------


def test_a_workers_queues_take_turns() -> None:
    tasks = [task(n, line=0) for n in range(4)] + [task(n, line=1) for n in range(4, 6)]
    began = run_several(sorted(tasks))
    assert sorted(number for _, number in began) == list(range(6))
    assert [at for at, _ in began] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    order = [number for _, number in began]
    assert order.index(4) < order.index(3)


def test_a_queue_that_was_served_goes_to_the_end_of_the_line_and_a_worker_holds_one_ticket_a_process() -> None:
    queues = Queues[str](["a", "b"], held=1)
    for ticket in ("a1", "a2", "a3"):
        queues.put("a", ticket)
    queues.put("b", "b1")
    assert [queues.take() for _ in range(5)] == ["a1", "b1", "a2", "a3", None]


def test_a_lock_key_is_one_for_all_roles_and_who_is_next_is_kicked_for() -> None:
    tasks = [task(0, line=0, key="k"), task(1, 0.1, line=1, key="k"), task(2, 0.2, line=1)]
    assert run_several(tasks, workers=3) == [(0.0, 0), (0.2, 2), (1.0, 1)]


def test_what_nobody_kicks_for_is_found_by_the_workers_look() -> None:
    assert run_several([task(0, 0.25, later=True)], poll=0.4, every=30.0) == [(0.4, 0)]
