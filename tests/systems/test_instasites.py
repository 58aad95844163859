"""InstaSites through public names: a real worker and beat, Postgres and Redis, and the sandbox as the outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy.orm import Session

from celeriac.signals import pass_finished
from tasks.app import app
from tasks.instasites import analytics
from tests.deploy.written import of
from tests.processes import Rows, finished, until
from tests.systems.stack import Stack, on_servers, silence
from tests.systems.works import Works

STATEMENTS = of("docs/instasites.md", "sql")

pytestmark = pytest.mark.usefixtures("no_faults")


def test_a_site_is_built_published_and_followed_up(works: Works) -> None:
    site = works.site(domain="www.anna.example")
    works.enqueue(site)
    until(lambda: works.published(site), "the publication")
    assert works.task(site) == {}
    (built,) = works.at_duda(site)
    assert (built["published"], built["site_domain"]) == (1, "www.anna.example")
    assert built["content"] == {"business_data": {"name": "Anna's"}}
    until(lambda: works.followed_up(site), "analytics and the mail")
    snapshot = "SELECT snapshot ->> 'publish_status' FROM instasite_analytics WHERE instasite_id = :id"
    assert (works.rows.one(snapshot, id=site), works.mails(site)) == ("PUBLISHED", 1)
    assert works.rows.one("SELECT published_at <= now() FROM instasites WHERE id = :id", id=site)


def test_a_missing_template_fails_at_once(works: Works) -> None:
    site = works.site(template=False)
    works.enqueue(site)
    until(lambda: works.task(site)["status"] == "failed", "the failure")
    row = works.task(site)
    assert row["error_message"] == "Permanent: Template not found"
    assert (row["tries"], row["retry_count"], works.events(site)) == (5, 0, ["failed"])
    assert works.at_duda(site) == []


def test_what_duda_refuses_for_good_fails_at_once_and_is_asked_for_once(works: Works) -> None:
    site = works.site(at_duda=999)
    before = works.outside.describe()["requests"].get("create", 0)
    works.enqueue(site)
    until(lambda: works.task(site)["status"] == "failed", "the failure")
    row = works.task(site)
    told = "DudaRefused: Duda refused with 400 ResourceNotExist: Template with id '999' doesn't exist"
    assert row["error_message"] == told
    assert (row["tries"], row["retry_count"], works.events(site)) == (5, 0, ["failed"])
    assert works.outside.describe()["requests"]["create"] - before == 1


def test_while_duda_takes_the_credentials_for_wrong_sites_wait_and_burn_no_attempt(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = works.site()
    monkeypatch.setattr(works.outside.duda, "authorization", b"Basic changed")
    works.enqueue(site)
    assert works.waits(site, "snooze") == pytest.approx(60, abs=0.5)
    row = works.task(site)
    assert (row["retry_count"], row["tries"]) == (0, 0)
    assert "401 Unauthorized: Wrong user or password; check DUDA_API_USER" in row["error_message"]
    monkeypatch.undo()
    works.go_on(site)
    until(lambda: works.published(site), "the publication")


@pytest.mark.parametrize("fault", ["reset_after", "hang_after", "hang_late"])
def test_a_site_whose_creation_nobody_heard_of_is_not_created_twice(works: Works, fault: Any) -> None:
    site = works.site()
    works.outside.faults.order(fault, "create")
    works.enqueue(site)
    works.waits(site, "retry")
    works.go_on(site)
    until(lambda: works.published(site), "the publication")
    works.outside.release()
    until(lambda: works.outside.describe()["in_flight"] == 0, "the late creation's end")
    assert len(works.at_duda(site)) == 1


def test_an_answer_of_500_is_retried_after_5_10_20_and_40_seconds(works: Works) -> None:
    site = works.site()
    for _ in range(4):
        works.outside.faults.order("server_error", "find")
    works.enqueue(site)
    for retry, seconds in enumerate((5, 10, 20, 40), start=1):
        assert works.waits(site, *["retry"] * retry) == pytest.approx(seconds, abs=0.1)
        works.go_on(site)
    until(lambda: works.published(site), "the publication at the fifth attempt")


def test_5_tries_of_5_attempts_and_then_it_has_failed(works: Works) -> None:
    site = works.site()
    before = works.outside.describe()["requests"].get("find", 0)
    works.outside.faults.change({"rates": {"server_error": 1}})
    works.enqueue(site)

    def failed() -> bool:
        works.go_on(site)
        return bool(works.task(site)["status"] == "failed")

    until(failed, "the failure")
    assert works.outside.describe()["requests"]["find"] - before == 25
    assert works.events(site) == [*([*["retry"] * 4, "retry_round"] * 4), *["retry"] * 4, "failed"]
    assert (works.task(site)["tries"], works.at_duda(site)) == (5, [])


def test_a_rate_limit_is_waited_for_without_using_up_an_attempt(works: Works) -> None:
    site = works.site()
    works.outside.faults.change({"retry_after": 77, "orders": [{"kind": "rate_limited", "operation": "publish"}]})
    works.enqueue(site)
    assert works.waits(site, "snooze") == pytest.approx(77, abs=0.5)
    assert works.task(site)["retry_count"] == 0
    works.go_on(site)
    until(lambda: works.published(site), "the publication")


def test_the_analytics_wait_for_a_rate_limit_without_using_up_an_attempt(works: Works) -> None:
    site, role = works.site(), "instasite_analytics"
    until(works.are_done_with_duda, "the other sites to be done with Duda")
    works.outside.faults.change({"retry_after": 66, "orders": [{"kind": "rate_limited", "operation": "get"}]})
    works.enqueue(site)
    until(lambda: works.task(site, role).get("waits_for") == "time", "the analytics to wait")
    assert (works.events(site, role), works.task(site, role)["retry_count"]) == (["snooze"], 0)
    works.go_on(site)
    until(lambda: works.followed_up(site), "the analytics")


def test_a_site_that_is_changed_while_it_is_built_is_built_again(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for Duda to change it, and what is published is what its row says."""
    site, publish = works.site(domain="www.gerda.example"), works.outside.sites.publish

    def publish_while_it_moves(name: str) -> None:
        monkeypatch.undo()
        works.move(site, "www.hilde.example")
        publish(name)

    monkeypatch.setattr(works.outside.sites, "publish", publish_while_it_moves)
    works.enqueue(site)
    until(lambda: works.published(site), "the publication")
    assert [found["site_domain"] for found in works.at_duda(site)] == ["www.hilde.example"]
    until(lambda: works.check(site, "www.hilde.example"), "the new domain's check")
    assert works.check(site, "www.gerda.example") == {}


