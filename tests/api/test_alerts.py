"""Alerts over HTTP: what fires, and silences; and a server looks where nobody else does."""

from __future__ import annotations

from pathlib import Path

from tests.api.server import Api, serving
from tests.api.works import audited
from tests.conftest import Servers
from tests.processes import until


def test_what_fires_is_told_with_its_sentence(api: Api) -> None:
    api.rows("""INSERT INTO alerts (name, subject, value, threshold, says)
        VALUES ('queue_depth', 'deep', 2000, 1000, '2000 tasks wait, more than 1000')""")
    api.rows("INSERT INTO alerts_pending (name, subject) VALUES ('long_wait', 'deep')")
    told = api.get("/api/alerts")
    (alert,) = [one for one in told["alerts"] if one["subject"] == "deep"]
    assert (alert["name"], alert["says"], alert["value"]) == ("queue_depth", "2000 tasks wait, more than 1000", 2000)
    pending = api.get("/api/alerts/pending")["alerts"]
    assert [one["name"] for one in pending if one["subject"] == "deep"] == ["long_wait"]


def test_an_alert_is_silenced_and_told_again(api: Api) -> None:
    body = {"subject": "loud", "seconds": 60, "why": "a flood"}
    assert api.post("/api/alerts/queue_depth/silence", body, scope="operate")["after"]["until"]
    (found,) = [one for one in api.get("/api/alerts/silences")["silences"] if one["subject"] == "loud"]
    assert (found["name"], found["why"]) == ("queue_depth", "a flood")
    assert api.post("/api/alerts/queue_depth/unsilence", {"subject": "loud"})["after"] is None
    assert [entry[1] for entry in audited(api, "alert", "queue_depth loud")] == ["silence", "end silence"]
    api.refused(404, "POST", "/api/alerts/queue_depth/unsilence", json={"subject": "loud"})
    assert "one of both" in api.refused(422, "POST", "/api/alerts/queue_depth/silence", json={})["detail"]


def test_a_server_looks_where_no_beat_and_no_worker_does(
    servers: Servers, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    with serving(database_url, redis_url, tmp_path / "log", CELERIAC_SWEEP_INTERVAL_MS="100") as api:
        api.rows("INSERT INTO dead_letters (digest, reason, size, message) VALUES (sha256('x'), 'x', 1, 'x')")
        until(lambda: [one["name"] for one in api.get("/api/alerts")["alerts"]] == ["dead_letters"], "the alert")
        assert api.rows("SELECT FROM beats") == api.rows("SELECT FROM workers") == []
