"""`python -m faults`: everything fails, one after the other, and nothing is lost. Exit status 0 if that holds.

Each fault is tried once, in the order of the catalogue, and then at random until the minutes are over. `--guards`
proves that the harness can fail: what a promise rests on is switched off, one after the other, and each time it has to
say that something is wrong. Each run ends with one such proof. `FAULTS_SIZE=small`: two faults on a small stack.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from faults import of_callers, of_clocks, of_postgres, of_processes, of_redis, of_verbs, report
from faults.guards import GUARDS, Guard
from faults.judge import rate
from faults.ledger import END
from faults.rounds import WARM, Fault, Rounds, Row
from faults.size import sized
from faults.stack import Size, Stack, stack

CATALOGUE = {
    fault.name: fault
    for group in (of_processes, of_redis, of_postgres, of_verbs, of_callers, of_clocks)
    for fault in group.FAULTS
}

#: What is tried, on which stack, for how many minutes, and how many calls a second there are (None: it is measured).
TRIED = sized(tuple(CATALOGUE), ("stop-worker", "commits-lost"))
FEW = Size(beats=1, prefork=2, threads=0, api=False)
SIZE, MINUTES, RATE = sized((Size(), 15.0, None), (FEW, 0.0, 20.0))

#: The load is what the machine does with it at most, divided by this; and it is measured with so many calls a second,
#: of which bulks and canvases have several tasks.
SHARE, UNBOUNDED, MEASURED_FOR, TASKS_A_CALL = 3, 400.0, 6.0, 1.5

#: Seconds in which that flood has to be over.
FLOOD_DRAIN = 300.0

#: The guard that each run ends without: it has to see that.
LAST = GUARDS["unique"]

#: What a guard that is switched off leaves undone is given up sooner.
GUARD_DRAIN, GUARD_RATE = 12.0, 40.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser("faults", description=__doc__)
    options.add_argument("--seed", type=int, help="of what is random: another one each time, and printed")
    options.add_argument("--only", action="append", choices=CATALOGUE, metavar="NAME", help="this fault alone")
    options.add_argument("--minutes", type=float, help="for how long: 15, or once through what --only names")
    options.add_argument("--rate", type=float, help="calls a second: a third of what the machine does")
    options.add_argument("--guards", action="store_true", help="prove that it can fail")
    options.add_argument("--guard", choices=GUARDS, help="that one alone")
    options.add_argument("--list", action="store_true", help="what is tried")
    given = options.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    if given.list:
        for fault in CATALOGUE.values():
            print(f"{fault.name:20} {fault.says}")
        return 0
    seed = random.randrange(2**32) if given.seed is None else given.seed
    if given.guards or given.guard:
        return prove([given.guard] if given.guard else GUARDS, seed)
    minutes = given.minutes if given.minutes is not None else 0.0 if given.only else MINUTES
    return try_faults(given.only or TRIED, seed, minutes, given.rate or RATE)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def try_faults(names: Sequence[str], seed: int, minutes: float, per_second: float | None) -> int:
    rows: list[Row] = []
    until = time.monotonic() + minutes * 60
    with stack(SIZE, seed) as made:
        Rounds(made, WARM).warm_up()
        per_second = per_second or measured(made)
        print(f"seed {seed}, {per_second:.0f} calls/s, {platform.machine()}, {os.cpu_count()} cores")
        print(report.head(), flush=True)
        rounds = Rounds(made, per_second)
        for fault in _drawn(names, random.Random(seed)):
            if len(rows) >= len(names) and time.monotonic() > until:
                break
            rows.append(rounds.play(fault))
            print(report.line(rows[-1]), flush=True)
        made.sql(LAST.sql)
        can_fail = is_seen(made, LAST)
    print(report.totals(rows))
    return 0 if can_fail and all(row.holds for row in rows) else 1


def _drawn(names: Sequence[str], chance: random.Random) -> Iterator[Fault]:
    """Each once, then at random."""
    return itertools.chain(
        (CATALOGUE[name] for name in names), (CATALOGUE[chance.choice(names)] for _ in itertools.count())
    )


def measured(made: Stack) -> float:
    """A third of the calls a second that are done when all come at once, and all of them are over afterwards."""
    made.load.go(UNBOUNDED)
    time.sleep(2.0)
    begins = time.monotonic()
    time.sleep(MEASURED_FOR)
    done = rate((line["at"] for line in made.ledger.read() if line["what"] == END), begins, time.monotonic())
    made.load.rest()
    Rounds(made, UNBOUNDED, drain=FLOOD_DRAIN).settle_down()
    return max(10.0, done / TASKS_A_CALL / SHARE)


def prove(names: Iterable[str], seed: int) -> int:
    """Exit status 0 only if each guard that is switched off is missed."""
    missed = []
    for guard in (GUARDS[name] for name in names):
        with stack(FEW, seed, broken=guard.name) as made:
            missed += [guard.name] * (not is_seen(made, guard))
    print(f"not seen: {', '.join(missed)}" if missed else "the harness sees each guard that is missing")
    return 1 if missed else 0


def is_seen(made: Stack, guard: Guard) -> bool:
    """Whether the harness sees, as what it shows, that this guard is switched off."""
    row = Rounds(made, GUARD_RATE, patience=None, drain=GUARD_DRAIN).play(CATALOGUE[guard.fault])
    seen = row.verdict is not None and guard.shows in row.verdict.wrong
    told = "; ".join(row.problems)[:300] or "all holds"
    print(f"without {guard.name}: {guard.says}: {'seen' if seen else 'NOT SEEN'} ({told})", flush=True)
    return seen


if __name__ == "__main__":
    sys.exit(main())