def test_another_python_process_enqueues_with_delay(works: Works) -> None:
    site = works.site()
    call = f"from tasks.instasites import build; build.delay(instasite_id={site}, account_id={works.account(site)})"
    assert finished([sys.executable, "-c", call], works.stack.whole_environ()).returncode == 0
    until(lambda: works.published(site), "the publication")
    assert len(works.at_duda(site)) == 1


def test_a_code_base_without_these_modules_enqueues_by_name(works: Works, tmp_path: Path) -> None:
    site = works.site()
    call = (
        "from celeriac import Celeriac\n"
        f"kwargs = {{'instasite_id': {site}, 'account_id': {works.account(site)}}}\n"
        "assert Celeriac('other').send_task('instasite_build', kwargs=kwargs).is_new\n"
        "import sys; assert not {'tasks', 'models'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", call], cwd=tmp_path, env=works.stack.whole_environ(), check=True)
    until(lambda: works.published(site), "the publication")
    assert len(works.at_duda(site)) == 1


def test_the_page_s_queries_run_as_they_stand(stack: Stack, new_database: Callable[[], str]) -> None:
    url = new_database()
    rows = Rows(url)
    rows("INSERT INTO accounts (name, email) VALUES ('Anna', 'anna@example.com')")
    rows("INSERT INTO instasites (account_id) VALUES (1)")
    with on_servers(app, stack.environ | {"DATABASE_URL": url}):
        app.register_roles()
        dns, cursor, pending, enqueue = (block.text for block in STATEMENTS)
        rows(dns)
        assert (rows(pending), rows(cursor)) == ([(0,)], [])
        assert rows(enqueue) == [(1,)]
        assert rows(pending) == [(1,)]
        app.dispatch("instasite_build")
    assert rows(cursor) == [("1",)]
    assert rows("SELECT provider, token, zone FROM dns_accounts") == [("cloudflare", None, "joes.example")]
    rows.close()


