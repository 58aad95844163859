"""Who asks for a crawl: of many one comes, users' start first, and each may say how often it is retried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.orm import Session

from celeriac.errors import BadArguments
from tasks.app import app
from tasks.subreddits import crawl, request_crawl
from tests.systems.crawls import Crawls

pytestmark = pytest.mark.usefixtures("as_new")


def test_of_many_requests_at_once_one_crawl_comes(crawls: Crawls, name: str) -> None:
    crawls.paused(True)
    with ThreadPoolExecutor(8) as users:
        found = list(users.map(lambda _: request_crawl(name), range(24)))
    assert len({one.id for one in found}) == 1
    assert sum(one.is_new is True for one in found) == 1
    crawls.paused(False)
    crawls.ends(found[0].id)
    assert [visit.operation for visit in crawls.reddit.visits if visit.subreddit == name] == [
        "about", "new", "hot", "comments",
    ]  # fmt: skip


def test_a_user_who_asks_for_what_waits_already_moves_it_forward(crawls: Crawls, name: str) -> None:
    crawls.paused(True)
    waiting = request_crawl(name, priority=0)
    for priority, then in ((60, 60), (10, 60), (70, 70)):
        again = request_crawl(name, priority)
        assert (again.id, again.is_new, crawls.task(waiting.id)["priority"]) == (waiting.id, False, then)


def test_a_request_says_its_retries_and_a_later_one_raises_them(crawls: Crawls, name: str) -> None:
    crawls.paused(True)
    waiting = request_crawl(name)
    for asked, then in ((3, 3), (10, 10), (5, 10)):
        assert request_crawl(name, max_retries=asked).id == waiting.id
        assert crawls.task(waiting.id)["max_retries"] == then
    with pytest.raises(BadArguments, match="max_retries"):
        request_crawl(name, max_retries=-1)
    assert crawls.task(request_crawl(f"{name}_critical", max_retries=12).id)["max_retries"] == 12


def test_users_crawls_start_before_background_ones_that_wait_longer(crawls: Crawls, name: str) -> None:
    crawls.paused(True)
    names = [f"{name}_{n}" for n in range(8)]
    for one in names:
        crawls.reddit.forum.open(one.title())
    background = [request_crawl(one, priority=0) for one in names[:6]]
    users = [request_crawl(one) for one in names[6:]]
    crawls.paused(False)
    claimed = [[crawls.ends(task.id)["claimed_at"] for task in tasks] for tasks in (users, background)]
    assert max(claimed[0]) < min(claimed[1])


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_priority_outside_0_to_100_is_refused(crawls: Crawls, name: str, priority: int) -> None:
    with pytest.raises(BadArguments, match="from 0 to 100"):
        request_crawl(name, priority)
    assert crawls.rows("SELECT FROM subreddits WHERE name = :name", name=name) == []
    crawls.paused(True)
    assert crawls.task(crawl.delay(subreddit_id=0).id)["priority"] == 0


def test_what_names_no_subreddit_is_refused(crawls: Crawls) -> None:
    for given in ("", "r/", "a", "two words", "a+b", "x" * 22, "_x"):
        with pytest.raises(ValueError, match="names no subreddit"):
            request_crawl(given)


def test_a_request_belongs_to_the_callers_transaction(crawls: Crawls, name: str) -> None:
    with Session(app.database.engine) as session:
        asked = request_crawl(name, session=session)
        session.rollback()
    assert crawls.rows("SELECT FROM worker_tasks WHERE task_id = :task", task=asked.id) == []
    assert crawls.rows("SELECT FROM subreddits WHERE name = :name", name=name) == []
