"""For pytest: writes down what each test came to, and holds every test to `--timeout`, whatever it says itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FROM_BEST_TO_WORST = ("passed", "skipped", "failed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Record(config.getoption("outcomes")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest = config.getoption("timeout")
    for item in items:
        own = item.get_closest_marker("timeout")
        asked = (own.kwargs.get("timeout") or own.args[0]) if own else longest
        item.add_marker(pytest.mark.timeout(min(asked, longest)), append=False)


class Record:
    """A test comes to the worst of its parts; one that does not end, with its process, is `unfinished`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}
        self.parts: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.outcomes = {item.nodeid: "unfinished" for item in session.items}
        self.write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.parts.append(report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.outcomes[nodeid] = max(self.parts, key=FROM_BEST_TO_WORST.index)
        self.parts.clear()
        self.write()

    def write(self) -> None:
        self.path.write_text(json.dumps(self.outcomes))
