"""Backlogs of any size, each of a shape that could make a pass slow. Beside each lies the same work to find."""

from __future__ import annotations

from sqlalchemy import Connection, text

TOKEN = "00000000-0000-4000-8000-000000000001"

#: What every backlog has: 200 ready tasks, 60 active ones (12 unstarted, 12 silent), 200 that are due, some history.
BASE = f"""
INSERT INTO roles (role, definition) VALUES ('work', '{{"keep": 60}}');
INSERT INTO worker_tasks (task_id, role, account) SELECT 'ready-' || i, 'work', 'q' || i % 20
FROM generate_series(1, 200) i;
INSERT INTO worker_tasks (task_id, role, account, status, token, claimed_at, started_at, last_heartbeat_at, worker_id,
    worker_pid)
SELECT 'active-' || i, 'work', 'q' || i % 20, CASE WHEN i % 5 = 0 THEN 'claimed' ELSE 'running' END, '{TOKEN}',
    now() - interval '1 hour', now(), now() - (i % 5 = 1)::int * interval '1 hour', 'w', 1
FROM generate_series(1, 60) i;
INSERT INTO worker_tasks (task_id, role, account, waits_for, scheduled_for)
SELECT 'due-' || i, 'work', 'q' || i % 20, 'time', now() - interval '1 minute' FROM generate_series(1, 200) i;
INSERT INTO worker_tasks (task_id, role, account, status, completed_at)
SELECT 'done-' || i, 'work', 'q' || i % 20, 'completed', now() - i * interval '1 second'
FROM generate_series(1, 200) i;
INSERT INTO worker_tasks (task_id, role, account, lock_key, unique_key, waits_for)
SELECT 'keyed-' || i, 'keyed', '', 'key-' || i / 2, 'u' || i, CASE WHEN i % 2 = 1 THEN 'lock' END
FROM generate_series(0, 199) i;
"""

SHAPES = {
    "one deep account": """
        INSERT INTO worker_tasks (task_id, role, account)
        SELECT 'deep-' || i, 'work', 'deep' FROM generate_series(1, :n) i""",
    "many accounts": """
        INSERT INTO worker_tasks (task_id, role, account)
        SELECT 'many-' || i, 'work', 'm' || i % (:n / 5) FROM generate_series(1, :n) i""",
    "accounts with caps": """
        INSERT INTO worker_tasks (task_id, role, account)
        SELECT 'capped-' || i, 'work', 'm' || i % (:n / 5) FROM generate_series(1, :n) i;
        INSERT INTO account_policies (account, cap)
        SELECT 'm' || i, 5 FROM generate_series(1, :n / 5) i""",
    "behind one held lock": f"""
        INSERT INTO worker_tasks (task_id, role, lock_key, status, token, claimed_at, started_at, last_heartbeat_at,
            worker_id, worker_pid)
        VALUES ('leader', 'work', 'held', 'running', '{TOKEN}', now(), now(), now(), 'w', 1);
        INSERT INTO worker_tasks (task_id, role, lock_key, waits_for)
        SELECT 'behind-' || i, 'work', 'held', 'lock' FROM generate_series(1, :n) i""",
    "not due": """
        INSERT INTO worker_tasks (task_id, role, account, waits_for, scheduled_for)
        SELECT 'later-' || i, 'work', 'm' || i % 1000, 'time', now() + i * interval '1 second'
        FROM generate_series(1, :n) i""",
    "long history": """
        INSERT INTO worker_tasks (task_id, role, account, status, completed_at)
        SELECT 'past-' || i, 'work', 'm' || i % 1000, 'completed', now() - i * interval '1 millisecond'
        FROM generate_series(1, :n) i""",
    "another role's": """
        INSERT INTO worker_tasks (task_id, role, account, lock_key, unique_key)
        SELECT 'other-' || i, 'other', 'm' || i % 1000, 'o' || i, 'o' || i FROM generate_series(1, :n) i""",
}


def fill(connection: Connection, shape: str, n: int) -> None:
    """As right after a bulk insert: no statistics, and none to come. Unlogged, as only the test's time is at stake."""
    connection.execute(text("ALTER TABLE worker_tasks SET UNLOGGED, SET (autovacuum_enabled = false)"))
    _run(connection, SHAPES[shape], n=n)
    _run(connection, BASE)


def analyze_while_idle(connection: Connection) -> None:
    """Statistics of a small queue most of which is active or due: what the planner believes when a backlog arrives."""
    connection.execute(text("ALTER TABLE worker_tasks SET (autovacuum_enabled = false)"))
    _run(connection, BASE)
    connection.execute(text("ANALYZE worker_tasks"))
    connection.execute(text("DELETE FROM worker_tasks"))
    connection.execute(text("DELETE FROM roles"))


def analyze(connection: Connection) -> None:
    connection.execute(text("ANALYZE"))


def _run(connection: Connection, script: str, **given: int) -> None:
    for statement in filter(str.strip, script.split(";\n")):
        connection.execute(text(statement), given if ":n" in statement else {})
