"""tests/quoted: what the documents write to be run is told apart, and nothing of it is passed over."""

from __future__ import annotations

import re

from tests import quoted


def test_each_block_is_of_a_kind_that_is_run() -> None:
    text = "".join((quoted.HERE / f"{name}.md").read_text() for name in quoted.DOCUMENTS)
    told = [block for language in ("sql", "http", "bash", "js") for block in quoted.blocks(language)]
    assert len(told) == text.count("```") / 2 == len(re.findall(r"^```\w+$", text, re.MULTILINE))


def test_every_statement_is_told_apart() -> None:
    text = "\n".join(quoted.blocks("sql"))
    assert sum(one.count(";") for one in quoted.statements()) == text.count(";") == len(quoted.statements())
    assert "".join("".join(quoted.statements()).split()) == "".join(text.split())
    assert quoted.statements()[-1].endswith("GROUP BY role;")


def test_every_column_of_a_table_is_told() -> None:
    told = quoted.columns()
    assert {name: len(names) for name, names in told.items()} == {
        "crawl_jobs": 14, "scheduled_jobs": 12, "worker_tasks": 18
    }  # fmt: skip
    assert told["crawl_jobs"][-1] == "next_retry_at"


def test_every_call_is_told() -> None:
    shell = "\n".join(quoted.blocks("bash"))
    assert len(quoted.curls()) == len(re.findall(r"^curl ", shell, re.MULTILINE)) == 7
    assert len(quoted.requests()) == len(quoted.blocks("http")) == 16
    assert all(asked.path.startswith("/api/") for asked in quoted.requests())
    assert quoted.objects() == [
        {"role": "product_resync", "dispensary_id": 123, "scheduled_for": "2025-01-10T06:00:00Z"}
    ]
