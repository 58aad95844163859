"""The pool of proxies: one task at a time has one, the least recently used goes next, failures rest it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import IntegrityError

from celeriac.store.connections import Database
from tasks.proxies import NoProxyFree, Pool, Proxy
from tests.deploy.written import of
from tests.processes import Rows

URLS = [f"http://10.0.0.{n}:3128" for n in range(1, 5)]

HEALTH = "SELECT failures, last_error, cooling_until > now(), lease IS NULL FROM proxies WHERE url = :url"
RESTS = "SELECT extract(epoch FROM cooling_until - updated_at)::float FROM proxies WHERE url = :url"
RESTED = "UPDATE proxies SET cooling_until = now()"


@pytest.fixture
def pool(database: Database) -> Pool:
    return Pool(database, seconds=60, rest=30)


def add(rows: Rows, *urls: str) -> None:
    for url in urls:
        rows("SELECT add_proxy(:url)", url=url)


def taken(pool: Pool) -> Proxy:
    proxy = pool.take()
    assert proxy is not None
    return proxy


def test_without_proxies_there_is_none_to_take(pool: Pool) -> None:
    assert pool.take() is None


def test_each_is_used_by_one_task_at_a_time(pool: Pool, rows: Rows) -> None:
    add(rows, *URLS)
    with ThreadPoolExecutor(4) as tasks:
        proxies = list(tasks.map(lambda _: taken(pool), URLS))
    assert sorted(proxy.url for proxy in proxies) == URLS
    with pytest.raises(NoProxyFree, match=r"none of 4 proxies is free: looking again in 5\.0 s"):
        pool.take()


def test_many_tasks_at_once_never_share_one(pool: Pool, rows: Rows) -> None:
    add(rows, *URLS)
    held: set[str] = set()

    def use(_: int) -> int:
        try:
            proxy = taken(pool)
        except NoProxyFree:
            return 0
        assert proxy.url not in held
        held.add(proxy.url)
        held.remove(proxy.url)
        pool.succeeded(proxy)
        return 1

    with ThreadPoolExecutor(8) as tasks:
        assert sum(tasks.map(use, range(200))) > len(URLS)


def test_the_least_recently_used_goes_next(pool: Pool, rows: Rows) -> None:
    add(rows, *URLS)
    used = []
    for _ in range(2):
        for _ in URLS:
            proxy = taken(pool)
            used.append(proxy.url)
            pool.succeeded(proxy)
    assert used == URLS * 2


def test_failures_rest_it_the_longer_the_more_and_a_success_mends_it(pool: Pool, rows: Rows) -> None:
    add(rows, URLS[0])
    for rest in (30, 60, 120):
        pool.failed(taken(pool), "no answer")
        assert rows(RESTS, url=URLS[0]) == [(pytest.approx(rest, abs=1),)]
        with pytest.raises(NoProxyFree) as none:
            pool.take()
        assert none.value.retry_after == pytest.approx(rest, abs=5)
        rows(RESTED)
    assert rows("SELECT failures, last_error FROM proxies") == [(3, "no answer")]
    pool.succeeded(taken(pool))
    assert rows(HEALTH, url=URLS[0]) == [(0, None, None, True)]


def test_it_never_rests_longer_than_an_hour(pool: Pool, rows: Rows) -> None:
    add(rows, URLS[0])
    rows("UPDATE proxies SET failures = 1000000")
    pool.failed(taken(pool), "no answer")
    assert rows(RESTS, url=URLS[0]) == [(pytest.approx(3600, abs=1),)]


def test_what_was_given_back_is_as_it_was(pool: Pool, rows: Rows) -> None:
    add(rows, URLS[0])
    pool.failed(taken(pool), "no answer")
    rows(RESTED)
    pool.give_back(taken(pool))
    assert rows(HEALTH, url=URLS[0]) == [(1, "no answer", False, True)]


def test_a_lease_that_ran_out_is_another_task_s(pool: Pool, rows: Rows) -> None:
    add(rows, URLS[0])
    killed = taken(pool)
    rows("UPDATE proxies SET leased_until = now()")
    later = taken(pool)
    pool.failed(killed, "too late to say")
    assert rows("SELECT failures, lease::text FROM proxies") == [(0, later.lease)]


def test_adding_again_sets_it_to_rights_and_removing_takes_it_out(pool: Pool, rows: Rows) -> None:
    add(rows, URLS[0])
    pool.failed(taken(pool), "no answer")
    rows("SELECT add_proxy(:url, '203.0.113.7')", url=URLS[0])
    assert taken(pool).address == "203.0.113.7"
    assert rows("SELECT remove_proxy(:url)", url=URLS[0]) == [(True,)]
    assert rows("SELECT remove_proxy(:url)", url=URLS[0]) == [(False,)]
    assert pool.take() is None


@pytest.mark.parametrize(
    "url", ["10.0.0.7:3128", "http://10.0.0.7", "ftp://10.0.0.7:21", "http://10.0.0.7:80/path", ""]
)
def test_what_is_no_proxy_is_refused(rows: Rows, url: str) -> None:
    with pytest.raises(IntegrityError, match="proxies_url_usable"):
        add(rows, url)


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("lease = gen_random_uuid()", "proxies_lease_has_an_end"),
        ("failures = -1", "proxies_failures_not_negative"),
        ("cooling_until = now()", "proxies_cool_after_failures"),
    ],
)
def test_states_that_cannot_be_are_refused(rows: Rows, change: str, constraint: str) -> None:
    add(rows, URLS[0])
    with pytest.raises(IntegrityError, match=constraint):
        rows(f"UPDATE proxies SET {change}")


def test_a_password_is_the_browser_s_and_not_the_log_s() -> None:
    proxy = Proxy("a lease", "http://anna:p%40ss@proxy.example:3128", None)
    assert proxy.for_playwright == {"server": "http://proxy.example:3128", "username": "anna", "password": "p@ss"}
    assert proxy.server == "http://proxy.example:3128"
    assert "p%40ss" not in repr(proxy)


def test_the_statements_of_the_stores_page_run(rows: Rows) -> None:
    (block,) = [block for block in of("docs/stores.md", "sql") if "proxies" in block.text]
    told = [rows(statement) for statement in block.text.splitlines()]
    assert [len(answer) for answer in told] == [1, 1, 1, 1]
    assert told[3][0][:2] == ("http://anna:secret@proxy.example:8080", 0)
