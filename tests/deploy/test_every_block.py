"""Every block of README.md, CONTRIBUTING.md and the pages in docs and deploy is run or looked at by a test.

`python -m tests.deploy.test_every_block` lists them, each with its test.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

import markdown
import pytest

from celeriac import Settings
from tests import documents
from tests.deploy import (
    test_blocks,
    test_documented_settings,
    test_fastapi_page,
    test_readme,
    test_sentry_page,
    test_shown_text,
    test_tutorial,
)
from tests.deploy.written import BLOCKS, EVERY, INDENTED, PAGES, Block, blocks
from tests.django_project import test_page
from tests.end_to_end import test_pytest_plugin, test_senders
from tests.matrix.around import flask_page
from tests.postgres import test_capacity
from tests.processes import ROOT
from tests.pure import test_expressions
from tests.systems import test_instasites

SHELL = (INDENTED, "console")

#: What stands among commands without being one, by its first word; `test_what_stands_between_commands_holds`.
BETWEEN = ("cd", "export")

#: What a command of the page makes.
MADE = {"build/flame.svg", "build/site", "build/screenshots", "dist/"}

OF_SHELL = [block for block in BLOCKS if block.language in SHELL]


def between(block: Block) -> list[str]:
    """The lines that belong to a shell and are no program's."""
    lines = (re.sub(r"\s+#.*", "", line).strip().removeprefix("$ ") for line in block.text.splitlines())
    return [line for line in lines if line.split(" ")[0] in BETWEEN]


def is_of_commands(block: Block) -> bool:
    """Each line is a command that test_commands_as_written.py knows, or stands between such."""
    text = re.sub(r"\\\n\s*", "", block.text)
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == len(block.commands) + len(between(block)) and {*block.commands} <= EVERY


#: The test → the blocks that it takes, as its module has them.
HELD: dict[str, Collection[Block]] = {
    "tests/deploy/test_blocks.py::test_python_runs": [b for found in test_blocks.PYTHON.values() for b in found],
    "tests/deploy/test_fastapi_page.py::test_an_order_is_taken_and_followed_to_its_end": test_fastapi_page.BLOCKS,
    "tests/deploy/test_sentry_page.py::test_a_request_and_its_tasks_are_one_trace_and_an_error_is_reported": (
        test_sentry_page.BLOCKS
    ),
    "tests/matrix/around/flask_page.py::test_an_order_is_priced_within_the_applications_context": flask_page.BLOCKS,
    "tests/django_project/test_page.py::test_its_shop_goes_as_it_says": test_page.BLOCKS,
    "tests/deploy/test_blocks.py::test_sql_runs": test_blocks.SQL,
    "tests/deploy/test_readme.py::test_its_examples_run_one_after_the_other": test_readme.EXAMPLES,
    "tests/deploy/test_readme.py::test_the_statements_of_the_sql_page_run": test_readme.STATEMENTS,
    "tests/deploy/test_tutorial.py::test_it_goes_as_it_says": test_tutorial.BLOCKS,
    "tests/pure/test_expressions.py::test_the_page_about_expressions_tells_the_truth": test_expressions.EXAMPLES,
    "tests/end_to_end/test_pytest_plugin.py::test_the_page_about_testing_runs_as_it_is_written": (
        test_pytest_plugin.FILES
    ),
    "tests/end_to_end/test_senders.py::test_a_sender_may_send_to_its_queue_and_write_nowhere_else": (
        test_senders.BLOCKS
    ),
    "tests/systems/test_instasites.py::test_the_page_s_queries_run_as_they_stand": test_instasites.STATEMENTS,
    "tests/postgres/test_capacity.py::test_the_page_about_workers_shows_such_a_document": test_capacity.HEARTBEAT,
    "tests/deploy/test_documented_settings.py::test_prometheus_takes_what_it_is_to_scrape": (
        test_documented_settings.SCRAPING
    ),
    "tests/deploy/test_documented_settings.py::test_a_patch_of_an_overlay_is_of_what_there_is": (
        test_documented_settings.PATCHES
    ),
    "tests/deploy/test_documented_settings.py::test_a_policy_of_an_overlay_opens_something_to_pods_that_there_are": (
        test_documented_settings.POLICIES
    ),
    "tests/deploy/test_documented_settings.py::test_patronis_configuration_is_one_of_ours": (
        test_documented_settings.PATRONI
    ),
    "tests/deploy/test_documented_settings.py::test_pgbouncers_settings_are_of_its_format": (
        test_documented_settings.POOLED
    ),
    "tests/deploy/test_documented_settings.py::test_the_engine_takes_addresses_of_servers_that_take_over": (
        test_documented_settings.ADDRESSES
    ),
    "tests/deploy/test_shown_text.py::test_a_drawing_has_nothing_to_run": test_shown_text.DRAWINGS,
    "tests/deploy/test_shown_text.py::test_a_tree_names_what_there_is": test_shown_text.TREES,
    "tests/deploy/test_shown_text.py::test_a_line_of_the_log_is_one_that_the_code_writes": test_shown_text.LOGS,
    "tests/deploy/test_commands_as_written.py::test_no_command_is_left_out": [
        block for block in OF_SHELL if is_of_commands(block)
    ],
}


