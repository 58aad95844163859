"""Forks: what a process makes anew in each child."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def after_fork(method: Callable[[], None]) -> None:
    """Calls it in each forked child as long as its owner lives: what is registered for ever keeps nobody alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        if (living := weak()) is not None:
            living()

    os.register_at_fork(after_in_child=call)
