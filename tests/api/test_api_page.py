"""docs/api.md's tables are the router's: every endpoint, its scope, and a test that calls it.

That the test calls it is looked at as it runs: see the fixture `calls_what_the_page_says`.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex

import pytest

from celeriac.api.gate import OPEN
from celeriac.api.server import create
from tasks import app
from tests.api.page import LISTED, PAGE
from tests.api.server import Api
from tests.processes import ROOT

#: What follows `curl`, lines joined.
EXAMPLES = re.findall(r"^\$ curl (.*)$", PAGE.replace("\\\n", ""), re.MULTILINE)


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


@pytest.mark.xdist_group("api")
@pytest.mark.parametrize("command", EXAMPLES)
def test_its_examples_are_answered_well(api: Api, command: str) -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("-H", dest="headers", action="append")
    arguments.add_argument("-d", dest="body")
    arguments.add_argument("url")
    asked = arguments.parse_args(shlex.split(command.replace("$TOKEN", api.tokens["admin"])))
    headers = dict(header.split(": ", 1) for header in asked.headers)
    path = asked.url.removeprefix("http://127.0.0.1:6002")
    answer = api.http.request("POST" if asked.body else "GET", path, headers=headers, content=asked.body)
    assert answer.is_success, answer.text
