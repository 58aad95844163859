"""docs/flower.md says where each figure of celery-exporter lies: under names that there are."""

from __future__ import annotations

import re

from celeriac.alerts.rules import RULES
from celeriac.metrics.catalogue import METRICS
from tests.processes import ROOT

SECTION = (ROOT / "docs" / "flower.md").read_text().partition("## What celery-exporter gives")[2]

#: Of its README, without what it has of one broker alone.
THEIRS = {
    "celery_task_sent_total", "celery_task_received_total", "celery_task_started_total", "celery_task_succeeded_total",
    "celery_task_failed_total", "celery_task_rejected_total", "celery_task_revoked_total", "celery_task_retried_total",
    "celery_worker_up", "celery_worker_tasks_active", "celery_task_runtime", "celery_queue_length",
    "celery_active_consumer_count", "celery_active_worker_count", "celery_active_process_count",
}  # fmt: skip


def test_each_figure_of_theirs_has_its_place_among_ours() -> None:
    rows = re.findall(r"^\| (`celery_.+?) \| (.+) \|$", SECTION, re.MULTILINE)
    assert {name for theirs, _ in rows for name in re.findall(r"`(\w+)`", theirs)} == THEIRS
    ours = {metric.full_name for metric in METRICS}
    for theirs, here in rows:
        named = set(re.findall(r"`(celeriac_\w+)`", here))
        assert named, theirs
        assert named <= ours, theirs


def test_their_alerts_are_ours() -> None:
    assert {"failed_rate", "no_worker"} <= {rule.name for rule in RULES}
