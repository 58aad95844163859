"""`python -m bench.browser`: when a reader in Chromium sees the first row of the tasks page, and a change of one.

Of a warm server beside `BENCH_ROWS` tasks (1,000,000): the first row once its address is asked for, by a browser that
knows nothing of the site, as it is, and with a fourth of this processor behind 10 Mbit/s; a change from its commit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import median, quantiles

from playwright.sync_api import Browser, Page, expect, sync_playwright
from sqlalchemy import text

from bench.pages import ROWS, filled, serving, session_of
from bench.size import sized
from celeriac.store.connections import Database
from tasks.chromium import FLAGS, find

TIMES = sized(40, 2)

#: What may pass until the first row is there, the 95th of 100, in a fast browser and a slow one, and until a change is
#: seen, half the time and always (seconds).
FIRST, FIRST_OF_SLOW, CHANGE, CHANGE_AT_MOST = 0.8, 2.0, 1.7, 2.5

PRIORITISE = "UPDATE celeriac.worker_tasks SET priority = :priority WHERE id = :id"

SLOW = {"offline": False, "latency": 20, "downloadThroughput": 10e6 / 8, "uploadThroughput": 10e6 / 8}


def main() -> None:
    with filled() as (app, token), serving(app) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox", *FLAGS])
        print(f"{ROWS:,} tasks, {TIMES} times each", flush=True)
        session = session_of(app, token)
        first_row(browser, url, session, slow=False)  # the server is warm, and so is the program
        tell("first row", [first_row(browser, url, session, slow=False) for _ in range(TIMES)], FIRST)
        slow = [first_row(browser, url, session, slow=True) for _ in range(TIMES)]
        tell("first row, a fourth of the processor, 10 Mbit/s", slow, FIRST_OF_SLOW)
        tell_changes(changes(browser, url, session, app.database))
        browser.close()


@contextmanager
def page_of(browser: Browser, url: str, session: str) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.add_cookies([{"name": "celeriac", "value": session, "url": url}])
        yield context.new_page()


def first_row(browser: Browser, url: str, session: str, *, slow: bool) -> float:
    """Seconds."""
    with page_of(browser, url, session) as page:
        if slow:
            devtools = page.context.new_cdp_session(page)
            devtools.send("Emulation.setCPUThrottlingRate", {"rate": 4})
            devtools.send("Network.enable")
            devtools.send("Network.emulateNetworkConditions", SLOW)
        began = time.perf_counter()
        page.goto(f"{url}/admin/tasks", wait_until="commit")
        page.locator("tbody tr").first.wait_for()
        return time.perf_counter() - began


def changes(browser: Browser, url: str, session: str, database: Database) -> list[float]:
    """Seconds from each commit, at whatever time between two looks of the page, until its value is on it."""
    dice, found = Random(1), list[float]()
    with page_of(browser, url, session) as page, database.statement() as connection:
        task = connection.execute(text("SELECT max(id) FROM celeriac.tasks")).scalar_one()
        page.goto(f"{url}/admin/tasks/{task}")
        expect(page.locator("#light")).to_have_text("live")
        shown = page.locator("dt:text-is('Priority') + dd")
        for n in range(TIMES):
            time.sleep(dice.uniform(0, 2))
            connection.execute(text(PRIORITISE), {"priority": n % 90 + 5, "id": task})
            began = time.perf_counter()
            shown.filter(has_text=re.compile(rf"^\s*{n % 90 + 5}\b")).wait_for(timeout=10_000)
            found.append(time.perf_counter() - began)
    return found


def tell(what: str, seconds: Sequence[float], most: float) -> None:
    p95 = quantiles(seconds, n=20, method="inclusive")[-1]
    over = " over" if p95 > most else ""
    print(
        f"{what:50}p50 {median(seconds) * 1000:6,.0f} ms  p95 {p95 * 1000:6,.0f} of {most * 1000:,.0f} ms{over}",
        flush=True,
    )


def tell_changes(seconds: Sequence[float]) -> None:
    half, longest = median(seconds), max(seconds)
    over = " over" if half > CHANGE or longest > CHANGE_AT_MOST else ""
    told = f"p50 {half:.2f} of {CHANGE} s, at most {longest:.2f} of {CHANGE_AT_MOST} s"
    print(f"{'a change, from its commit':50}{told}{over}")


if __name__ == "__main__":
    main()
