"""What the tests of a module share and use up, as a link that works once or a worker that is stopped at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

T = TypeVar("T")


class Renewed(Generic[T]):
    """One for all, but made anew for a test that has had it: run once more, a test meets what it met first."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make, self._life = make, ExitStack()
        self._one: T | None = None
        self._had: set[str] = set()

    def of(self, test: str) -> T:
        if self._one is None or test in self._had:
            self.close()
            self._one = self._life.enter_context(self._make())
        self._had.add(test)
        return self._one

    def close(self) -> None:
        self._life.close()
        self._one = None
        self._had.clear()
