"""The engine on what others have: older servers, other Pythons, PgBouncer, the release before. Run by hand.

servers      Debian's, started as the embedded ones are
pooled       `make pgbouncer`: the engine's tests through PgBouncer
connections  how many connections workers have, directly and through it
__main__     `make matrix`: the engine's tests on each Postgres, Redis and Python there is
mixed        two releases on one database, under load
load         what connections and mixed run
"""

#: What of the engine meets Postgres: from the enqueue to the settle, locks, schedules, workflows, and a worker.
ENGINE = (
    *(
        f"tests/postgres/test_{name}.py"
        for name in (
            "callers_sessions", "cursor", "deadlocks", "early_commit", "enqueue", "enqueue_by_name", "enqueue_in_sql",
            "fair_passes", "follow_up_locks", "lease", "lock_races", "locks", "lone_start", "migrations", "outbox",
            "passes", "prepared_plans", "release", "ring", "settle", "silence", "start", "statement_limits", "tick",
            "workflows",
        )
    ),
    "tests/end_to_end/test_worker.py",
)  # fmt: skip
