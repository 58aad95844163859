"""Faults of processes: killed, frozen, replaced, poisoned."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from faults.ledger import BEGIN, BROKE, END, HOARDED
from faults.members import Member, must
from faults.rounds import Fault
from faults.stack import Stack

#: How long (seconds) something goes on that is repeated, and how often.
LASTS, EVERY = 4.0, 0.4

#: Seconds after which every lease is over and its tasks have begun elsewhere, if they ever do.
LEASE_OVER = 15.0

#: For how long (seconds) connections are hoarded: longer than a lease.
HOARDS = 6.0

#: To end a worker, with its children.
STOPS = (signal.SIGTERM, signal.SIGQUIT)

#: More tasks than all workers run at once.
MORE = 16


def again_and_again(act: Callable[[], object], lasts: float = LASTS, every: float = EVERY) -> None:
    until_when = time.monotonic() + lasts
    while time.monotonic() < until_when:
        act()
        time.sleep(every)


def kill_children(stack: Stack) -> None:
    def kill_one() -> None:
        stack.enqueue("long", 2, '{"seconds": 0.5}')
        families = [member.children() for member in stack.fleet.of("worker") if "threads" not in member.name]
        if alive := [children for children in families if children]:
            stack.kill(stack.chance.choice(stack.chance.choice(alive)))

    again_and_again(kill_one)


def kill_parents(stack: Stack) -> None:
    """Their children live on, and have to notice."""
    for member in stack.fleet.of("worker"):
        member.kill(whole=False)
        time.sleep(1.0)


def kill_workers(stack: Stack) -> None:
    """With all they do: a task each is under way in the first."""
    busy(stack)
    for member in stack.fleet.of("worker"):
        member.kill()
        time.sleep(1.0)


def kill_beats(stack: Stack) -> None:
    """One after the other, then all at once."""
    for member in stack.fleet.of("beat"):
        member.kill()
        time.sleep(1.0)
    for member in stack.fleet.of("beat"):
        member.kill()


def kill_api(stack: Stack) -> None:
    for member in stack.fleet.of("api"):
        member.kill()


def kill_producers(stack: Stack) -> None:
    again_and_again(stack.load.kill_and_replace, 3.0, 1.5)


def busy(stack: Stack, seconds: float = 1.0, tasks: int = 6) -> list[str]:
    """Long tasks that have begun: their ids."""
    asked = stack.enqueue("long", tasks, f'{{"seconds": {seconds}}}')
    must(
        lambda: set(asked) & {line["id"] for line in stack.ledger.read() if line["what"] == BEGIN}, LEASE_OVER,
        "a long task to begin",
    )  # fmt: skip
    return asked


def stop_worker(stack: Stack) -> None:
    """A worker is frozen past its leases, until what it ran has begun elsewhere; then it wakes up and goes on."""
    victim = stack.fleet.of("worker")[0]
    asked = stack.enqueue("long", 4, '{"seconds": 2.5}')
    mine: list[str] = []

    def has_begun() -> bool:
        lines = stack.ledger.read()
        over = {line["run"] for line in lines if line["what"] in (END, BROKE)}
        mine[:] = [
            line["id"] for line in lines
            if line["what"] == BEGIN and line["who"] == victim.name and line["id"] in asked and line["run"] not in over
        ]  # fmt: skip
        return bool(mine)

    must(has_begun, LEASE_OVER, f"a long task to begin in {victim.name}")
    with stack.fleet.frozen([victim.pid, *victim.children()]):
        must(lambda: _elsewhere(stack, victim, mine), LEASE_OVER, f"what {victim.name} ran to begin elsewhere")
    time.sleep(1.0)


def _elsewhere(stack: Stack, victim: Member, tasks: list[str]) -> bool:
    lines = stack.ledger.read()
    return any(line["what"] == BEGIN and line["who"] != victim.name and line["id"] in tasks for line in lines)


def stop_parent(stack: Stack) -> None:
    """Its children run on, and nobody renews their leases: they have to stop before others begin."""
    victim = stack.fleet.of("worker")[0]
    stack.enqueue("long", 6, '{"seconds": 8}')
    time.sleep(1.0)
    with stack.fleet.frozen([victim.pid]):
        time.sleep(8.0)


def stop_children(stack: Stack) -> None:
    with stack.fleet.frozen(stack.fleet.of("worker")[0].children()):
        time.sleep(6.0)


def stop_beats(stack: Stack) -> None:
    with stack.fleet.frozen([member.pid for member in stack.fleet.of("beat")]):
        time.sleep(5.0)


def rolling_restart(stack: Stack) -> None:
    """SIGTERM to each in turn; the next one when it is back."""
    for member in [*stack.fleet.of("worker"), *stack.fleet.of("beat"), *stack.fleet.of("api")]:
        _replace(member, signal.SIGTERM)


def _replace(member: Member, number: int, *, whole: bool = False) -> None:
    before = member.pid
    member.terminate(number, whole=whole)
    must(lambda: member.pid != before, 60.0, f"{member.name} to be back")
    time.sleep(0.5)


def stop_signals(stack: Stack) -> None:
    """What systemd, supervisor and Heroku send: to all of a worker, in mid-run. None costs a loss."""
    asked = [task for number in STOPS for task in _stopped(stack, number)]
    lost = "SELECT count(*) FROM celeriac.worker_tasks WHERE task_id = ANY (:ids) AND losses > 0"
    must(lambda: stack.sql(lost, ids=asked)[0][0] == 0, 1.0, "no long task to have been lost")


def _stopped(stack: Stack, number: int) -> list[str]:
    asked = busy(stack, seconds=3.0)
    for member in stack.fleet.of("worker"):
        _replace(member, number, whole=True)
    return asked


def forks(stack: Stack) -> None:
    """Handlers that fork: one child is terminated, as at the end of `with Pool()`, and one ends by `sys.exit`."""
    stack.enqueue("forking", 20, "{}")
    must(lambda: not stack.sql("SELECT FROM celeriac.tasks WHERE role = 'forking'"), 40.0, "each to be over")
    for member in stack.fleet.of("worker"):
        keep_busy(stack, member)


def kill_named_parents(stack: Stack) -> None:
    """A worker with a name of its own (`WORKER_ID`), which its successor takes over while its children live on."""
    member = stack.member("worker-named", "worker", "-c", "2", "-l", "WARNING", WORKER_ID="named")
    with stack.fleet.joined(member):
        for _ in range(3):
            keep_busy(stack, member)
            before = member.pid
            member.kill(whole=False)
            must(lambda before=before: member.pid != before, LEASE_OVER, f"{member.name} to be back")  # type: ignore[misc]
        keep_busy(stack, member)


def keep_busy(stack: Stack, member: Member) -> None:
    """Until it is at work, and then until it runs a long task."""
    for role in (None, "long"):
        began = time.monotonic()
        if role is not None:
            stack.enqueue(role, MORE, '{"seconds": 2}')
        must(
            lambda role=role, began=began: _has_begun(stack, member.name, began, role),  # type: ignore[misc]
            2 * LEASE_OVER, f"{member.name} to begin {role or 'anything'}",
        )  # fmt: skip


def _has_begun(stack: Stack, who: str, since: float, role: str | None) -> bool:
    """Whether it has begun a task since, of that role or of any."""
    begun = (line for line in stack.ledger.read() if line["what"] == BEGIN and line["at"] > since)
    return any(line["who"] == who and role in (None, line["role"]) for line in begun)


def two_of_a_name(stack: Stack) -> None:
    """Two workers that both believe to be `twin`, which docs/workers.md forbids."""
    twins = [stack.member(f"worker-twin-{n}", "worker", "-c", "2", "-l", "WARNING", WORKER_ID="twin") for n in range(2)]
    with stack.fleet.joined(twins[0]):
        keep_busy(stack, twins[0])
        with stack.fleet.joined(twins[1]):
            keep_busy(stack, twins[1])
            time.sleep(3.0)


def pool_exhausted(stack: Stack) -> None:
    """Sessions of a worker's other threads wait for a connection longer than a lease; what keeps leases does not."""
    member = stack.member("worker-hoard", "worker", "-P", "threads", "-c", "4", "-l", "WARNING", FAULTS_HOARDS="1")
    with stack.fleet.joined(member):
        keep_busy(stack, member)
        stack.enqueue("hoard", MORE, f'{{"seconds": {HOARDS}}}')
        must(lambda: any(line["what"] == HOARDED for line in stack.ledger.read()), LEASE_OVER, "the pool to be used up")
        time.sleep(HOARDS)


