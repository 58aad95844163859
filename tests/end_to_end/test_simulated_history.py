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


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["-A", "tests.end_to_end.shop", "simulate", "--from-history", *arguments])


def test_a_replay_of_what_ran_is_off_by_a_tenth_at_most(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows
) -> None:
    """A flood of one account, and two others that come while it waits."""
    empty = simulate("--role", "nap")
    assert empty.exit_code == 2, empty.exception
    assert "nothing of nap ran in the last 1 d" in empty.stderr
    worker("-c", str(PROCESSES))
    dice, calls = random.Random(1), 0
    for account, n in (("flood", 160), ("quiet", 12), ("other", 12)):
        for _ in range(n):
            shop.nap.using(account=account).delay(dice.uniform(0.05, 0.15))
            calls += 1
    until(lambda: rows.one("SELECT count(*) FROM celeriac.history WHERE role = 'nap'") == calls, "all of them")
    (told,) = json.loads(simulate("--json", "--role", "nap").stdout)
    assert (told["tasks"], told["accounts"], told["workers_there"]) == (calls, 3, PROCESSES)
    assert told["error"]["mean"] <= 0.1, told
    assert told["error"]["p95"] <= 0.1, told
