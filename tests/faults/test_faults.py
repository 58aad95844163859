"""The harness of faults, in its small form, as docs/faults.md starts it: it holds, and it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.finishing import Finishing, failing
from tests.deploy.surroundings import make_venv, surroundings

FAULTS = {
    "make faults": Finishing("2 of 2 faults held"),
    "python -m faults --list": Finishing("kill-workers"),
    "python -m faults --guards": Finishing("the harness sees each guard that is missing"),
}


@pytest.mark.timeout(600)
@pytest.mark.sized("commands", full=[3], short=[2])
def test_nothing_is_lost_whatever_fails_and_a_missing_guard_is_seen(commands: int, tmp_path: Path) -> None:
    """Each run ends with the proof of one guard; the proof tries all of them."""
    wanted = dict(list(FAULTS.items())[:commands])
    environ = surroundings(make_venv(tmp_path), FAULTS_SIZE="small")
    assert "\n\n".join(failing(wanted, dict.fromkeys(wanted, environ))) == ""
