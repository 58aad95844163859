"""What the pages say of the machinery: beats that are gone, tickets that are."""

from __future__ import annotations

import redis

from tests.api.works import task
from tests.dashboard.site import Site


def test_a_beat_that_is_gone_is_told_with_the_command_that_starts_one(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.beats (beat_id, hostname, pid, last_tick_at)
        VALUES ('b', 'node-7', 3, now() - interval '90 seconds')""")
    assert "No beat ticks since" in site.html("schedules")
    assert "celery -A shop beat" in site.html("schedules")
    assert "✕ none" in site.html("overview")
    site.rows("UPDATE celeriac.beats SET last_tick_at = now(), late_by = 0.4")
    assert "1 beat alive" in site.html("schedules")
    assert "400 ms late" in site.html("schedules")


def test_tickets_that_redis_has_lost_are_told_beside_what_sql_has_claimed(site: Site) -> None:
    client = redis.Redis.from_url(site.app.settings.redis_url)
    client.flushdb()
    task(site, "pending", "crawl")
    role, _ = site.app.role_named("crawl")
    assert site.app.dispatcher.dispatch(role) == 1
    assert "in step" in site.html("system")
    client.flushdb()
    assert "SQL ahead by 1: workers have just taken them, or they are lost" in site.html("system")
    client.close()
