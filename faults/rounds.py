"""A round: steady load, a fault in its midst, recovery, rest. Then: what was accepted, and what became of it?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from faults.judge import Ended, Verdict, judge, missing, rate, recovery
from faults.keys import TICK
from faults.ledger import BEGIN, END, FELL, REFUSED, Line
from faults.members import Unmet, must, until
from faults.size import sized
from faults.stack import Stack

#: Seconds of load before a fault, of which the first does not count; and within which all is as before again.
BEFORE, PATIENCE = sized(4.0, 2.0), 60.0

#: Calls a second while processes start.
WARM = 30.0

#: Seconds in which what is accepted has to be over once the load rests. A lease, its rescue and a backoff fit in.
DRAIN = 60.0

#: What is over, of these tasks.
HISTORY = """
SELECT h.task_id, h.status, h.role || ': ' || h.error_message AS error, h.result #>> '{}' AS run,
    ARRAY(SELECT run FROM effects e WHERE e.task_id = h.task_id) AS writes
FROM celeriac.history h WHERE h.task_id = ANY (:tasks)
"""

#: The beats that have said so within the last seconds.
TICKING = "SELECT pid FROM celeriac.beats WHERE clock_timestamp() - last_tick_at < :seconds * interval '1 second'"

#: Schedules go on all the time.
LEFT = """
SELECT task_id FROM celeriac.tasks WHERE role <> 'tick'
UNION ALL SELECT 'in the outbox: ' || id FROM celeriac.intake
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to the stack under load. Returns when it is over.

    `wipes`: Redis loses its memory. `allows`: what is known to go wrong with it, and documented: not judged; what a
    problem says before its colon.
    `impossible`: says why it cannot be had here, if so.
    """

    name: str
    says: str
    act: Callable[[Stack], None]
    wipes: bool = False
    allows: tuple[str, ...] = ()
    impossible: Callable[[], str | None] = lambda: None

    def knows(self, problem: str) -> bool:
        return problem.partition(":")[0] in self.allows


@dataclass(slots=True)
class Row:
    """What one fault came to."""

    name: str
    verdict: Verdict | None = None
    before: float = 0.0
    during: float = 0.0
    after: float = 0.0
    recovered: float = 0.0
    problems: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    skipped: str | None = None

    @property
    def holds(self) -> bool:
        return not self.problems


class Rounds:
    """One after the other on one stack.

    Seconds: `patience` until all is as before, None where nobody asks; `drain` until what was accepted is over.
    """

    def __init__(
        self, stack: Stack, per_second: float, *, patience: float | None = PATIENCE, drain: float = DRAIN
    ) -> None:
        self.stack, self.per_second, self.patience, self.drain = stack, per_second, patience, drain
        self.ticks: set[datetime] = set()

    def play(self, fault: Fault) -> Row:
        row = Row(fault.name)
        if (why := fault.impossible()) is not None:
            row.skipped = why
            return row
        stack, ledger = self.stack, self.stack.ledger
        self._note_ticks(ledger.turn_page())
        stack.hold_old_transaction()
        stack.load.go(self.per_second)
        time.sleep(BEFORE)
        begins = time.monotonic()
        try:
            fault.act(stack)
        except Unmet as unmet:
            row.problems.append(str(unmet))
        ends = time.monotonic()
        if self.patience is not None:
            self._await_recovery(row, begins, ends, self.patience)
        stack.load.rest()
        (rested,) = stack.sql("SELECT clock_timestamp()")[0]
        self._await_end(rested)
        self._conclude(row, fault, rested)
        return row

    def warm_up(self) -> None:
        """Until every process is at work, and all of that is over. Raises Unmet."""
        begins = time.monotonic()
        self.stack.load.go(self.per_second)
        if not until(lambda: not self._idle(begins), PATIENCE):
            refused = {
                f"{line['way']}: {line['error']}" for line in self.stack.ledger.read() if line["what"] == REFUSED
            }
            never = ", ".join(self._idle(begins))
            raise Unmet(f"these never took any work: {never}. Refused: {'; '.join(sorted(refused)[:5])}")
        self.stack.load.rest()
        self.settle_down()

    def settle_down(self) -> None:
        """Until nothing is left of a load that has ended. Raises Unmet."""
        must(lambda: not self.stack.sql(f"{LEFT} LIMIT 1"), self.drain, "all tasks to be over")

    # -- recovery --------------------------------------------------------------------------------------------------

    def _await_recovery(self, row: Row, begins: float, ends: float, patience: float) -> None:
        ledger = self.stack.ledger
        row.before = rate(_ends(ledger.read()), begins - BEFORE + 1, begins)
        row.during = rate(_ends(ledger.read()), begins, ends)

        def is_back() -> bool:
            time.sleep(0.2)
            row.recovered = recovery(_ends(ledger.read()), ends, row.before)
            return row.recovered < float("inf") and not self._idle(ends)

        if not until(is_back, patience):
            row.problems += [f"{name} took no work within {patience:g} s" for name in self._idle(ends)]
            if row.recovered == float("inf"):
                row.problems.append(f"the rate was not back to 90 % within {patience:g} s")
        row.after = rate(_ends(ledger.read()), ends, time.monotonic())

    def _idle(self, since: float) -> list[str]:
        """The workers that have begun nothing since, beats that have not ticked, the API if it has accepted nothing."""
        lines = [line for line in self.stack.ledger.read() if line["at"] >= since]
        busy = {line["who"] for line in lines if line["what"] == BEGIN}
        idle = [member.name for member in self.stack.fleet.of("worker") if member.name not in busy]
        ticking = {pid for (pid,) in self.stack.sql(TICKING, seconds=time.monotonic() - since)}
        idle += [member.name for member in self.stack.fleet.of("beat") if member.pid not in ticking]
        if self.stack.fleet.of("api") and not any(line.get("way") == "http" and "id" in line for line in lines):
            idle.append("api")
        return idle

    def _await_end(self, rested: datetime) -> None:
        """Until nothing is left, and the schedule's instants up to the rest have come."""

        def is_over() -> bool:
            time.sleep(0.1)
            return not self._missed(rested) and not self.stack.sql(f"{LEFT} LIMIT 1")

        until(is_over, self.drain)

    # -- what became of it -----------------------------------------------------------------------------------------

    def _conclude(self, row: Row, fault: Fault, rested: datetime) -> None:
        ended = self._history({line["id"] for line in self.stack.ledger.read() if "id" in line})
        lines = self.stack.ledger.read()  # then what ended has its lines, also where something still runs
        left = [found for (found,) in self.stack.sql(LEFT)]
        row.verdict = judge(lines, ended, left, wipes=fault.wipes)
        row.problems += [f"{what}: {n}" for what, n in row.verdict.wrong.items()]
        row.problems += [
            f"{line['member']} ended by itself: {line['said'][-300:]}" for line in lines if line["what"] == FELL
        ]
        row.problems += self._missed(rested)
        self.ticks = {at for at in self.ticks if at >= rested}
        row.problems += self._in_disorder()
        row.allowed = [problem for problem in row.problems if fault.knows(problem)]
        row.problems = [problem for problem in row.problems if problem not in row.allowed]

    def _history(self, tasks: set[str]) -> dict[str, Ended]:
        found = self.stack.sql(HISTORY, tasks=sorted(tasks))
        return {row.task_id: Ended(row.status, row.run, tuple(row.writes), row.error) for row in found}

    def _note_ticks(self, lines: list[Line]) -> None:
        ran = (line for line in lines if line["what"] == END and line["role"] == "tick")
        self.ticks |= {datetime.fromisoformat(line["id"].partition("@")[2]) for line in ran}

    def _missed(self, rested: datetime) -> list[str]:
        """What is wrong with the schedule's instants up to the rest."""
        self._note_ticks(self.stack.ledger.read())
        after = [at for at in self.ticks if at >= rested]
        if not after:
            return ["the schedule stands still"]
        gone = missing([at for at in self.ticks if at <= min(after)], TICK)
        return [f"instants of the schedule that nobody ran: {gone}"] if gone else []

    def _in_disorder(self) -> list[str]:
        from celeriac.store.invariants import violations

        with self.stack.engine.connect() as connection:
            return [f"invariant: {line}" for line in violations(connection)[:3]]


def _ends(lines: list[Line]) -> list[float]:
    return [line["at"] for line in lines if line["what"] == END]
