"""A small project to begin with: `celeriac init`."""

from __future__ import annotations

from pathlib import Path

import click

from celeriac.cli import output
from celeriac.cli.group import Command, Refused

#: Its files, each with a suffix that keeps it from being one of this package's modules.
PROJECT = Path(__file__).parent / "project"
SUFFIX = ".txt"


def files() -> dict[str, str]:
    """What each file of a new project says, by its name."""
    return {path.name.removesuffix(SUFFIX): path.read_text() for path in sorted(PROJECT.iterdir())}


@click.command(cls=Command)
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write a small project into FOLDER: two roles, a schedule, their tests, a README. Overwrites nothing."""
    written = files()
    if taken := [name for name in written if (folder / name).exists()]:
        raise Refused(f"{folder} has {', '.join(taken)} already: name another folder; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        (folder / name).write_text(text)
    message = f"{', '.join(written)} are in {folder}. There, `pytest` runs the tests, `celeriac up` the rest."
    output.tell({"folder": str(folder), "files": list(written)}, message)


COMMANDS = (init,)
