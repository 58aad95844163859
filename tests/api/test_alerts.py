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
    assert "either until or seconds" in api.refused(422, "POST", "/api/alerts/queue_depth/silence", json={})["detail"]


def test_a_silence_ends_at_an_instant_in_any_zone(api: Api) -> None:
    path, instant = "/api/alerts/queue_depth/silence", "2091-06-12T00:39:16"
    changed = api.post(path, {"subject": "far", "until": f"{instant}-21:43"})
    assert changed["after"]["until"].startswith("2091-06-12T22:22:16")
    for wrong in ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", 4_000_000_000):
        (error,) = api.refused(422, "POST", path, json={"until": wrong})["errors"]
        assert error["field"] == "until"


def test_a_server_looks_where_no_beat_and_no_worker_does(
    servers: Servers, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    with serving(database_url, redis_url, tmp_path / "log", CELERIAC_SWEEP_INTERVAL_MS="100") as api:
        api.rows("INSERT INTO dead_letters (digest, reason, size, message) VALUES (sha256('x'), 'x', 1, 'x')")
        until(lambda: [one["name"] for one in api.get("/api/alerts")["alerts"]] == ["dead_letters"], "the alert")
        assert api.rows("SELECT FROM beats") == api.rows("SELECT FROM workers") == []
