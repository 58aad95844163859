"""Defects of different kinds, each of which has to fail by day."""

from __future__ import annotations

from tests.planted.defect import Defect

DEFECTS = [
    Defect(
        "a plan that scans", "celeriac/dispatch/select.py",
        '"SELECT true FROM celeriac.ready WHERE role = :role ORDER BY account LIMIT 1"',
        '"SELECT true FROM celeriac.ready WHERE role = :role GROUP BY role"',
        "tests/postgres/test_plans.py::test_no_statement_reads_the_backlog[deep]",
    ),
    Defect(
        "a lost settle", "celeriac/settle/write.py",
        "FROM gone g JOIN mine m ON m.id = g.id, held h WHERE :keep OR g.barrier IS NOT NULL",
        "FROM gone g JOIN mine m ON m.id = g.id, held h WHERE :keep AND g.barrier IS NOT NULL",
        "tests/postgres/test_settle.py::test_a_success_is_written_once_with_its_result",
    ),
    Defect(
        "a wrong share", "celeriac/dispatch/fairness.py",
        "((claimant.holding + share) / claimant.weight, turn)", "(claimant.holding + share, turn)",
        "tests/pure/test_fairness.py::test_double_weight_holds_double",
    ),
    Defect(
        "a broken page", "celeriac/dashboard/pages/failures.html",
        "<h1>Failures</h1>", "<h1>{{ failures.value.no.such.thing }}</h1>",
        "tests/dashboard/test_pages.py::test_a_page_without_data_says_so[failures]",
    ),
    Defect(
        "a wrong document row", "docs/documents.md",
        "`tasks/stale_thumbnails.py::_is_stuck`", "`tasks/stale_thumbnails.py::was_stuck`",
        "tests/pure/test_documents.py::test_every_row_holds",
    ),
    Defect(
        "a leaking secret", "celeriac/store/sensitive.py",
        "return HIDDEN if name in self.names and value is not None else self.within(value)",
        "return self.within(value)",
        "tests/pure/test_sensitive.py::test_what_is_called_so_is_hidden_by_place_by_name_and_within",
    ),
    Defect(
        "a missed tick", "celeriac/schedules/decide.py",
        "return ([job.next_run_at], 0) if job.misfire == \"once\" else ([], 1)", "return ([], 1)",
        "tests/postgres/ticks/test_tick.py::test_a_beat_that_was_off_for_three_periods",
    ),
    Defect(
        "a docs block that does not run", "docs/stores.md",
        "SELECT generate_resync_tasks(6, '2025-01-10'); ", "SELECT generate_resyncs(6, '2025-01-10'); ",
        "tests/deploy/test_blocks.py::test_sql_runs",
    ),
    Defect(
        "a broken manifest", "deploy/kubernetes/base/worker-product-resync.yaml",
        "  replicas: 1\n", "  replica: 1\n",
        "tests/deploy/test_kubernetes.py::test_the_platform_and_our_rules_take_them",
    ),
    Defect(
        "a migration that Postgres refuses", "migrations/versions/0009_scheduled_jobs.py",
        "CREATE VIEW scheduled_jobs WITH", "CREATE VIEWS scheduled_jobs WITH",
        "tests/postgres/test_documented_columns.py::test_a_crawl_job_has_the_documents_values",
        at_setup='syntax error at or near "VIEWS"',
    ),
    Defect(
        "a typing error", "celeriac/seam/task.py",
        "def using(self, **options: Unpack[CallOptions]) -> Call[P]:", "def using(self, **options: Any) -> Call[P]:",
        "tests/typing/test_typing.py::test_the_good_is_accepted_and_each_planted_mistake_refused[mypy]",
    ),
]  # fmt: skip
