"""What was handed out and not begun, and what lay in Redis, is kept for each minute of two hours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from celeriac import Celeriac, insights
from celeriac.insights.fleet.hours import TicketSample
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.processes import Rows

SAMPLES = "SELECT queue, tickets, in_redis FROM celeriac.ticket_samples ORDER BY queue, minute"


@pytest.fixture
def handed_out(app: Celeriac) -> Celeriac:
    """Two tickets of `work` lie in Redis."""

    @app.task(role="work", shared=False, prompt=False, chunk=1)
    def work() -> None: ...

    @app.task(role="quiet", shared=False)
    def quiet() -> None: ...

    app.register_roles()
    for _ in range(2):
        work.delay()
    assert app.dispatcher.dispatch(app.roles.of(work)) == 2
    return app


def test_a_sweep_samples_each_queue_that_has_any_once_a_minute(handed_out: Celeriac, rows: Rows) -> None:
    sweep(handed_out, "lost_tickets")
    sampled = rows(SAMPLES)
    assert sampled[0] == ("work", 2, 2)
    sweep(handed_out, "lost_tickets")
    assert len(rows(SAMPLES)) <= 2, "a minute may have ended"


def test_what_redis_lost_is_sampled_before_it_is_handed_out_anew(handed_out: Celeriac, rows: Rows) -> None:
    redis.Redis.from_url(handed_out.settings.redis_url).flushdb()
    rows("UPDATE celeriac.tickets SET claimed_at = now() - interval '1 day'")
    assert sweep(handed_out, "lost_tickets") == 2
    assert rows(SAMPLES) == [("work", 2, 0)]


def test_without_redis_a_sample_says_so(handed_out: Celeriac, rows: Rows) -> None:
    handed_out.conf.broker_url = nowhere = "redis://127.0.0.1:1/0"
    handed_out.settings = replace(handed_out.settings, redis_url=nowhere)
    handed_out.publisher.close()
    sweep(handed_out, "lost_tickets")
    assert ("work", 2, None) in rows(SAMPLES)


def test_an_hour_is_told_by_queue_and_what_is_older_is_pruned(app: Celeriac, database: Database, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.ticket_samples
        SELECT q, date_trunc('minute', now()) - i * interval '1 minute', i + 1, i
        FROM generate_series(0, 199) i, unnest(ARRAY['a', 'b']) q""")
    with database.reading() as connection:
        hours = insights.ticket_hours(connection)
    assert list(hours) == ["a", "b"]
    newest = hours["a"][-1]
    assert (newest.tickets, newest.in_redis, newest.ahead) == (1, 0, 1)
    assert TicketSample("a", newest.minute, 3, None).ahead is None
    assert TicketSample("a", newest.minute, 3, 7).ahead == 0
    assert len(hours["a"]) in (60, 61)
    sweep(app, "prune")
    old = "SELECT count(*) FROM celeriac.ticket_samples WHERE minute < now() - interval '2 hours 1 minute'"
    assert rows.one(old) == 0
    assert rows.one("SELECT count(*) FROM celeriac.ticket_samples") > 200
