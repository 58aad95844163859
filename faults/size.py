"""How large a run is. `FAULTS_SIZE=small`: what every run of the tests has time for."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def sized(full: T, small: T) -> T:
    return small if os.environ.get("FAULTS_SIZE") == "small" else full
