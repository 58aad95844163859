"""The command `celeriac`, for what Celery's own does not do. Celery has it as a command of its own, too: a plugin.

group       the group itself, finding the app, errors in a line
output      text for people, JSON for programs, exit statuses
choice      the tasks a command means: ids, or a filter
…           a module for each group of commands
"""

from celeriac.cli import (
    alerts,
    bulks,
    contention,
    dead_letters,
    doctor,
    enqueuers,
    failures,
    figures,
    init,
    policies,
    recover,
    report,
    schedules,
    simulate,
    stack,
    status,
    steering,
    tasks,
    tokens,
    workers,
    workflows,
)
from celeriac.cli.group import main, within_celery

for module in (
    init, stack, status, doctor, tasks, steering, bulks, failures, contention, workflows, policies, workers, recover,
    report, schedules, dead_letters, alerts, figures, simulate, tokens,
    enqueuers,
):  # fmt: skip
    for command in module.COMMANDS:
        main.add_command(command)
        within_celery.add_command(command)

__all__ = ["main", "within_celery"]
