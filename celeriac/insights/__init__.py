"""All reads behind the command line, the HTTP API and the dashboard. Nothing here writes.

Every function takes a connection, and its cost does not depend on the backlog or the history: lists walk an index page
by page, counts stop at a bound and report that they did. Times are the database's.
"""

from celeriac.insights.failures.dead_letters import dead_letter, dead_letters
from celeriac.insights.failures.failed import failed_tasks
from celeriac.insights.failures.failures import FailureGroup, Failures, failed_of, failed_page, failing, failures
from celeriac.insights.fairness.account import AccountRole, account_holdings, account_oldest, account_roles
from celeriac.insights.fairness.accounts import AccountHour, account_hours
from celeriac.insights.fairness.locks import Lock, Locks, WaitingTask, lock, locks, queue_of
from celeriac.insights.fairness.received import received_by
from celeriac.insights.fairness.rounds import Turns, rounds_waited, turns
from celeriac.insights.fairness.shares import AccountShare, Shares, shares, waiting_of
from celeriac.insights.fairness.unique_keys import UniqueKey, unique_keys
from celeriac.insights.fleet.capacity import capacity, heartbeats
from celeriac.insights.fleet.hours import Sample, done_by_worker, worker_hour
from celeriac.insights.fleet.metrics import metrics, priorities, priorities_of
from celeriac.insights.fleet.system import (
    UnstartedTickets,
    account_policies,
    account_policy,
    all_gone,
    audit_trail,
    beats,
    passes,
    paused_accounts,
    reviews,
    schedules,
    unstarted,
    workers,
    workers_by_name,
)
from celeriac.insights.fleet.ticket_hours import ticket_hours
from celeriac.insights.history.alerts import Look, firing, looks, pending_alerts, silences
from celeriac.insights.history.minutes import Flow, Lengths, Retries, Step, flow, last_hour, lengths, retries, together
from celeriac.insights.history.sweeps import SweepRuns, sweep_runs
from celeriac.insights.history.ticks import Lateness, Ticking, lateness, ticking, ticks_of
from celeriac.insights.tasks.bulks import bulk, bulks
from celeriac.insights.tasks.clock import clock
from celeriac.insights.tasks.counting import CAP, Count, RoleDepth, counts, depth, slow_windows, waiting
from celeriac.insights.tasks.lists import (
    ARGUMENT,
    MOST_OFFSET,
    MOST_ROWS,
    Filter,
    Matching,
    Moment,
    Page,
    as_argument,
    check,
    list_tasks,
    matching,
    matching_page,
    moment,
    refuse_both,
)
from celeriac.insights.tasks.redaction import refuse_sensitive
from celeriac.insights.tasks.tasks import active_under, find, get, last_completion, row_of, rows_of, unfinished
from celeriac.insights.tasks.under_way import UnderWay, workflows_under_way
from celeriac.insights.tasks.views import saved_views
from celeriac.insights.tasks.workflows import Workflow, workflow, workflow_of, workflow_tasks
from celeriac.insights.why.checks import Check
from celeriac.insights.why.reasons import Waits, waits_of
from celeriac.insights.why.situation import Broker
from celeriac.insights.why.why import History, Why, history, why

__all__ = [
    "ARGUMENT",
    "CAP",
    "MOST_OFFSET",
    "MOST_ROWS",
    "AccountHour",
    "AccountRole",
    "AccountShare",
    "Broker",
    "Check",
    "Count",
    "FailureGroup",
    "Failures",
    "Filter",
    "Flow",
    "History",
    "Lateness",
    "Lengths",
    "Lock",
    "Locks",
    "Look",
    "Matching",
    "Moment",
    "Page",
    "Retries",
    "RoleDepth",
    "Sample",
    "Shares",
    "Step",
    "SweepRuns",
    "Ticking",
    "Turns",
    "UnderWay",
    "UniqueKey",
    "UnstartedTickets",
    "WaitingTask",
    "Waits",
    "Why",
    "Workflow",
    "account_holdings",
    "account_hours",
    "account_oldest",
    "account_policies",
    "account_policy",
    "account_roles",
    "active_under",
    "all_gone",
    "as_argument",
    "audit_trail",
    "beats",
    "bulk",
    "bulks",
    "capacity",
    "check",
    "clock",
    "counts",
    "dead_letter",
    "dead_letters",
    "depth",
    "done_by_worker",
    "failed_of",
    "failed_page",
    "failed_tasks",
    "failing",
    "failures",
    "find",
    "firing",
    "flow",
    "get",
    "heartbeats",
    "history",
    "last_completion",
    "last_hour",
    "lateness",
    "lengths",
    "list_tasks",
    "lock",
    "locks",
    "looks",
    "matching",
    "matching_page",
    "metrics",
    "moment",
    "passes",
    "paused_accounts",
    "pending_alerts",
    "priorities",
    "priorities_of",
    "queue_of",
    "received_by",
    "refuse_both",
    "refuse_sensitive",
    "retries",
    "reviews",
    "rounds_waited",
    "row_of",
    "rows_of",
    "saved_views",
    "schedules",
    "shares",
    "silences",
    "slow_windows",
    "sweep_runs",
    "ticket_hours",
    "ticking",
    "ticks_of",
    "together",
    "turns",
    "unfinished",
    "unique_keys",
    "unstarted",
    "waiting",
    "waiting_of",
    "waits_of",
    "why",
    "worker_hour",
    "workers",
    "workers_by_name",
    "workflow",
    "workflow_of",
    "workflow_tasks",
    "workflows_under_way",
]
