"""Accounts: one table of what each waits for, holds, did and may; and the tasks that run for none."""

from __future__ import annotations

import json
import re

import pytest

from celeriac.insights.fairness import received
from tests.api.works import task
from tests.dashboard.site import Site


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def rows(site: Site, path: str = "accounts") -> list[str]:
    return [words(row) for row in re.findall(r'<tr id="account-.*?</tr>', site.html(path), re.DOTALL)]


def test_an_account_is_a_row_with_its_shares_as_percentages(site: Site) -> None:
    for status, account in (("running", "much"), ("claimed", "much"), ("running", "little"), ("pending", "little")):
        task(site, status, "crawl", account=account)
    site.rows("INSERT INTO celeriac.account_policies (account, cap, paused) VALUES ('quiet', 3, true)")
    site.rows("INSERT INTO celeriac.account_policies (account, weight) VALUES ('much', 3)")
    little, much, quiet = rows(site)
    assert little.startswith("little 1 0 1 0 0 – 33.3 % 50.0 % 1.0 –")
    assert much.startswith("much 0 1 1 0 0 – 66.7 % 50.0 % 3.0 –")
    assert quiet == "quiet 0 0 0 0 0 – – – 1.0 3 – ❚❚ paused"
    assert rows(site, "accounts?after=much") == [quiet]


def test_what_runs_for_no_account_has_its_page_and_its_list(site: Site) -> None:
    none, other = task(site, "pending", "crawl"), task(site, "pending", "crawl", account="anna")
    assert '<a href="./accounts/">none</a>' in site.html("accounts")
    said = site.html("accounts/")
    assert "<h1>Account none</h1>" in said
    address = re.search(r'href="(\.\./tasks\?account=[^"]+)">All its tasks', said)
    assert address is not None
    line = site.get("tasks", params={"q": "account:(none)"}).headers["location"]
    for path in (address[1].removeprefix("../"), line.removeprefix("./")):
        listed = site.html(path)
        assert f'id="task-{none}"' in listed
        assert f'id="task-{other}"' not in listed
    assert site.get("accounts/.json").json()["account"] == ""


def test_a_bulk_of_what_runs_for_no_account_says_so(site: Site) -> None:
    task(site, "failed", "crawl")
    asked = site.html("tasks/matching?move=retry&state=failed&account=(none)")
    assert "account (none)" in asked


PASS = """
INSERT INTO celeriac.passes (role, by, free, claimants, given, at)
VALUES ('build', 'beat', 12, CAST(:claimants AS jsonb), CAST(:given AS jsonb),
    date_bin('5 minutes', now(), '2000-01-01 00:00:00+00') - :ago * interval '1 minute')"""


def a_pass(site: Site, ago: float, waiting: dict[str, int], given: dict[str, int]) -> None:
    seen = [{"account": name, "waiting": n, "holding": 0, "weight": 2.0 if name == "b" else 1.0, "cap": None}
            for name, n in waiting.items()]  # fmt: skip
    site.rows(PASS, claimants=json.dumps(seen), given=json.dumps(given), ago=ago)


def test_an_account_shows_what_it_received_against_what_would_have_been_fair(site: Site) -> None:
    a_pass(site, 44, {"a": 50, "b": 50}, {"a": 2, "b": 10})
    a_pass(site, 0, {"a": 3, "b": 50}, {"a": 3, "b": 9})
    a_pass(site, 0, {"b": 50}, {"b": 12})
    a_pass(site, 70, {"a": 50}, {"a": 12})
    told = site.get("accounts/a.json").json()["received"]
    begun, ended = [(n, step["slots"], step["fair"]) for n, step in enumerate(told["steps"]) if step["fair"]]
    assert (begun[1:], ended[1:], told["is_all"]) == ((2, 4.0), (3, 3.0), True)
    assert ended[0] - begun[0] == 9, "wherever the clock stands"
    said = words(site.html("accounts/a"))
    assert "Passes gave it 5 slots; 7.0 would have been its share, by weight" in said
    assert "Passes gave it 31 slots; 29.0" in words(site.html("accounts/b"))
    assert "No pass of the last hour found anything of it waiting." in words(site.html("accounts/c"))


def test_of_very_many_passes_the_newest_are_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "PASSES", 2)
    for ago in (5, 4, 3):
        a_pass(site, ago, {"a": 50}, {"a": 12})
    assert "Passes gave it 24 slots" in words(site.html("accounts/a"))
    assert "There were more passes: these are the newest." in words(site.html("accounts/a"))
