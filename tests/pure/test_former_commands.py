"""Former names of commands are refused with the new ones, and nothing tells of them any more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from celeriac.cli import main, within_celery
from celeriac.cli.former import FORMER
from celeriac.cli.tree import SECTIONS
from tests.processes import ROOT

#: Where people read of commands: what the engine prints, the pages, what is deployed.
TEXTS = [
    path
    for folder, suffixes in {
        "celeriac": {".py", ".sql", ".html", ".txt", ".js"},
        "docs": {".md"}, "deploy": {".py", ".md", ".yml", ".yaml", ".json"}, "demo": {".py"}, "faults": {".py"},
        ".": {".md", ".yml"},
    }.items()
    for path in sorted((ROOT / folder).glob("*" if folder == "." else "**/*"))
    if path.suffix in suffixes and "migrations" not in path.parts
]  # fmt: skip

#: A command within a text; not the name of a thread, of a lock.
NAMED = re.compile(r"\bceleriac(?: -A [\w.{}]+)?\s+(?!(?:log|alerts)['\"])([a-z][a-z-]*)(?:\s+([a-z][a-z-]*))?")


def resolved(*words: str) -> click.Command | None:
    """Return the command that these words name, or the group."""
    command: click.Command | None = main
    for word in words:
        command = command.commands.get(word) if isinstance(command, click.Group) else None
    return command


@pytest.mark.parametrize("name", FORMER)
@pytest.mark.parametrize("group", [main, within_celery], ids=["celeriac", "celery celeriac"])
def test_a_former_name_is_refused_with_what_it_is_now(group: click.Group, name: str) -> None:
    arguments = [*name.split(), *(["7"] if resolved(name) else []), "--limit", "3"]
    done = CliRunner().invoke(group, arguments, obj=SimpleNamespace(app=None))
    now = " or ".join(f"celeriac {one}" for one in FORMER[name])
    assert (done.exit_code, f"celeriac {name} is now: {now}\n" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_of_two_meanings_both_are_named(name: str) -> None:
    done = CliRunner().invoke(main, [name])
    assert f"is now: celeriac accounts {name} or celeriac roles {name}\n" in done.stderr


@pytest.mark.parametrize("name", [name for name in FORMER if isinstance(resolved(*name.split()), click.Group)])
@pytest.mark.parametrize("group", [main, within_celery], ids=["celeriac", "celery celeriac"])
def test_a_command_that_is_a_group_now_is_refused_by_its_bare_name_too(group: click.Group, name: str) -> None:
    done = CliRunner().invoke(group, [name], obj=SimpleNamespace(app=None))
    now = " or ".join(f"celeriac {one}" for one in FORMER[name])
    assert (done.exit_code, f"celeriac {name} is now: {now}\n" in done.stderr) == (2, True), done.stderr
    assert CliRunner().invoke(group, [name, "--help"], obj=SimpleNamespace(app=None)).exit_code == 0


def test_what_it_is_now_is_there() -> None:
    new = {name.partition(" --")[0] for names in FORMER.values() for name in names}
    assert {name for name in new if resolved(*name.split()) is None} == set()


def test_the_help_is_ordered_by_what_one_wants_to_do() -> None:
    ordered = [name for commands in SECTIONS.values() for name in commands]
    for group in (main, within_celery):
        told = CliRunner().invoke(group, ["--help"]).stdout
        assert re.findall(r"^  ([a-z][a-z-]*)  +\S", told, re.MULTILINE) == ordered
        assert re.findall(r"^(\w.*):$", told, re.MULTILINE)[1:] == [*SECTIONS]
    assert len(ordered) <= 24


def named(text: str) -> Iterator[tuple[str, str]]:
    """Yield each former name and a word after it."""
    first = {name.split()[0] for name in FORMER}
    yield from ((one[1], one[2] or "") for one in NAMED.finditer(text) if one[1] in first)


def test_no_text_tells_of_a_former_name() -> None:
    assert len(TEXTS) > 500
    wrong = {
        f"{path.relative_to(ROOT)}: celeriac {word} {after}"
        for path in TEXTS
        for word, after in named(_current(path.name, path.read_text()))
        if not isinstance(resolved(word), click.Group) or resolved(word, after) is None
    }
    assert wrong == set()


def _current(name: str, text: str) -> str:
    """A changelog tells of former releases too."""
    return text.partition("\n## 0.")[0] if name == "CHANGELOG.md" else text
