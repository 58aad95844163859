"""Write a small project to begin with, or the files that deploy one: `celeriac init`."""

from __future__ import annotations

from pathlib import Path

import click

from celeriac.cli import deployment, output
from celeriac.cli.group import Command, Refused

#: The project's files. Their suffix keeps them from being modules of this package.
PROJECT = Path(__file__).parent / "project"
SUFFIX = ".txt"


def files() -> dict[str, str]:
    """Return the text of each file of a new project, by its name."""
    return {path.name.removesuffix(SUFFIX): path.read_text() for path in sorted(PROJECT.iterdir())}


@click.command(cls=Command)
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--deploy", is_flag=True, help="Instead, write what deploys the app's roles: image, compose, manifests, alerts."
)
@click.option("--overwrite", is_flag=True, help="With --deploy: replace existing files, because roles have changed.")
@click.pass_context
def init(context: click.Context, folder: Path, deploy: bool, overwrite: bool) -> None:
    """Write a small project into FOLDER: two roles, a schedule, their tests, a README. Overwrites nothing."""
    if overwrite and not deploy:
        raise click.UsageError("--overwrite goes with --deploy")
    written = _of_deploy(context) if deploy else files()
    if not overwrite and (taken := [name for name in written if (folder / name).exists()]):
        instead = "say --overwrite" if deploy else "name another folder"
        raise Refused(f"{folder} has {', '.join(taken)} already: {instead}; nothing was written")
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    then = "`docker compose up --build` runs it all" if deploy else "`pytest` runs the tests, `celeriac up` the rest"
    output.tell(
        {"folder": str(folder), "files": list(written)}, f"{', '.join(written)} are in {folder}. There, {then}."
    )


def _of_deploy(context: click.Context) -> dict[str, str]:
    app = context.obj()
    name = context.parent.params.get("name") if context.parent else None
    return deployment.files(app, name or app.main or "tasks")