def holders(block: Block) -> list[str]:
    return [test for test, taken in HELD.items() if block in taken]


def test_no_block_is_left_out() -> None:
    """A new one: give it a language that runs, its page what it takes for granted, or a test of its own in HELD."""
    assert [block.place for block in BLOCKS if not holders(block)] == []


def test_the_tests_that_hold_them_are_there_and_have_some() -> None:
    missing = [test for test in HELD if test.partition("::")[2] not in documents.tests_of(test.partition("::")[0])]
    assert missing == []
    assert [test for test, taken in HELD.items() if not taken] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_that_readers_see_is_found(page: str) -> None:
    """As the site makes them: neither more nor fewer."""
    shown = markdown.markdown(page.read_text(), extensions=["tables", "sane_lists", "pymdownx.superfences"])
    assert shown.count("<pre") == len([block for block in BLOCKS if block.page == page])


@pytest.mark.parametrize(
    "text",
    [
        "```py\nx = 1\n```\n", "```\nmake demo\n```\n", "```yaml\na: 1\n```\n", "```python\nx = 1\n```\n",
        "```text\nwhat it says\n```\n", "```console\n$ celeriac no-such-command\n```\n",
        "```console\n$ make demo\nEverything holds\n```\n", "    celeriac no-such-command\n", "    make demo\n    ls\n",
        "    SELECT 1;\n",
    ],
)  # fmt: skip
def test_a_block_that_nothing_holds_is_told(text: str) -> None:
    (block,) = blocks(ROOT / "docs" / "new.md", text)
    assert holders(block) == []
    assert block.language not in SHELL or not is_of_commands(block)


def test_a_block_is_found_wherever_it_stands() -> None:
    page = """
1. A list

    goes on.

Not any more:

    make demo      # all

    make test
```sh
A=1
```
- another
    line
"""
    found = [(block.line, block.language, block.text) for block in blocks(ROOT / "docs" / "new.md", page)]
    assert [(line, language) for line, language, _ in found] == [(8, INDENTED), (11, "sh")]


def test_what_stands_between_commands_holds() -> None:
    """`cd`: into what the command before made; `export`: a variable that the engine reads, with a value it takes."""
    for block in OF_SHELL:
        for line in between(block):
            word, given = shlex.split(line)
            if word == "cd":
                assert f"celeriac init {given}" in block.commands
            else:
                name, _, value = given.partition("=")
                assert Settings.from_environ({name: value}) != Settings.from_environ({})


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    """What stands in backticks with a slash, and is nothing to be run."""
    pages = (ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "kubernetes" / "README.md")
    text = "".join(page.read_text() for page in pages)
    named = re.findall(r"`(\.?\w[\w./-]*/[\w./-]*)`", text)
    assert len(named) > 20
    places = (ROOT, ROOT / "deploy" / "kubernetes")
    assert [path for path in named if path not in MADE and not any((place / path).exists() for place in places)] == []


if __name__ == "__main__":
    for block in BLOCKS:
        print(f"{block.place}: {', '.join(holders(block)) or 'nothing'}")
