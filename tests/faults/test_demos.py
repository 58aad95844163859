"""The demos hold, as README starts them: all of them in the proof, as large as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.deploy.finishing import Finishing, failing
from tests.deploy.surroundings import make_venv, surroundings

DEMOS = {
    "make demo": Finishing("Everything holds"),
    "make demo SYSTEM=all": Finishing("4 of 4 demos hold"),
}


@pytest.mark.timeout(900)
@pytest.mark.sized("command", full=["make demo SYSTEM=all"], short=["make demo"])
def test_a_demo_holds(
    command: str, servers: Servers, tmp_path: Path, sized: Callable[[int, int], int], request: pytest.FixtureRequest
) -> None:
    """On a Redis of its own: it takes a number of it that is empty."""
    if "all" in command:
        request.getfixturevalue("chromium")
    urls = {"DATABASE_URL": servers.database_url, "CELERIAC_DATA_DIR": str(tmp_path / "data")}
    environ = surroundings(make_venv(tmp_path), DEMO_SIZE="full" if sized(1, 0) else "small", **urls)
    assert "\n\n".join(failing({command: DEMOS[command]}, {command: environ})) == ""
