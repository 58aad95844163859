"""docs/api.md's tables are the router's: every endpoint, its scope, and a test that calls it.

That the test calls it is looked at as it runs: see the fixture `calls_what_the_page_says`.
"""

from __future__ import annotations

import ast

from celeriac.api.gate import OPEN
from celeriac.api.server import create
from tasks import app
from tests.api.page import LISTED
from tests.processes import ROOT


def test_the_tables_list_every_endpoint_with_its_scope() -> None:
    there = [
        (method.upper(), path, "" if path in OPEN else operation["security"][0]["token"][0])
        for path, methods in create(app).openapi()["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted((listed.method, listed.path, listed.scope) for listed in LISTED) == sorted(there)


def test_the_tests_they_name_are_there() -> None:
    for listed in LISTED:
        source = ast.parse((ROOT / listed.file).read_text())
        assert listed.test in {node.name for node in source.body if isinstance(node, ast.FunctionDef)}, listed
