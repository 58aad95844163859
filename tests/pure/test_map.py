"""The map of the engine's folders is true: `python -m tests.map` writes it anew."""

from __future__ import annotations

import pytest

from tests.map import folders, written


def test_the_map_has_the_engines_folders_and_arrows() -> None:
    assert {name: imports for name, (_, _, imports) in written().items()} == {
        one.name: one.imports for one in folders()
    }


def test_the_maps_sizes_are_those_of_the_folders() -> None:
    """Within a fifth, or 150 lines: a commit need not write the map anew."""
    sizes = written()
    for folder in folders():
        files, lines, _ = sizes[folder.name]
        assert files == pytest.approx(folder.files, rel=0.2, abs=2)
        assert lines == pytest.approx(folder.lines, rel=0.2, abs=150)
