"""Backlogs of any size, each of a shape that could make a pass slow. Beside each lies the same work to find.

The rooms are filled directly, a statement for all of a kind: the view moves one task at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, text

TOKEN = "00000000-0000-4000-8000-000000000001"

#: How a task that was put into `tasks` is entered where it waits.
_ENTRY = {
    "ready": """
        INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
        SELECT 0, role, account, priority, scheduled_for, id FROM t""",
    "later": "INSERT INTO celeriac.later (role, account, due_at, id) SELECT role, account, scheduled_for, id FROM t",
    "behind": """
        INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
        SELECT lock_key, priority, scheduled_for, id, role, account FROM t""",
    "parked": """
        INSERT INTO celeriac.parked (account, role, priority, due_at, id)
        SELECT account, role, priority, scheduled_for, id FROM t""",
    "barriers": """
        INSERT INTO celeriac.barriers (id, barrier, role) SELECT id, CAST(md5(task_id) AS uuid), role FROM t""",
    "a ticket each": """
        INSERT INTO celeriac.tickets (token, role, ids, accounts, claimed_at)
        SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account], now() - interval '1 hour' FROM t""",
    "a silent ticket each": """
        INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, claimed_at, started_at,
            heartbeat_at)
        SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account], 'w', 2, now() - interval '1 hour',
            now() - interval '1 hour', now() - interval '1 hour' FROM t""",
    "a live ticket each": """
        INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, claimed_at, started_at,
            heartbeat_at)
        SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account], 'w' || id % 1000, 3, now(), now(), now() FROM t""",
    "one ticket": f"""
        INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, claimed_at, started_at,
            heartbeat_at)
        SELECT '{TOKEN}', min(role), array_agg(id ORDER BY id), array_agg(account ORDER BY id), 'w', 1,
            now() - interval '1 hour', now(), now() FROM t""",
}
_ENTRY["ready, as heads"] = _ENTRY["ready"]
_LOCKS = ", heads AS (INSERT INTO celeriac.locks (lock_key, head) SELECT lock_key, id FROM t)"


def tasks(room: str, values: str) -> str:
    """A statement that puts tasks into a room; `values`: task_id, role, account, lock_key, unique_key, due, of `i`."""
    heads = _LOCKS if room == "ready, as heads" else ""
    return f"""
WITH t AS (
    INSERT INTO celeriac.tasks (task_id, role, account, lock_key, unique_key, scheduled_for)
    SELECT {values} i RETURNING *
){heads}{_ENTRY[room]}"""


def past(values: str) -> str:
    """Finished tasks; `values`: task_id, role, account, status, completed_at, of `i`."""
    return f"""
INSERT INTO celeriac.history (id, task_id, role, account, status, completed_at, started_at, priority, scheduled_for,
    args, kwargs, retry_count, tries, max_rounds, losses, created_at)
SELECT nextval('celeriac.tasks_id_seq'), task_id, role, account, status, completed_at, completed_at, 0, completed_at,
    '[]', '{{}}', 0, 0, 1, 0, completed_at
