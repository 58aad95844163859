"""Rows of the store worker tasks' document."""

from __future__ import annotations

from tests.planted.defect import Defect

COUNTED = "tests/postgres/test_capacity.py::test_tasks_are_counted_by_their_state"
FIGURES = "tests/pure/test_documented_figures.py::test_workers_have_the_documents_defaults"
MIGRATED = "tests/api/test_stores.py::test_the_old_systems_are_told_and_stopped_step_by_step"
CALLS = "tests/api/test_documented_calls.py::test_the_documents_calls_are_answered"
GOVERNED = "tests/pure/test_governor.py"
STORES = "tests/systems/test_stores.py"
RESYNCS = "tests/systems/test_resyncs.py"
LINES = "tests/end_to_end/test_log_lines.py::test_lines_tell_who_works_at_what"

DEFECTS = [
    Defect(
        "a browser is launched without its proxy", "tasks/chromium.py",
        'self._context("a visit", proxy=proxy, user_agent=agent)', 'self._context("a visit", user_agent=agent)',
        "tests/outside/test_visits.py"
        "::test_what_pages_tell_is_read_by_another_visitor_each_who_knows_nothing_of_those_before",
        ("3. launch the browser with the proxy",),
    ),
    Defect(
        "active workers are not heard", "celeriac/store/routines/rooms.sql",
        "celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at) AS last_heartbeat_at,",
        "CAST(NULL AS timestamptz) AS last_heartbeat_at,",
        "tests/postgres/test_seed_queries.py::test_the_health_check",
        ("check if workers are active",),
    ),
    Defect(
        "all memory is in use", "celeriac/worker/resources.py",
        '"memory_total_mb": round(self.memory_total_mb, 1),', '"memory_total_mb": round(self.memory_mb, 1),',
        "tests/pure/test_memory.py::test_what_is_measured_is_what_a_heartbeat_tells",
        ("`memoryMb`, `memoryTotalMb`",),
    ),
    Defect(
        "three workers drain no faster than one", "celeriac/store/routines/backlog.sql",
        "/ (3600 * live.workers * pace.slots_per_worker)", "/ (3600 * pace.slots_per_worker)",
        "tests/postgres/test_capacity.py::test_the_seeds_example_of_three_workers",
        ("`estimated_hours_to_drain`",),
    ),
    Defect(
        "old schedules stay enabled", "tasks/legacy.py",
        ".values(enabled=False, next_run_at=None)", ".values(next_run_at=None)",
        f"{RESYNCS}::test_each_step_says_what_it_did_and_does_it_once",
        ("1. disable all `job_schedules`",),
    ),
    Defect(
        "how long a worker may be silent is not asked", "celeriac/api/tasks.py",
        "rescue(app, minutes=minutes, operator=caller.name)", "rescue(app, operator=caller.name)",
        "tests/api/test_tasks.py::test_tasks_of_silent_workers_are_recovered",
        ("curl of `recover-stale` with `threshold_minutes`",),
    ),
    Defect(
        "workers look every 5 seconds", "celeriac/settings.py",
        '_period("POLL_INTERVAL_MS", 1.0,', '_period("POLL_INTERVAL_MS", 5.0,',
        "tests/deploy/test_readme.py::test_every_numeric_setting_is_told_with_its_default[poll_interval]",
        ("`POLL_INTERVAL_MS`, default 5000",),
    ),
    Defect(
        "what has no retries left is retried", "docs/monitoring.md",
        "WHERE status = 'failed' AND retry_count < max_retries;", "WHERE status = 'failed';",
        "tests/postgres/test_seed_queries.py::test_retrying_failed_tasks_as_the_document_writes_it",
        ("retry failed tasks",),
    ),
    Defect(
        "a back-off lasts a minute", "celeriac/settings.py",
        '_period("BACKOFF_DURATION_MS", 10.0,', '_period("BACKOFF_DURATION_MS", 60.0,',
        f"{GOVERNED}::test_a_back_off_lasts_its_time_and_ends_with_its_cause",
        ("`BACKOFF_DURATION_MS`, default 10000",),
    ),
    Defect(
        "workers back off at 99 % CPU", "celeriac/settings.py",
        '_setting("CPU_BACKOFF_THRESHOLD", 0.9,', '_setting("CPU_BACKOFF_THRESHOLD", 0.99,',
        f"{GOVERNED}::test_cpu_above_its_threshold_is_a_reason",
        ("`CPU_BACKOFF_THRESHOLD`, default 0.90",),
    ),
    Defect(
        "a store's task is stale after 15 minutes", "tasks/stores.py",
        "timeout=900, stale_after=600,", "timeout=900, stale_after=900,", FIGURES,
        ("stale after 10 minutes",),
    ),
    Defect(
        "what has become due is not counted as ready", "celeriac/store/routines/backlog.sql",
        "backlog.ready + backlog.due + backlog.behind_lock", "backlog.ready + backlog.behind_lock", COUNTED,
        ("`ready_tasks`",),
    ),
    Defect(
        "running tasks are counted as claimed", "celeriac/store/routines/backlog.sql",
        "backlog.claimed AS claimed_tasks,", "backlog.running AS claimed_tasks,", COUNTED,
        ("`claimed_tasks`",),
    ),
    Defect(
        "amber from 60 %", "celeriac/dashboard/words.py",
        'return "ok" if percent < 50 else', 'return "ok" if percent < 60 else',
        "tests/pure/test_dashboard_words.py::test_resources_in_the_words_of_the_workers_dashboard",
        ("green, yellow, amber, red from 50, 75, 90 %",),
    ),
    Defect(
        "ready tasks have no index in their order", "celeriac/store/migrations/versions/0001_rooms.sql",
        "(role, account, priority DESC, due_at, id, seg);", "(role, account, due_at, id, priority, seg);",
        "tests/postgres/test_plans.py::test_no_statement_reads_the_backlog[deep]",
        ("`idx_worker_tasks_pending_priority`",),
    ),
    Defect(
        "a ticket is started twice", "celeriac/run/start.py",
        "AND (worker_id IS NULL OR :again AND", "AND (true OR :again AND",
        "tests/postgres/test_start.py::test_a_ticket_starts_its_tasks_once",
        ("1. claim a task",),
    ),
    Defect(
        "resyncs of a state are those of all", "tasks/legacy.py",
        "taking_part.where(Dispensary.state == state_code)", "taking_part.where(Dispensary.state != state_code)",
        MIGRATED,
        ("curl of `create-resync-tasks` with `state_code`",),
    ),
    Defect(
        "old crawl jobs are called failed", "tasks/legacy.py",
        '.values(status="cancelled", completed_at=', '.values(status="failed", completed_at=', MIGRATED,
        ("curl of `cancel-pending-crawl-jobs`",),
    ),
    Defect(
        "a role that nobody declared", "celeriac/enqueue/intake.py",
        "            raise UnknownRole(\n", "            raise BadArguments(\n",
        "tests/postgres/enqueue/test_enqueue.py::test_an_unknown_role_is_refused",
        ("type `task_role`",),
    ),
    Defect(
        "all stores at midnight", "migrations/versions/0007_planned_resyncs.py",
        "SELECT id, due FROM (\n                SELECT id, starts + lasts * mod(",
        "SELECT id, due FROM (\n                SELECT id, starts + 0 * lasts * mod(",
        f"{RESYNCS}::test_six_batches_are_four_hours_apart_and_each_store_is_in_one",
        ("`SELECT generate_resync_tasks(6, '2025-01-10')`",),
    ),
    Defect(
        "a browser without work stays", "tasks/browser.py",
        "self._orders.get(timeout=IDLE if self._chromium.runs else None)", "self._orders.get()",
        "tests/outside/test_browser.py::test_a_browser_without_work_closes_and_starts_again",
        ("6. close the browser",),
    ),
    Defect(
        "a heartbeat has no limit of tasks", "celeriac/insights/fleet/capacity.py",
        '        "max_concurrent_tasks": concurrency,\n', "",
        "tests/postgres/test_capacity.py::test_a_heartbeat_is_the_seeds_document",
        ("the heartbeat's document",),
    ),
    Defect(
        "what came first goes first, whatever its priority", "celeriac/dispatch/claim.py",
        "ORDER BY priority DESC, due_at, id LIMIT share.n", "ORDER BY due_at, id LIMIT share.n",
        "tests/postgres/test_fair_passes.py"
        "::test_within_an_account_the_highest_priority_that_was_due_first_goes_first",
        ("`ORDER BY priority DESC, created_at ASC`",),
    ),
    Defect(
        "browsers take no memory", "tasks/stores.py",
        "MEMORY = browser.MEMORY if WITH_BROWSER else None", "MEMORY = None",
        "tests/outside/test_environment.py"
        "::test_where_stores_have_web_pages_they_are_looked_for_daily_by_workers_with_a_browser_s_memory",
        ("predictable memory",),
    ),
    Defect(
        "pods without end", "celeriac/cli/objects.py",
        '"maxReplicaCount": 8,', '"maxReplicaCount": 800,',
        "tests/deploy/test_kubernetes.py::test_a_worker_is_scaled_to_8_pods_at_most",
        ("more pods, up to 8",),
    ),
    Defect(
        "a pod has no replicas", "deploy/kubernetes/base/worker-product-resync.yaml",
        "  replicas: 1\n", "  replicas: none\n",
        "tests/deploy/test_kubernetes.py::test_the_platform_and_our_rules_take_them",
        ("Kubernetes: Deployment `task-worker-resync`, 3 replicas",),
    ),
    Defect(
        "a line names no store", "celeriac/run/lines.py",
        'whose = "".join(f" for {what} {value}" for what, value in about.items())', 'whose = ""', LINES,
        ("“Claimed task 123 (product_resync) for dispensary 456”",),
    ),
    Defect(
        "a worker names itself", "celeriac/worker/step.py",
        "shared.name_worker(_named(worker.app.settings.worker_id) or shared.fresh_name(_declared(served)))",
        "shared.name_worker(shared.fresh_name(_declared(served)))", LINES,
        ("start with a custom id: `resync-1`",),
    ),
    Defect(
        "a store found again stays as it was", "tasks/catalogue.py",
        "SET name = excluded.name, city", "SET name = dispensaries.name, city",
        f"{STORES}::test_a_store_found_again_is_corrected_and_not_resolved_again",
        ("`handlers/store-discovery.ts`",),
    ),
    Defect(
        "a store that no platform knows is looked for again", "tasks/stores.py",
        'raise Permanent(f"{store.platform} has no store', 'raise LookupError(f"{store.platform} has no store',
        f"{STORES}::test_a_store_that_dutchie_does_not_know_fails_at_once",
        ("`handlers/entry-point-discovery.ts`",),
    ),
    Defect(
        "a resolved store gets no products", "tasks/stores.py",
        "    product_discovery.delay(dispensary_id)\n", "",
        f"{STORES}::test_stores_are_found_resolved_and_stocked_each_step_by_the_one_before",
        ("product discovery",),
    ),
    Defect(
        "a store's tasks have no lock", "celeriac/enqueue/intake.py",
        '"lock_key": lambda: lock_of(role.lock_by, arguments, role.name),', '"lock_key": lambda: None,',
        "tests/faults/test_store_locks.py::test_a_stores_tasks_never_overlap_and_no_role_starves",
        ("one active task a store",),
    ),
    Defect(
        "a worker that backs off tells nobody", "celeriac/metrics/process.py",
        '"worker_backing_off", means in governor.back_off.short, means', '"worker_backing_off", False, means',
        "tests/end_to_end/test_metrics_port.py::test_a_worker_that_backs_off_tells_what_it_is_short_of",
        ("watch for frequent back-offs",),
    ),
    Defect(
        "a system's tasks are left out", "tasks/__init__.py",
        "from tasks import instasites, old_thumbnails,", "from tasks import old_thumbnails,",
        "tests/systems/test_instasites.py::test_another_python_process_enqueues_with_delay",
        ("`src/tasks/index.ts`",),
    ),
]  # fmt: skip
