"""The settings that pages show are taken by what would read them: Prometheus, kubectl, the engine."""

from __future__ import annotations

import os
import re
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import psycopg2.extensions
import pytest
import yaml
from sqlalchemy import make_url

import tasks
from celeriac import Celeriac, Settings
from celeriac.api.server import create
from celeriac.cli import main
from celeriac.local.valkey import HOST
from celeriac.seam import sentinels
from tests.deploy.test_kubernetes import HERE, base, built, complaints, selects
from tests.deploy.written import of
from tests.matrix import patroni
from tests.matrix.servers import CONFIGURATION

SCRAPING = of("docs/observability.md", "yaml")
POLICIES, PATCHES = ([block] for block in of("deploy/kubernetes/README.md", "yaml"))
PATRONI = of("docs/servers.md", "yaml")
POOLED = of("docs/servers.md", "ini")
ADDRESSES = of("docs/servers.md", "sh")

#: Of PgBouncer's settings (pgbouncer.org/config.html) those that a page has: the right values of each.
OF_PGBOUNCER = {
    "pool_mode": "session|transaction|statement", "default_pool_size": r"\d+", "max_client_conn": r"\d+",
    "query_wait_timeout": r"\d+",
}  # fmt: skip


def test_prometheus_takes_what_it_is_to_scrape(promtool: str, tmp_path: Path) -> None:
    (block,) = SCRAPING
    file = tmp_path / "prometheus.yml"
    file.write_text(block.text)
    asked = [promtool, "check", "config", "--syntax-only", str(file)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_prometheus_is_sent_to_where_the_figures_are() -> None:
    (block,) = SCRAPING
    (job,) = yaml.safe_load(block.text)["scrape_configs"]
    (port,) = (option.default for option in main.commands["serve"].params if option.name == "port")  # type: ignore[attr-defined]
    assert [target.partition(":")[2] for one in job["static_configs"] for target in one["targets"]] == [str(port)]
    assert job.get("metrics_path", "/metrics") in create(tasks.app).openapi()["paths"]


def test_a_patch_of_an_overlay_is_of_what_there_is(tmp_path: Path) -> None:
    """Where there is a kubectl, it makes of them what the platform and our rules take."""
    (block,) = PATCHES
    patches = yaml.safe_load(block.text)["patches"]
    for patch in patches:
        (found,) = [one for one in base() if (one["kind"], one["metadata"]["name"]) == tuple(patch["target"].values())]
        changed = yaml.safe_load(patch["patch"])
        assert (changed["kind"], changed["metadata"]["name"]) == (found["kind"], found["metadata"]["name"])
        assert [c["name"] for c in containers(changed)] == [c["name"] for c in containers(found)]
        assert [memory_of(container) for container in containers(changed)] == [96 + 96 * 6]
    overlay = {"resources": [os.path.relpath(HERE / "base", tmp_path.resolve())], "patches": patches}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    made = built(tmp_path)
    assert complaints(made or base()) == []


def test_a_policy_of_an_overlay_opens_something_to_pods_that_there_are() -> None:
    (block,) = POLICIES
    policy = yaml.safe_load(block.text)
    assert complaints([policy]) == []
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in base() if one["kind"] == "Deployment"]
    assert [pod for pod in labels if selects(policy["spec"]["podSelector"], pod)]


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return found


def memory_of(container: dict[str, Any]) -> int:
    """In MiB, where its two places and the request agree; of as many processes as it says."""
    (limit,) = (int(env["value"]) for env in container["env"] if env["name"] == "CELERIAC_MEMORY_LIMIT_MB")
    assert {container["resources"][of]["memory"] for of in ("requests", "limits")} == {f"{limit}Mi"}
    assert container["args"][container["args"].index("-c") + 1] == "6"
    return limit


def test_patronis_configuration_is_one_of_ours() -> None:
    """As it is tried by night: each of its addresses and folders is one that is replaced there."""
    (block,) = PATRONI
    shown = yaml.safe_load(block.text)
    tried = yaml.safe_load(patroni.configuration("two", Path("/data"), "/programs", port=1, api=2, etcd=3))
    assert (tried["name"], tried["etcd3"]["hosts"]) == ("two", f"{HOST}:3")
    assert re.findall(r"\w+\.internal|/var/\S+|/usr/\S+", yaml.safe_dump(tried)) == []
    assert tried["bootstrap"] == shown["bootstrap"]


def test_pgbouncers_settings_are_of_its_format() -> None:
    (block,) = POOLED
    read, tried = (ConfigParser(interpolation=None, comment_prefixes=(";",)) for _ in range(2))
    read.read_string(block.text)
    tried.read_string(CONFIGURATION)
    assert read.sections() == ["databases", "pgbouncer"]
    for where in read["databases"].values():
        assert {"host", "port"} <= psycopg2.extensions.parse_dsn(where).keys()
    given = dict(read["pgbouncer"])
    assert [f"{name}={value}" for name, value in given.items() if not re.fullmatch(OF_PGBOUNCER[name], value)] == []
    assert given["pool_mode"] == tried["pgbouncer"]["pool_mode"], "as `make pgbouncer` tries it"


@pytest.fixture(scope="module")
def addresses() -> dict[str, str]:
    """As a shell sets them."""
    lines = "".join(block.text for block in ADDRESSES)
    said = subprocess.run(["sh", "-euc", f"set -a\n{lines}env"], env={}, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in said.stdout.splitlines())
    return {name: found[name] for name in re.findall(r"^(\w+)=", lines, re.MULTILINE)}


def test_the_engine_takes_addresses_of_servers_that_take_over(addresses: dict[str, str]) -> None:
    settings = Settings.from_environ(addresses)
    assert (settings.database_url, settings.redis_url, settings.redis_master) == tuple(addresses.values())
    one = Celeriac("shop", settings=settings, set_as_current=False)
    _, options = sentinels.address(str(settings.redis_url), {}, {}, settings)
    assert options["master_name"] == settings.redis_master
    dialect = one.database.engine.dialect
    _, asked = dialect.create_connect_args(make_url(str(settings.database_url)))
    assert asked["target_session_attrs"] == "read-write"
    assert asked["host"].count(",") == asked["port"].count(",") > 0
    one.publisher.close()
    one.database.dispose()
