"""Accounts: one table of what each waits for, holds, did and may; and the tasks that run for none."""

from __future__ import annotations

import re

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