FROM (SELECT {values} i) AS p (task_id, role, account, status, completed_at)"""


#: What every backlog has: 200 ready tasks, 60 active ones (12 unstarted, 12 silent), 200 that are due, some history,
#: 100 keys with a head and one behind it, 20 keys that wait for a look, an account that was resumed.
BASE = [
    # As there is wherever work has been done for a day: right after midnight UTC some of the history is of that one.
    "SELECT celeriac.add_history_day(CAST(now() AT TIME ZONE 'UTC' AS date) - 1)",
    """INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{"keep": 60}')""",
    tasks("ready", "'ready-' || i, 'work', 'q' || i % 20, NULL, 'r' || i, now() FROM generate_series(1, 200)"),
    tasks("one ticket", "'active-' || i, 'work', 'q' || i % 20, NULL, NULL, now() FROM generate_series(1, 36)"),
    tasks("a ticket each", "'claimed-' || i, 'work', 'q' || i, NULL, NULL, now() FROM generate_series(1, 12)"),
    tasks("a silent ticket each", "'silent-' || i, 'work', 'q' || i, NULL, NULL, now() FROM generate_series(1, 12)"),
    tasks("later", """'due-' || i, 'work', 'q' || i % 20, NULL, NULL, now() - interval '1 minute'
        FROM generate_series(1, 200)"""),
    past("""'done-' || i, 'work', 'q' || i % 20, (ARRAY['completed', 'failed', 'cancelled'])[1 + i % 3],
        now() - i * interval '1 second' FROM generate_series(1, 210)"""),
    tasks("ready, as heads", "'head-' || i, 'keyed', '', 'key-' || i, 'h' || i, now() FROM generate_series(1, 100)"),
    tasks("behind", "'next-' || i, 'keyed', '', 'key-' || i, 'n' || i, now() FROM generate_series(1, 100)"),
    tasks("behind", "'look-' || i, 'keyed', '', 'look-' || i, NULL, now() FROM generate_series(1, 20)"),
    "INSERT INTO celeriac.looks (lock_key) SELECT 'look-' || i FROM generate_series(1, 20) i",
    tasks("parked", "'resumed-' || i, 'work', 'resumed', NULL, NULL, now() FROM generate_series(1, 60)"),
    "INSERT INTO celeriac.unparking (account) VALUES ('resumed')",
    tasks("barriers", "'body-' || i, 'work', '', NULL, NULL, now() FROM generate_series(1, 60)"),
    "INSERT INTO celeriac.joins (barrier) SELECT CAST(md5('body-' || i) AS uuid) FROM generate_series(1, 20) i",
    "UPDATE celeriac.tasks SET barrier = CAST(md5('body-1') AS uuid) WHERE task_id LIKE 'ready-%'",
    "UPDATE celeriac.tasks SET workflow = 'whole' WHERE task_id LIKE 'body-%' OR task_id LIKE 'active-%'",
    """UPDATE celeriac.history SET barrier = CAST(md5('body-2') AS uuid), place = id, workflow = 'whole'
        WHERE task_id LIKE 'done-%' AND status = 'completed'""",
    """INSERT INTO celeriac.chain_rests (chain, place, workflow, links, created_at)
        SELECT md5('chain-' || i)::uuid, place, CASE WHEN i % 2 = 0 THEN 'whole' ELSE 'over' END, '[]',
            now() - interval '2 days' FROM generate_series(1, 60) i, generate_series(0, 2) place""",
    "INSERT INTO celeriac.account_policies (account, paused) VALUES ('q1', true)",
    """INSERT INTO celeriac.task_logs (task, attempt, level, line) SELECT i % 10, 1, 'INFO', 'x'
        FROM generate_series(1, 100) i""",
    """INSERT INTO celeriac.task_events (task, role, kind) SELECT i % 10, 'work', 'x'
        FROM generate_series(1, 100) i""",
    "INSERT INTO celeriac.passes (role, by, free) SELECT 'work', 'x', i FROM generate_series(1, 100) i",
    """INSERT INTO celeriac.audit (by, action, kind, target) SELECT 'a', 'x', 'role', 'work'
        FROM generate_series(1, 100)""",
    """INSERT INTO celeriac.minutes (role, minute, waits, runs)
        SELECT 'work', date_trunc('minute', now()) - i * interval '1 minute', ARRAY[1, 2], ARRAY[3]
        FROM generate_series(0, 99) i""",
    """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, enabled)
        VALUES ('nightly', 'work', '@daily', false)""",
    """INSERT INTO celeriac.ticks (schedule, due_at, task_id, left_out, why)
        SELECT id, now() - i * interval '1 minute', CASE WHEN i % 5 > 0 THEN 'done-' || i END,
            CASE WHEN i % 5 > 0 THEN 0 ELSE 1 END, CASE WHEN i % 5 = 0 THEN 'x' END
        FROM celeriac.scheduled_jobs, generate_series(1, 100) i WHERE name = 'nightly'""",
    "INSERT INTO celeriac.worker_samples SELECT 'w', now() - i * interval '1 min' FROM generate_series(0, 119) i",
    "INSERT INTO celeriac.ticket_samples SELECT 'work', now() - i * interval '1 min', 1 FROM generate_series(0, 119) i",
    "INSERT INTO celeriac.intake (task) SELECT '{}' FROM generate_series(1, 10)",
    "INSERT INTO celeriac.adopted (task_id) SELECT 'adopted-' || i FROM generate_series(1, 100) i",
    """INSERT INTO celeriac.dead_letters (digest, name, reason, size, message)
        SELECT sha256(CAST('base ' || i AS bytea)), 'work', 'x', 1, 'x' FROM generate_series(1, 100) i""",
    """INSERT INTO celeriac.bulk_actions (move, filter, upto, until, by, state, ended_at)
        VALUES ('retry', '{}', 1, now(), 'x', 'moving', NULL), ('retry', '{}', 1, now(), 'x', 'stopped', now())""",
    "INSERT INTO celeriac.bulk_tasks (bulk, id) SELECT 1, i FROM generate_series(1, 100) i",
]  # fmt: skip

