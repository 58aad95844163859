"""Rows of the subreddit crawl jobs' document."""

from __future__ import annotations

from tests.planted.defect import Defect

DOCUMENT = "tests/api/test_crawl_jobs_document.py::test_each_of_its_calls_does_what_it_says"
COLUMNS = "tests/postgres/test_documented_columns.py::test_a_crawl_job_has_the_documents_values"
WORDS = "tests/pure/test_expressions.py::test_words_and_patterns_mean_what_the_documents_say"
STATUSES = "tests/postgres/test_counts_and_tasks.py::test_the_words_of_other_systems_mean_our_statuses"
SCHEDULES = "tests/api/test_scheduled_jobs.py"
VIEWS = "migrations/versions/0005_documents.py"

DEFECTS = [
    Defect(
        "a schedule that is switched on makes up for its pause", "celeriac/store/routines/schedules.sql",
        "    IF NEW.enabled AND NOT OLD.enabled THEN\n", "    IF false THEN\n",
        "tests/postgres/ticks/test_tick.py::test_a_schedule_that_was_switched_off_has_missed_nothing",
        ("disable scheduled jobs during maintenance",),
    ),
    Defect(
        "hourly is daily", "celeriac/schedules/expressions/__init__.py",
        '"@hourly": "0 * * * *",', '"@hourly": "0 0 * * *",', WORDS,
        ("`@hourly` for high traffic only",),
    ),
    Defect(
        "a year begins in February", "celeriac/schedules/expressions/__init__.py",
        '"@yearly": "0 0 1 1 *",', '"@yearly": "0 0 1 2 *",', WORDS,
        ("`@yearly`, `@annually`",),
    ),
    Defect(
        "scheduled_jobs is found by a search path alone", "migrations/versions/0009_scheduled_jobs.py",
        "CREATE VIEW scheduled_jobs WITH", "CREATE VIEW schedules_of_jobs WITH",
        "tests/postgres/test_documented_columns.py::test_the_documents_statements_run_in_psql_with_nothing_set",
        ("table `scheduled_jobs`",),
    ),
    Defect(
        "each schedule is hourly", "celeriac/api/scheduled_jobs.py",
        'entry = Entry(kind="task", target=role, **fields)',
        'entry = Entry(kind="task", target=role, **fields | {"cron_expression": "@hourly"})',
        f"{SCHEDULES}::test_a_job_is_created_as_the_seed_does",
        ("`cron_expression`",),
    ),
    Defect(
        "a schedule's description is lost", "celeriac/api/scheduled_jobs.py",
        "for name in self.model_fields_set if name in _OWN}",
        'for name in self.model_fields_set if name in _OWN and name != "description"}',
        f"{SCHEDULES}::test_a_job_is_read",
        ("`description`",),
    ),
    Defect(
        "a schedule's changes are dropped", "celeriac/api/scheduled_jobs.py",
        "operate.change(app, job, body.entry_fields(), by", "operate.change(app, job, {}, by",
        f"{SCHEDULES}::test_a_job_is_updated",
        ("`PUT /api/admin/scheduled-jobs/{id}`",),
    ),
    Defect(
        "a schedule that misses its window is let be for an hour", "celeriac/settings.py",
        '_period("CELERIAC_ALERT_SCHEDULE_GRACE_MS", 300.0,', '_period("CELERIAC_ALERT_SCHEDULE_GRACE_MS", 3600.0,',
        "tests/postgres/test_alerts.py::test_each_of_the_seeds_four_fires_for_its_own_subject",
        ("alert: a scheduled job misses its window",),
    ),
    Defect(
        "a queue is deep from 10,000 on", "celeriac/settings.py",
        '_setting("CELERIAC_ALERT_QUEUE_DEPTH", 1000,', '_setting("CELERIAC_ALERT_QUEUE_DEPTH", 10_000,',
        "tests/postgres/test_alerts.py::test_the_thresholds_are_the_seeds",
        ("alert: queue depth above 1000",),
    ),
    Defect(
        "when a schedule ran last is not written down", "celeriac/schedules/tick.py",
        "planned_as = :planned_as, last_run_at = coalesce(:last_run_at, last_run_at),", "planned_as = :planned_as,",
        "tests/postgres/ticks/test_tick.py::test_a_due_instant_is_enqueued_once_under_its_own_name",
        ("`last_run_at`",),
    ),
    Defect(
        "durations in seconds", VIEWS,
        "w.completed_at - w.started_at) * 1000 AS integer)", "w.completed_at - w.started_at) AS integer)", COLUMNS,
        ("`duration_ms`",),
    ),
    Defect(
        "retries that are rounds", VIEWS,
        "AS visible_at, w.retry_count, w.max_retries", "AS visible_at, w.tries AS retry_count, w.max_retries", COLUMNS,
        ("`retry_count` of a crawl job",),
    ),
    Defect(
        "a crawl job that waits is pending", VIEWS,
        "w.status IN ('pending', 'claimed') THEN 'queued'", "w.status IN ('pending', 'claimed') THEN 'pending'",
        COLUMNS,
        ("`status` of a crawl job, 'queued' at first",),
    ),
    Defect(
        "of many jobs the first is retried", "tasks/crawl_jobs.py",
        "return many(app, body.job_ids, partial(steer.retry,",
        "return many(app, body.job_ids[:1], partial(steer.retry,",
        "tests/api/test_jobs.py::test_many_are_retried",
        ("`job_ids`",),
    ),
    Defect(
        "nothing is retried in bulk", "tasks/crawl_jobs.py",
        "return many(app, body.job_ids, partial(steer.retry,", "return many(app, [], partial(steer.retry,", DOCUMENT,
        ("the example of five `job_ids`",),
    ),
    Defect(
        "a priority stays as it is", "tasks/crawl_jobs.py",
        "partial(steer.set_priority, priority=body.priority,",
        "partial(steer.set_priority, priority=0 * body.priority,",
        "tests/api/test_jobs.py::test_a_priority_is_set",
        ("`PUT /api/admin/jobs/{id}/priority`",),
    ),
    Defect(
        "of many jobs the first gets a status", "tasks/crawl_jobs.py",
        "    return many(app, body.job_ids, move)\n", "    return many(app, body.job_ids[:1], move)\n",
        "tests/api/test_jobs.py::test_many_get_a_status_and_each_refusal_its_reason",
        ("`PUT /api/admin/jobs/bulk/status`",),
    ),
    Defect(
        "a page of jobs begins with the first", "tasks/crawl_jobs.py",
        "after=query.after, offset=query.offset)", "after=query.after, offset=0)",
        "tests/api/test_tasks.py::test_jobs_are_listed_by_status_with_limit_and_offset",
        ("`status`, `limit`, `offset`",),
    ),
    Defect(
        "running jobs are counted as queued", "tasks/crawl_jobs.py",
        '"running": "crawling",', '"running": "queued",',
        "tests/api/test_tasks.py::test_statistics_are_of_a_role_where_one_is_named",
        ("queued, running, failed, completed: the counts",),
    ),
    Defect(
        "an hour's wait gains nothing yet", "celeriac/repair/aging.py",
        ":step * (1 + floor(", ":step * (0 + floor(", "tests/postgres/test_aging.py::test_points_follow_from_the_wait",
        ("age starved jobs",),
    ),
    Defect(
        "priorities grow every ten minutes", "celeriac/settings.py",
        '_period("CELERIAC_AGING_INTERVAL_MS", 300.0,', '_period("CELERIAC_AGING_INTERVAL_MS", 600.0,',
        "tests/postgres/test_aging.py::test_the_defaults_are_the_documents_but_for_the_ceiling",
        ("every 5 minutes",),
    ),
    Defect(
        "no crawl is a success", "celeriac/store/states.py",
        '"success": (COMPLETED,),', '"succeeded": (COMPLETED,),', STATUSES,
        ("status success, complete",),
    ),
    Defect(
        "a running crawl is fetching", "celeriac/store/states.py",
        '"crawling": (RUNNING,),', '"fetching": (RUNNING,),', STATUSES,
        ("status crawling",),
    ),
    Defect(
        "a task waits from when it was made", "celeriac/store/routines/backlog.sql",
        "greatest(created_at, scheduled_for) AS due_at", "created_at AS due_at",
        "tests/postgres/test_metrics.py::test_a_task_waits_from_when_it_was_due",
        ("Average Wait Time",),
    ),
    Defect(
        "what is retried has failed", "celeriac/insights/fleet/metrics.py",
        "AS success_rate, hour.failed_rate,", "AS success_rate, hour.retry_rate AS failed_rate,",
        "tests/postgres/test_metrics.py::test_rates_are_of_the_last_hour",
        ("Failed Job Rate",),
    ),
    Defect(
        "a day has 23 hours", "celeriac/schedules/expressions/durations.py",
        '"d": Fraction(86_400_000_000),', '"d": Fraction(82_800_000_000),',
        "tests/pure/test_expressions.py::test_every_takes_durations_as_go_writes_them_and_days",
        ("`@every 1h`, `@every 30m`, `@every 7d`",),
    ),
    Defect(
        "crawls wait without jitter", "tasks/subreddits.py",
        "retry_jitter=0.2,", "retry_jitter=False,",
        "tests/pure/test_retries.py::test_crawl_jobs_wait_as_their_table_says",
        ("retry 3: 192 to 288 s",),
    ),
    Defect(
        "crawls begin at priority 1", "tasks/subreddits.py",
        "priority_range=(0, 100), batch_size", "priority=1, priority_range=(0, 100), batch_size",
        "tests/pure/test_documented_figures.py::test_a_crawl_is_attempted_as_the_documents_say",
        ("default priority 0",),
    ),
    Defect(
        "a subreddit that goes leaves its crawl", "migrations/versions/0004_subreddits.py",
        "AND u.status <> 'running'", "AND u.status = 'running'",
        "tests/postgres/test_crawl_jobs.py::test_a_subreddit_that_goes_takes_its_schedule_and_the_crawl_that_waits",
        ("`subreddit_id REFERENCES subreddits(id)`",),
    ),
    Defect(
        "what nobody runs is nobody's finding", "celeriac/doctor/examine.py",
        '("beat_silent", "missed_schedule")),', '("beat_silent",)),',
        "tests/postgres/commands/test_doctor.py::test_the_doctor_tells_of_schedules_that_no_beat_runs",
        ("not retrying: is the maintenance running?",),
    ),
    Defect(
        "a priority of 50 is 5", "tasks/crawl_jobs.py",
        "partial(steer.set_priority, priority=body.priority,",
        "partial(steer.set_priority, priority=body.priority // 10,", DOCUMENT,
        ("the example `{\"priority\": 50}`",),
    ),
]  # fmt: skip
