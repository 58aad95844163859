from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.surroundings import make_venv


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("programs"))