def test_switched_off_nothing_is_dispatched(stack: Stack, new_database: Callable[[], str], tmp_path: Path) -> None:
    with Stack(new_database(), stack.environ["REDIS_URL"], stack.outside, tmp_path) as off:
        off.beat(QM_INSTASITES="false")
        last_tick = "SELECT last_run_at FROM celeriac.scheduled_jobs WHERE name = 'sweep rescue'"
        until(lambda: off.rows(last_tick), "beat")
        off.rows("INSERT INTO worker_tasks (task_id, role, kwargs) VALUES ('1', 'instasite_build', '{}')")
        for _ in range(2):
            seen = off.rows(last_tick)
            until(lambda seen=seen: off.rows(last_tick) != seen, "another tick")
        assert off.rows("SELECT status FROM worker_tasks WHERE role = 'instasite_build'") == [("pending",)]
        assert off.rows("SELECT FROM celeriac.passes WHERE role = 'instasite_build'") == []
        assert off.rows("SELECT enabled FROM celeriac.scheduled_jobs WHERE name = 'batcher instasite_build'") == [
            (False,)
        ]


# -- a worker that dies at the moment of completion ------------------------------------------------------------------


def standing(rows: Rows, site: int) -> tuple[object, ...]:
    """In one snapshot: the site's status, its unfinished builds and its follow-ups."""
    (found,) = rows(STANDING, site=str(site))
    return found


STANDING = """
SELECT i.status,
    (SELECT count(*) FROM worker_tasks WHERE role = 'instasite_build' AND unique_key = :site
        AND status IN ('pending', 'claimed', 'running')),
    (SELECT count(*) FROM worker_tasks WHERE role IN ('instasite_analytics', 'instasite_ready_mail')
        AND unique_key = :site)
FROM instasites i WHERE i.id = CAST(:site AS bigint)
"""
UNFINISHED, COMPLETE = ("DRAFT", 1, 0), ("PUBLISHED", 0, 2)


WAITS_FOR_A_TRANSACTION = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND (wait_event_type, wait_event) = ('Lock', 'transactionid')
"""


@contextmanager
def completion_held_up(works: Works, site: int) -> Iterator[None]:
    """Within it, the completing transaction of the site's build is open and cannot go on."""
    with Session(app.database.engine) as session:
        analytics.using(session=session).delay(site)
        works.enqueue(site)
        until(lambda: [s for s in works.at_duda(site) if s["published"]], "Duda's publication")
        until(lambda: works.rows(WAITS_FOR_A_TRANSACTION), "the completing transaction")
        yield
        session.rollback()


def test_a_worker_killed_while_it_completes_leaves_an_unfinished_build(works: Works) -> None:
    site = works.site()
    with completion_held_up(works, site):
        works.builder.kill()
        assert standing(works.rows, site) == UNFINISHED
    assert standing(works.rows, site) == UNFINISHED
    assert works.at_duda(site)[0]["published"] == 1
    silence(works.rows)
    works.restart_builder()
    until(lambda: works.published(site), "the repetition")
    assert standing(works.rows, site) == COMPLETE
    assert len(works.at_duda(site)) == 1


@pytest.mark.parametrize(
    "delay_ms", [8, *(pytest.param(ms, marks=pytest.mark.nightly("a kill at other instants")) for ms in (0, 3, 20))]
)
def test_a_process_killed_around_its_completion_leaves_all_or_nothing(works: Works, delay_ms: int) -> None:
    site = works.site()
    works.outside.faults.change({"latency_ms": "40"})
    works.enqueue(site)
    pid = until(lambda: works.task(site).get("worker_pid"), "the start")
    until(lambda: [s for s in works.at_duda(site) if s["published"]], "Duda's publication")
    with pytest.raises(psutil.TimeoutExpired):
        psutil.Process(pid).wait(delay_ms / 1000)
    psutil.Process(pid).kill()
    assert standing(works.rows, site) in (UNFINISHED, COMPLETE)
    until(lambda: standing(works.rows, site) == COMPLETE, "the completion")
    until(lambda: works.followed_up(site), "the follow-ups")
    assert len(works.at_duda(site)) == works.mails(site) == 1


def test_the_batcher_says_in_the_log_what_it_scheduled(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        for role, scheduled, pending in (("instasite_build", 60, 340), ("instasite_analytics", 1, 1)):
            pass_finished.send(sender=role, role=role, scheduled=scheduled, pending=pending)
    (record,) = caplog.records
    assert record.getMessage().startswith("Instasite build service processed.")
    assert record.data == {  # type: ignore[attr-defined]
        "initiator": "QM/instasites/build", "sitesScheduled": 60, "totalPending": 340,
    }  # fmt: skip