_MANY = tasks("ready", "'many-' || i, 'work', 'm' || i % (:n / 5), NULL, NULL, now() FROM generate_series(1, :n)")

SHAPES = {
    "one deep account": [tasks("ready", "'deep-' || i, 'work', 'deep', NULL, NULL, now() FROM generate_series(1, :n)")],
    "many accounts": [_MANY],
    "accounts with caps": [
        _MANY,
        "INSERT INTO celeriac.account_policies (account, cap) SELECT 'm' || i, 5 FROM generate_series(1, :n / 5) i",
    ],
    "behind one held lock": [
        "INSERT INTO celeriac.locks (lock_key, head) VALUES ('held', 0)",
        tasks("behind", "'behind-' || i, 'work', '', 'held', NULL, now() FROM generate_series(1, :n)"),
    ],
    "behind many locks": [
        tasks("ready, as heads", """'ahead-' || i, 'other', 'm' || i % 1000, 'lock-' || i, NULL, now()
            FROM generate_series(1, :n / 2)"""),
        tasks("behind", "'behind-' || i, 'work', '', 'lock-' || i, NULL, now() FROM generate_series(1, :n / 2)"),
    ],
    "a wide chord": [
        tasks("ready", "'wide-' || i, 'work', 'deep', NULL, NULL, now() FROM generate_series(1, :n)"),
        tasks("barriers", "'wide', 'work', '', NULL, NULL, now() FROM generate_series(1, 1)"),
        """UPDATE celeriac.tasks SET barrier = CAST(md5('wide') AS uuid), workflow = 'another'
            WHERE task_id LIKE 'wide-%'""",
    ],
    "many chords": [
        tasks("barriers", "'chord-' || i, 'work', 'm' || i % 1000, NULL, NULL, now() FROM generate_series(1, :n)"),
        past("""'part-' || i, 'work', 'm' || i % 1000, 'completed', now() - i * interval '1 millisecond'
            FROM generate_series(1, :n)"""),
        """UPDATE celeriac.history SET barrier = CAST(md5('chord-' || id % 1000) AS uuid), place = id,
            workflow = 'chord-' || id % 1000 WHERE task_id LIKE 'part-%'""",
    ],
    "long chains": [
        """INSERT INTO celeriac.chain_rests (chain, place, workflow, links, created_at)
            SELECT md5(CAST(i / 100 AS text))::uuid, i % 100, 'long-' || i / 100, '[]', now() - interval '1 hour'
            FROM generate_series(1, :n) i""",
    ],
    "not due": [
        tasks("later", """'later-' || i, 'work', 'm' || i % 1000, NULL, NULL, now() + i * interval '1 second'
            FROM generate_series(1, :n)"""),
    ],
    "parked": [
        "INSERT INTO celeriac.account_policies (account, paused) VALUES ('shut', true)",
        tasks("parked", "'parked-' || i, 'work', 'shut', NULL, NULL, now() FROM generate_series(1, :n)"),
    ],
    "many paused accounts": [
        # Each policy looks through the tickets for what to hand back: by a trigger, 40,000 times.
        "SET LOCAL session_replication_role = replica",
        "INSERT INTO celeriac.account_policies (account, paused) SELECT 'm' || i, true FROM generate_series(1, :n) i",
        "SET LOCAL session_replication_role = origin",
        tasks("parked", "'parked-' || i, 'work', 'm' || i, NULL, NULL, now() FROM generate_series(1, :n)"),
    ],
    "long history": [
        past("""'past-' || i, 'work', 'm' || i % 1000, 'completed', now() - i * interval '1 millisecond'
            FROM generate_series(1, :n)"""),
        """INSERT INTO celeriac.task_events (task, role, kind) SELECT 1000 + i, 'work', 'x'
            FROM generate_series(1, :n) i""",
        "INSERT INTO celeriac.passes (role, by, free) SELECT 'work', 'x', i FROM generate_series(1, :n / 2) i",
        """INSERT INTO celeriac.audit (by, action, kind, target) SELECT 'a', 'x', 'task', i
            FROM generate_series(1, :n / 2) i""",
        """INSERT INTO celeriac.minutes (role, minute)
            SELECT 'work', date_trunc('minute', now()) - i * interval '1 minute'
            FROM generate_series(3000, 3000 + :n) i""",
        """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, enabled)
            VALUES ('often', 'work', '@every 1s', false)""",
        """INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id)
            SELECT id, now() - i * interval '1 second', now() - i * interval '1 second', 'past-' || i
            FROM celeriac.scheduled_jobs, generate_series(100, 100 + :n / 2) i WHERE name = 'often'""",
        """INSERT INTO celeriac.worker_samples SELECT 'w' || i % 500, now() - i / 500 * interval '1 min'
            FROM generate_series(1, :n / 2) i""",
        """INSERT INTO celeriac.ticket_samples SELECT 'q' || i % 500, now() - i / 500 * interval '1 min', 1
            FROM generate_series(1, :n / 2) i""",
        "INSERT INTO celeriac.adopted (task_id) SELECT 'past-' || i FROM generate_series(1, :n) i",
        """INSERT INTO celeriac.dead_letters (digest, name, reason, size, message)
            SELECT sha256(CAST('past ' || i AS bytea)), 'other', 'x', 1, 'x' FROM generate_series(1, :n / 2) i""",
        "INSERT INTO celeriac.bulk_tasks (bulk, id) SELECT 1 + i % 2, 1000 + i FROM generate_series(1, :n) i",
    ],
    "failures": [
        past("""'bad-' || i, 'work', 'm' || i % 1000, 'failed', now() - i * interval '1 millisecond'
            FROM generate_series(1, :n)"""),
    ],
    "another role's": [
        tasks("ready, as heads", """'other-' || i, 'other', 'm' || i % 1000, 'o' || i, 'o' || i, now()
            FROM generate_series(1, :n)"""),
    ],
}  # fmt: skip

