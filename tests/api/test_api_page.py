"""docs/api.md's tables are the router's: every endpoint, its scope, and a test that calls it.

That the test calls it is looked at as it runs: see the fixture `calls_what_the_page_says`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from celeriac.api.gate import OPEN
from tests.api import curl
from tests.api.described import document
from tests.api.page import LISTED
from tests.api.server import Api
from tests.deploy.written import ASKING
from tests.processes import ROOT


def test_the_tables_list_every_endpoint_with_its_scope() -> None:
    there = [
        (method.upper(), path, "" if path in OPEN else operation["security"][0]["token"][0])
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted((listed.method, listed.path, listed.scope) for listed in LISTED) == sorted(there)


def test_the_tests_they_name_are_there() -> None:
    for listed in LISTED:
        source = ast.parse((ROOT / listed.file).read_text())
        assert listed.test in {node.name for node in source.body if isinstance(node, ast.FunctionDef)}, listed


@pytest.mark.parametrize("command", ASKING)
def test_its_examples_are_answered_well(api: Api, command: str, tmp_path: Path) -> None:
    """As they stand there, in a shell; what they say of the port is the server's own."""
    assert json.loads(curl.answered(api, command, tmp_path))
