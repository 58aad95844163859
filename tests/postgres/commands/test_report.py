"""`celeriac report` tells what a bug's description needs, and no secret."""

from __future__ import annotations

from dataclasses import replace

from celeriac import Celeriac
from celeriac.version import __version__
from tests.postgres.commands.results import Run, value


def test_it_tells_versions_servers_settings_and_what_the_doctor_finds(run: Run, app: Celeriac) -> None:
    app.settings = replace(app.settings, poll_interval=0.5)
    told = value(run("report", "--json"))
    assert told["versions"]["celeriac"] == __version__
    assert told["versions"]["celery"]
    assert told["servers"]["postgres"].startswith("PostgreSQL")
    assert told["servers"]["redis"].split()[0] in ("valkey", "redis")
    assert told["settings"] == {"database_url": "set", "redis_url": "set", "POLL_INTERVAL_MS": 500}
    assert any(line.startswith("✓ ") for line in told["doctor"])
    assert "POLL_INTERVAL_MS: 500" in run("report").stdout


def test_it_has_no_address_and_no_password_and_servers_may_be_away(run: Run, app: Celeriac) -> None:
    given = {"database_url": "postgresql://ann:s3cret@127.0.0.1:1/shop", "redis_url": "redis://:pa55@127.0.0.1:1/0"}
    app.settings = replace(app.settings, alert_webhook="https://hooks.example/T0K3N", **given)
    app.__dict__.pop("database", None)
    app.conf.broker_url = given["redis_url"]
    result = run("report")
    assert result.exit_code == 0
    assert "postgres: no answer: OperationalError" in result.stdout
    assert [secret for secret in ("s3cret", "pa55", "T0K3N", "ann", "127.0.0.1") if secret in result.stdout] == []
