"""The engine on what others have: older servers, other Pythons, PgBouncer, the release before. Run by hand.

servers      installed ones, started as the embedded ones are
pooled       `make pgbouncer`: the engine's tests through PgBouncer
connections  how many connections workers have, directly and through it
__main__     `make matrix`: the engine's tests on each Postgres, Redis and Python there is
packages     the engine's tests on other releases of SQLAlchemy, Celery and kombu
around       tracing agents and locks beside stock Celery and beside Celeriac
django       the tests of a Django project on Django's newer releases
mixed        two releases on one database, under load
load         what connections and mixed run
"""

#: What of the engine meets Postgres: from the enqueue to the settle, locks, schedules, workflows, and a worker.
ENGINE = (
    *(
        f"tests/postgres/{name}"
        for name in (
            "enqueue", "test_arrive.py", "test_callers_sessions.py", "test_cursor.py", "test_deadlocks.py",
            "test_early_commit.py", "test_enqueue_by_name.py", "test_enqueue_in_sql.py", "test_fair_passes.py",
            "test_few_start.py", "test_follow_up_locks.py", "test_lease.py", "test_lock_races.py", "test_locks.py",
            "test_migrations.py", "test_outbox.py", "test_passes.py", "test_prepared_plans.py", "test_release.py",
            "test_ring.py", "test_settle.py", "test_silence.py", "test_start.py", "test_statement_limits.py",
            "test_workflows.py", "tickets", "ticks",
        )
    ),
    "tests/end_to_end/test_worker.py",
)  # fmt: skip

#: The same in short: what an enqueue, a pass, a start, a settle and a worker need.
SHORT = (
    "tests/postgres/enqueue", "tests/postgres/test_passes.py", "tests/postgres/test_settle.py",
    "tests/postgres/test_locks.py", "tests/postgres/test_migrations.py", "tests/end_to_end/test_worker.py",
)  # fmt: skip
