"""Tickets live for a moment, rows of other rooms not much longer. Under an old transaction those that are gone stay in
their tables, unseen: no statement of the hot path may walk over them, whatever the statistics say of a table in which
next to nothing lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine

from tests.postgres.backlog import fill
from tests.postgres.explained import Clone, Measured, measured

GONE, GONE_ROWS = 3_000, 20_000

#: What each task pays for.
HOT = ("dispatch.", "enqueue.insert.INSERT", "run.start.", "settle.write.SETTLE", "settle.write.COMPLETE")

#: Pages that may be added to those: a level of an index, and the way there. The dead ones lie on 58.
A_FEW = 50

#: What else meets tickets may read them, a few times, but not for each task again.
A_FEW_TIMES = 300

#: What looks at a room from its first entry on meets the dead that lie there.
LOOKS = ("insights.", "page of", "ids of", "end of", "repair.aging.", "repair.hand_over.HEADS")

#: A level more of each index, for each of at most 200 tasks.
LEVELS, ANY = 1_500, 2**31

#: What they were, a while ago.
TICKETS = f"""
INSERT INTO celeriac.tickets (token, role, ids, accounts, claimed_at)
SELECT gen_random_uuid(), 'gone', ARRAY[n], ARRAY[''], now() - interval '1 hour' FROM generate_series(1, {GONE}) AS n;
DELETE FROM celeriac.tickets;
ANALYZE celeriac.tickets;
"""

#: Of another role: those of one's own a claim meets until the ring turns.
ROOMS = f"""
INSERT INTO celeriac.tasks (task_id, role, account, lock_key)
SELECT 'gone-' || n, 'gone', 'a' || mod(n, 10), 'gone-' || n FROM generate_series(1, {GONE_ROWS}) AS n;
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT (SELECT seg FROM celeriac.ring), role, account, 0, now(), id FROM celeriac.tasks;
INSERT INTO celeriac.later (role, account, due_at, id) SELECT role, account, now(), id FROM celeriac.tasks;
INSERT INTO celeriac.locks (lock_key, head) SELECT lock_key, id FROM celeriac.tasks;
INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
SELECT lock_key, 0, now(), id, role, account FROM celeriac.tasks;
DELETE FROM celeriac.behind; DELETE FROM celeriac.locks; DELETE FROM celeriac.later; DELETE FROM celeriac.ready;
DELETE FROM celeriac.tasks;
ANALYZE celeriac.tasks, celeriac.ready, celeriac.later, celeriac.locks, celeriac.behind;
"""


def walked(clone: Clone, die: str, most: Callable[[str], int]) -> dict[str, str]:
    """The statements that read more pages where these have died than they may, and how."""
    few, many = clone(), clone()
    with open_since_before(many) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(die)
        after = pages(engine)
    with open_since_before(few) as engine:
        before = pages(engine)
    assert sum(name.startswith(HOT) for name in after) > 20
    added = {name: plan.pages - before[name].pages for name, plan in after.items()}
    return {name: f"{n} pages more: {after[name]}" for name, n in added.items() if n > most(name)}


def test_no_statement_of_the_hot_path_walks_over_dead_tickets(clone: Clone) -> None:
    assert walked(clone, TICKETS, lambda name: A_FEW if name.startswith(HOT) else A_FEW_TIMES) == {}


def test_no_verb_walks_over_the_dead_of_other_roles(clone: Clone) -> None:
    """Statistics say that the rooms are empty: to read a whole index for each task seems as good as to look it up."""
    assert walked(clone, ROOMS, lambda name: ANY if name.startswith(LOOKS) else LEVELS) == {}


@contextmanager
def open_since_before(url: str) -> Iterator[Engine]:
    """Beside a transaction that keeps what dies from being vacuumed."""
    engine = create_engine(url)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as old:
        old.exec_driver_sql("SELECT count(*) FROM celeriac.roles")
        yield engine
    engine.dispose()


def pages(engine: Engine) -> Measured:
    with engine.connect() as connection:
        fill(connection, ["one deep account"], 10)
        return measured(connection)
