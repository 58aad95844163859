"""A real run, replayed: the simulator tells how it went, and by how much it is off."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import ModuleType

from click.testing import CliRunner, Result

from celeriac.cli import main
from tests.processes import Rows, Running, until

PROCESSES = 4

#: How many tasks each has.
ACCOUNTS = {"flood": 160, "quiet": 12, "other": 12}

#: By how much, in parts of what was, a replay may be off, and how often it is tried.
OFF, TRIES = 0.1, 3


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["-A", "tests.end_to_end.shop", "workers", "simulate", "--from-history", *arguments]
    )


def test_a_replay_of_what_ran_is_off_by_a_tenth_at_most(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows
) -> None:
    """A flood of one account, and two others that come while it waits. Best of three: a machine that stands still for a
    moment while they run makes waits that no replay knows of.
    """
    empty = simulate("--role", "nap")
    assert empty.exit_code == 2, empty.exception
    assert "nothing of nap ran in the last 1 d" in empty.stderr
    worker("-c", str(PROCESSES))
    assert_right_once(lambda: error_of_a_replay(shop, rows), rows)


def error_of_a_replay(shop: ModuleType, rows: Rows) -> dict[str, float]:
    """Of the mean and of the p95 of the waits, in parts of them."""
    dice = random.Random(1)
    calls = [(account, dice.uniform(0.05, 0.15)) for account, n in ACCOUNTS.items() for _ in range(n)]
    for account, seconds in calls:
        shop.nap.using(account=account).delay(seconds)
    until(lambda: rows.one("SELECT count(*) FROM celeriac.history WHERE role = 'nap'") == len(calls), "all of them")
    (told,) = json.loads(simulate("--json", "--role", "nap").stdout)["roles"]
    assert (told["tasks"], told["accounts"], told["workers_there"]) == (len(calls), len(ACCOUNTS), PROCESSES)
    return {name: told["error"][name] for name in ("mean", "p95")}


def assert_right_once(replay: Callable[[], dict[str, float]], rows: Rows) -> None:
    """Of a few runs, as the machine's own noise is no part of a replay."""
    errors: list[dict[str, float]] = []
    while not errors or (max(errors[-1].values()) > OFF and len(errors) < TRIES):
        rows("DELETE FROM celeriac.history")
        errors.append(replay())
    assert min(max(error.values()) for error in errors) <= OFF, errors


def test_roles_that_share_their_processes_are_played_together(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows
) -> None:
    """A flood of each of three roles, so that a worker's queues take turns: alone, each would wait for a third."""
    worker("-c", str(PROCESSES), "-Q", "nap,doze,snore")
    assert_right_once(lambda: error_of_a_joint_replay(shop, rows), rows)


def error_of_a_joint_replay(shop: ModuleType, rows: Rows) -> dict[str, float]:
    """As above, of all three roles together."""
    dice = random.Random(2)
    roles = {"nap": (shop.nap, 90), "doze": (shop.doze, 60), "snore": (shop.snore, 40)}
    for role, n in roles.values():
        for _ in range(n):
            role.delay(dice.uniform(0.05, 0.15))
    calls = sum(n for _, n in roles.values())
    until(lambda: rows.one("SELECT count(*) FROM celeriac.history") == calls, "all of them")
    found = json.loads(simulate("--json").stdout)
    assert {told["role"]: (told["tasks"], told["workers_there"]) for told in found["roles"]} == {
        name: (n, PROCESSES) for name, (_, n) in roles.items()
    }
    assert found["all"]["happened"]["n"] == calls
    return {name: found["all"]["error"][name] for name in ("mean", "p95")}
