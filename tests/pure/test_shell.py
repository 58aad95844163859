"""Commands that are printed to be copied have others' names as one word each, whatever these are."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from celeriac.store.shell import argument, word
from tests.processes import ROOT

ODD = ("anna", "a b", "-dash", "--yes", "x; rm -rf /", "$(id)", "`id`", "it's", "", "a\nb", "%2F", "ü–ß")


@click.command()
@click.option("--role")
@click.argument("name")
def asked(role: str | None, name: str) -> None:
    """Take one of each."""


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_name_is_one_word_to_a_shell_and_no_option_to_a_command(name: str) -> None:
    assert shlex.split(word(name)) == [name]
    given = shlex.split(f"--role {word(name)} {argument(name)}")
    assert asked.main(given, standalone_mode=False) is None
    assert asked.make_context("asked", given).params == {"role": name, "name": name}


#: What a name is put into a printed command by; and ids of rows, which are numbers.
SAFE = re.compile(
    r"argument\(|word\(|app\.main|new\.main|(one|row|head|shape)\.(task|id|first)\b|\w*[Aa]ccount\}|role\}|queue\}|"
    r"argument\}|subject\}"
)

PRINTED = re.compile(r"`(?:celeriac|celery) [^`{]*\{([^`]*)`")


def test_no_printed_command_has_a_bare_name() -> None:
    found = [
        (path.name, hole)
        for path in sorted((ROOT / "celeriac").rglob("*.py"))
        for hole in PRINTED.findall(path.read_text())
    ]
    assert len(found) > 20
    assert [one for one in found if not SAFE.match(one[1])] == []
