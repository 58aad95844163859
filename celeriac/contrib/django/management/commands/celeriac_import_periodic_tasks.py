"""`manage.py celeriac_import_periodic_tasks` imports the schedules of django-celery-beat, once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from celeriac.cli import output
from celeriac.contrib.django import periodic
from celeriac.contrib.django.databases import celeriac_app


class Command(BaseCommand):
    help = "Makes schedules of django-celery-beat's periodic tasks. One that is there already stays as it is."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Show what would become of each, and write nothing.")

    def handle(self, *_: Any, dry_run: bool = False, **__: Any) -> None:
        """Import the rows and print what became of each. Raises CommandError at the end if some were refused."""
        app = celeriac_app()
        if app is None:
            raise CommandError("the project's app is no Celeriac app")
        refused: list[str] = []
        try:
            for row in periodic.import_rows(app, by=output.by(), dry_run=dry_run):
                self.stdout.write(f"{row.name}: {row.became}: {row.how}")
                refused += [row.name] if row.became == periodic.REFUSED else []
        except LookupError:
            raise CommandError("django_celery_beat is not in INSTALLED_APPS") from None
        if refused:
            raise CommandError(f"{len(refused)} refused: {', '.join(refused)}")
        if not dry_run:
            self.stdout.write("Stop the beat of django-celery-beat's scheduler now, or each of them runs twice.")
