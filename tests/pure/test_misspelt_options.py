"""A misspelt option of a command gets its suggestion, as a misspelt command does."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from celeriac.cli import main


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


COMMANDS = dict(commands(main))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_it_is_suggested(path: tuple[str, ...]) -> None:
    options = [name for one in COMMANDS[path].params if isinstance(one, click.Option) for name in one.opts]
    for option in (name for name in options if name.startswith("--")):
        misspelt = option[:-2] + option[-1] + option[-2] + option[-1]
        done = CliRunner().invoke(main, [*path, misspelt])
        assert (done.exit_code, f"No such option '{misspelt}'" in done.output) == (2, True)
        assert f"'{option}'" in done.output.partition("Did you mean")[2], done.output


def test_a_misspelt_command_is_suggested_too() -> None:
    assert "Did you mean 'check'?" in CliRunner().invoke(main, ["chekc"]).output
