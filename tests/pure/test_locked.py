"""constraints.txt: what is installed is what was looked at, file by file."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from deploy import locked
from tests.processes import ROOT

TEXT = (ROOT / "constraints.txt").read_text()
PINS = dict(re.findall(r"^(\S+)==(\S+) \\$", TEXT, re.MULTILINE))
PYTHONS = [
    {"python_version": full.rpartition(".")[0], "python_full_version": full}
    for full in ("3.11.0", "3.11.7", "3.12.0", "3.13.0", "3.14.0")
]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_each_version_has_its_hashes_and_nothing_else() -> None:
    """No address: whoever has a mirror of his own gets the same files, or none."""
    assert "".join(block[0] + "\n" for block in locked.BLOCK.finditer(TEXT)) == TEXT
    assert all(
        re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in TEXT.splitlines() if line[0] == " "
    )
    assert len(PINS) == len({locked.normal(name) for name in PINS}) > 200


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_the_project_needs_is_there_with_all_that_this_needs(extra: str) -> None:
    """Nothing is resolved as it is installed: what is not in the file would be missing."""
    pins = {locked.normal(name): version for name, version in PINS.items()}
    left, seen = [Requirement(one) for one in locked.needed([extra])], set()
    while left:
        one = left.pop()
        name = locked.normal(one.name)
        if name == "pip" or (name, *sorted(one.extras)) in seen:
            continue
        seen.add((name, *sorted(one.extras)))
        assert name in pins, f"{name}, of {extra}"
        assert one.specifier.contains(pins[name], prereleases=True), f"{one}, of {extra}"
        left += [more for more in of_package(name) if applies(more, one.extras)]


def of_package(name: str) -> list[Requirement]:
    """What it needs, where it is installed, as all that the file has is by `make`."""
    try:
        return [Requirement(one) for one in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return []


def applies(one: Requirement, extras: set[str]) -> bool:
    """On any of the Pythons that there are, of which the oldest need more."""
    return one.marker is None or any(
        one.marker.evaluate({"extra": extra} | python) for extra in ("", *extras) for python in PYTHONS
    )


def test_the_image_gets_the_part_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip says which; a package that the file lacks ends the build."""
    asked: list[list[str]] = []

    def resolved(requirements: list[str], pins: list[str]) -> set[str]:
        asked.append(requirements)
        assert f"celery=={PINS['celery']}" in pins
        return {"celery", "psycopg2-binary"}

    monkeypatch.setattr(locked, "resolved", resolved)
    monkeypatch.setattr(locked, "FOLDER", ROOT)
    made = locked.locked(["dashboard"])
    assert [block.partition("==")[0] for block in made] == ["celery", "psycopg2-binary"]
    assert all(block in TEXT for block in made)
    assert any(one.startswith("jinja2") for one in asked[0])
    assert any(one.startswith("fastapi") for one in asked[0]), "of celeriac[api]"
    monkeypatch.setattr(locked, "resolved", lambda *_: {"no-such-package"})
    with pytest.raises(SystemExit, match="lacks no-such-package"):
        locked.locked(["dashboard"])