def poison(stack: Stack) -> None:
    """Handlers that take their process down; others share their tickets."""
    stack.enqueue("poison", 2, '{"deadly": true}', expects="failed")
    stack.enqueue("poison", 20, '{"deadly": false}')
    must(lambda: not stack.sql("SELECT FROM celeriac.tasks WHERE role = 'poison'"), 40.0, "each poison to be over")


def leak(stack: Stack) -> None:
    """Handlers that leave 20 MB each behind."""
    stack.enqueue("leaky", 8, '{"megabytes": 20}')
    time.sleep(2.0)


def spill(stack: Stack) -> None:
    """Handlers that leave files open, in processes that may have 128 of them; others share their tickets."""
    stack.enqueue("spilling", 40, "{}")
    must(lambda: not stack.sql("SELECT FROM celeriac.tasks WHERE role = 'spilling'"), 40.0, "each of them to be over")


FAULTS = [
    Fault("none", "nothing: the load alone", lambda _: time.sleep(2.0)),
    Fault("kill-children", "a child of a worker is killed every 0.4 s", kill_children),
    Fault("kill-parents", "the parent of each worker is killed; its children live on", kill_parents),
    Fault("kill-workers", "each worker is killed whole, in mid-run", kill_workers),
    Fault("kill-beats", "one beat after the other is killed, then all at once", kill_beats),
    Fault("kill-api", "the API server is killed", kill_api),
    Fault("kill-producers", "who enqueues is killed in mid-call", kill_producers),
    Fault("stop-worker", "a worker is frozen until its tasks have begun elsewhere, and wakes up", stop_worker),
    Fault("stop-parent", "the parent of a worker is frozen for two leases", stop_parent),
    Fault("stop-children", "the children of a worker are frozen for 6 s", stop_children),
    Fault("stop-beats", "all beats are frozen for 5 s", stop_beats),
    Fault("rolling-restart", "SIGTERM to each process in turn", rolling_restart),
    Fault("stop-signals", "SIGTERM, then SIGQUIT, to each worker with its children, in mid-run", stop_signals),
    Fault("forks", "handlers fork; a child is terminated, another ends by sys.exit", forks),
    Fault("kill-named-parents", "the parent of a worker with a WORKER_ID is killed in mid-run", kill_named_parents),
    Fault(
        "two-of-a-name", "two workers have the same WORKER_ID", two_of_a_name, allows=("overlapped", "keys overlapped")
    ),
    Fault("pool-exhausted", "a handler has every connection of its worker's sessions, 6 s", pool_exhausted),
    Fault(
        "poison",
        "two tasks kill their process each time, among twenty that share their tickets",
        poison,
        allows=("worker-threads-0 ended by itself",),
    ),
    Fault("leak", "handlers leave 160 MB behind in their processes", leak),
    Fault(
        "spill",
        "handlers use up the file descriptors of their processes",
        spill,
        allows=("worker-threads-0 ended by itself",),
    ),
]
