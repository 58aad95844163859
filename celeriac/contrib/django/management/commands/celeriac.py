"""`manage.py celeriac …` runs the command `celeriac …` with the project's app."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from django.core.management.base import BaseCommand

from celeriac.cli import within_celery
from celeriac.contrib.django.databases import celeriac_app


class Command(BaseCommand):
    help = "What Celeriac's own command does: status, check, migrate, tasks, schedules, …"
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command with all options unparsed."""
        within_celery.main(argv[2:], prog_name=" ".join(argv[:2]), obj=_context())

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, arguments: Sequence[str] = (), **__: Any) -> None:
        """Run the command from `call_command("celeriac", …)`: raises click's exceptions."""
        within_celery.main(list(arguments), obj=_context(), standalone_mode=False)


def _context() -> SimpleNamespace:
    return SimpleNamespace(app=celeriac_app())
