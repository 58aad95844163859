"""The command `celeriac`, for what Celery's own does not do. Celery has it as a command of its own, too: a plugin.

tree        all commands, in the order of the help; former: the names they had
group       the group itself, finding the app, errors in a line
output      text for people, JSON for programs, exit statuses
choice      the tasks a command means: ids, or a filter
…           a module for each group of commands
"""

from celeriac.cli.group import main, within_celery
from celeriac.cli.tree import SECTIONS

for root in (main, within_celery):
    root.sections = SECTIONS
    for commands in SECTIONS.values():
        for name, command in commands.items():
            root.add_command(command, name)

__all__ = ["main", "within_celery"]