#: Where tasks are, and what is told of them. `tickets` is small by design, and may be read as a whole.
ROOMS = ("tasks", "ready", "later", "behind", "parked", "barriers", "joins", "locks", "looks", "intake", "history")
TOLD = (
    "ended",
    "task_events",
    "task_logs",
    "passes",
    "audit",
    "adopted",
    "dead_letters",
    "bulk_tasks",
    "chain_rests",
    "minutes",
    "ticks",
    "worker_samples",
    "ticket_samples",
)


def is_large(table: str) -> bool:
    """A room, or a part of one."""
    return table in (*ROOMS, *TOLD) or table.startswith(("ready_", "history_2", "history_rest"))


def fill(connection: Connection, shapes: Iterable[str], n: int) -> None:
    """As right after a bulk insert: no statistics, and none to come, as nothing is committed."""
    for shape in shapes:
        run(connection, SHAPES[shape], n)
    run(connection, BASE)


def analyze_while_idle(connection: Connection) -> None:
    """Statistics of a small queue most of which is active or due: what the planner believes when a backlog arrives."""
    run(connection, BASE)
    analyze(connection)
    for table in (*ROOMS, *TOLD, "tickets", "roles", "unparking", "account_policies", "scheduled_jobs"):
        connection.execute(text(f"DELETE FROM celeriac.{table}"))


def analyze(connection: Connection) -> None:
    connection.execute(text("ANALYZE"))


#: As if no table had ever been analyzed or vacuumed.
FORGET = """
SET LOCAL allow_system_table_mods = on;
DELETE FROM pg_statistic WHERE starelid IN (
    SELECT oid FROM pg_class WHERE relnamespace = CAST('celeriac' AS regnamespace));
UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0
WHERE relnamespace = CAST('celeriac' AS regnamespace) AND relkind IN ('r', 'p', 'i')
"""


def forget(connection: Connection) -> None:
    """The planner knows nothing of the engine's tables any more."""
    connection.execute(text(FORGET))


def run(connection: Connection, script: list[str], n: int = 0) -> None:
    for statement in script:
        connection.execute(text(statement), {"n": n} if ":n" in statement else {})
