"""docker-compose.yml keeps its word: every service starts with the command it has there and becomes healthy.

`docker` is the one of tests/deploy/docker.py; Postgres and Redis are the tests' own servers.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from sqlalchemy import make_url

from celeriac.cli import manifests
from celeriac.operate import tokens
from celeriac.store.connections import Database
from celeriac.testing.servers import fresh_name
from tasks import renderer
from tasks.app import app
from tests.conftest import Servers
from tests.deploy.compose import free_ports, image, interpolated, read, services
from tests.deploy.jail import RULES
from tests.deploy.surroundings import surroundings
from tests.deploy.written import lasting
from tests.processes import ROOT, Rows, Running, process, until

#: As the page of the example has it.
COMMAND = "docker compose up --build"

FILE = read()
SERVICES = FILE["services"].items()
IMAGES = {"postgres", "redis"}
OURS = sorted(set(FILE["services"]) - IMAGES)
WORKERS = [name for name in OURS if "celery -A tasks worker" in FILE["services"][name]["command"]]
LONG_RUNNING = [name for name in OURS if name != "migrate"]

#: Light and quick; everything else is the file's default.
CHOSEN = dict.fromkeys(re.findall(r"\w+_PROCESSES", str(FILE)), "1") | {
    "QM_INSTASITES_INTERVAL_SECONDS": "1",
    "DUDA_REQUESTS_PER_SECOND": "100",
}


def test_whoever_takes_stores_tasks_has_the_browser_that_those_on_web_pages_need() -> None:
    has_browser = {n for n in WORKERS if "BROWSER_TOKEN" in FILE["services"][n]["environment"]}
    takes = {n for n in WORKERS if re.search("store_discovery|product_resync", FILE["services"][n]["command"])}
    assert takes == {"stores", "product-resync"}
    assert takes <= has_browser
    assert {interpolated(FILE["services"][n]["environment"]["WEBMENUS_BASE_URL"], {}) for n in (*takes, "beat")} == {
        "http://sandbox:8800/webmenus"
    }
    assert interpolated("${A-b}${A:-b}", {"A": ""}) == "b", "empty: no such platform"


def test_the_browser_holds_nothing_and_reaches_no_server() -> None:
    """Neither it nor anybody who has a Chromium has an address of Postgres or Redis, nor a network with them in it."""
    with_chromium = [n for n in OURS if FILE["services"][n]["build"].get("args", {}).get("CHROMIUM")]
    assert with_chromium == ["browser"]
    browser, networks = FILE["services"]["browser"], {n: set(s.get("networks", ["default"])) for n, s in SERVICES}
    assert {name for name in browser["environment"] if manifests.SECRETS.search(name)} == {renderer.OWN}
    assert "GPG_KEY" in image(), "the image's own are no reason not to start"
    assert renderer.too_much(services({}, {})["browser"].environ) == []
    assert "DATABASE_URL" in renderer.too_much(services({}, {})["thumbnails"].environ)
    assert {n for n, those in networks.items() if those & networks["browser"]} == {
        "browser", "sandbox", "thumbnails", "stores", "product-resync"
    }  # fmt: skip
    assert "volumes" not in browser


def test_only_what_migrates_has_the_login_that_owns_the_tables() -> None:
    logins: dict[str, set[str]] = {}
    for name, one in interpolated(FILE["services"], {}).items():
        if address := one["environment"].get("DATABASE_URL") if name in OURS else None:
            logins.setdefault(make_url(address).username or "", set()).add(name)
    assert logins.pop("celeriac") == {"migrate"}
    assert logins.pop("celeriac_api") == {"api"}
    assert logins.pop("celeriac_works") == {*WORKERS, "beat", "flower"}
    assert logins == {}


class System:
    """All services of the file on this machine, once they are up."""

    def __init__(self, docker: Running, logs: Path, environ: Mapping[str, str], ports: Mapping[str, str]) -> None:
        self.docker, self.logs, self.services = docker, logs, services(environ, ports)
        self.rows, self.database = Rows(environ["DATABASE_URL"]), Database(environ["DATABASE_URL"])

    def printed(self, name: str) -> str:
        log = self.logs / name
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_until_up(self) -> None:
        for name in LONG_RUNNING:
            up = lasting(FILE["services"][name]["command"])
            assert up, f"what does {name} print once it is up?"
            until(lambda n=name, up=up: up in self.printed(n) or self.docker.process.poll() is not None, name)  # type: ignore[misc]
            assert self.docker.process.poll() is None, self.docker.printed()[-3000:]

    def kill(self) -> None:
        """Where Ctrl-C did not do it."""
        for pid in json.loads(self.printed("pids") or "{}").values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def answer(self, url: str, **headers: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code


@pytest.fixture(scope="module")
def system(servers: Servers, venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    name = fresh_name("deploy")
    servers.execute(f"CREATE DATABASE {name}")
    redis.Redis.from_url(servers.redis_url).flushdb()
    folder, ports = tmp_path_factory.mktemp("compose"), free_ports()
    owner = make_url(servers.database(name))
    logins = {part: owner.set(username=f"{name}_{part}", password="secret") for part in ("worker", "admin")}
    given = CHOSEN | {"DATABASE_URL": servers.database(name), "REDIS_URL": servers.redis_url}
    given |= {f"{part.upper()}_DATABASE_URL": url.render_as_string(hide_password=False) for part, url in logins.items()}
    told = {"COMPOSE_LOGS": str(folder), "COMPOSE_PORTS": json.dumps(ports)}
    environ = surroundings(venv, **given, **told)
    with process(["bash", "-c", f"exec {COMMAND}"], environ, folder / "docker", alone=True) as docker:
        found = System(docker, folder, environ, ports)
        try:
            found.wait_until_up()
            yield found
        finally:
            found.kill()
            found.rows.close()
            found.database.dispose()
    servers.execute(f"DROP DATABASE {name} WITH (FORCE)")
    for login in logins.values():
        servers.execute(f"DROP ROLE {login.username}")


def test_migrate_brings_an_empty_database_to_the_schema_and_ends(system: System) -> None:
    assert "The database is current" in system.printed("migrate")


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_a_service_becomes_healthy_by_its_own_check(system: System, name: str) -> None:
    service = system.services[name]
    until(service.is_healthy, f"{name} to be healthy:\n{system.printed(name)[-3000:]}")
    assert service.is_healthy(), "it stays so"


def test_beat_ticks(system: System) -> None:
    ticked = "SELECT FROM celeriac.scheduled_jobs WHERE name = 'batcher instasite_build' AND last_run_at IS NOT NULL"
    until(lambda: system.rows(ticked), "a tick")
    assert system.rows("SELECT last_tick_at >= started_at FROM celeriac.beats") == [(True,)]


def test_each_signs_in_as_itself_and_only_the_migration_as_the_owner(system: System) -> None:
    """Who is connected, by the login's last word, while all of them are."""
    for name in ("beat", "instasite-build", "api", "flower"):
        until(system.services[name].is_healthy, name)
    signed_in = "SELECT DISTINCT substring(usename from '_(worker|admin)$') FROM pg_stat_activity WHERE datname = :name"
    seen = {login for (login,) in system.rows(signed_in, name=system.database.engine.url.database)}
    assert seen == {"worker", "admin", None}, "None: this test's own"
    assert "They let in" in system.printed("migrate")


def test_flower_answers_only_with_the_password(system: System) -> None:
    flower = system.services["flower"]
    until(flower.is_healthy, "flower")
    address = f"http://127.0.0.1:{flower.environ['FLOWER_PORT']}/workers"
    password = base64.b64encode(flower.environ["FLOWER_BASIC_AUTH"].encode()).decode()
    assert system.answer(address) == 401
    assert system.answer(address, Authorization=f"Basic {password}") == 200
    assert "FLOWER_READ_ONLY" in flower.environ


def test_the_api_answers_only_with_a_token(system: System) -> None:
    api = system.services["api"]
    until(api.is_healthy, "the API")
    address = f"http://127.0.0.1:{api.environ['CELERIAC_API_PORT']}/openapi.json"
    with system.database.transaction() as connection:
        token = tokens.create(connection, "compose", ["read"], by="test")
    assert system.answer(address) == 401
    assert system.answer(address, Authorization=f"Bearer {token}") == 200


def test_a_site_is_built_through_all_of_it(system: System) -> None:
    (site, account), *_ = system.rows("""
        WITH account AS (INSERT INTO accounts (name, email) VALUES ('Anna', 'anna@example.com') RETURNING id),
            template AS (INSERT INTO templates (name, duda_template_id) VALUES ('Bakery', 20012) RETURNING id)
        INSERT INTO instasites (account_id, template_id) SELECT account.id, template.id FROM account, template
        RETURNING id, account_id""")
    call = f"from tasks.instasites import build; build.delay(instasite_id={site}, account_id={account})"
    environ = system.services["instasite-build"].environ
    subprocess.run(["python", "-c", call], cwd=ROOT, env=environ, check=True)
    builds = "SELECT status FROM worker_tasks WHERE role LIKE 'instasite%'"
    done = f"SELECT FROM ({builds}) HAVING count(*) FILTER (WHERE status = 'completed') = 2 AND count(*) = 2"
    until(lambda: system.rows(done), "the build and its follow-ups")
    assert system.rows("SELECT status FROM instasites") == [("PUBLISHED",)]


def test_a_browser_renders_it_and_keeps_pictures_in_its_volume(system: System) -> None:
    """After the test above, whose site it is; a browser wants a home and room for temporary files."""
    call = "from tasks.thumbnails import enqueue_missing_thumbnails as find; find.delay()"
    subprocess.run(["python", "-c", call], cwd=ROOT, env=system.services["thumbnails"].environ, check=True)
    desktop = "SELECT details #>> '{thumbnails,desktop}' FROM instasites"
    until(lambda: system.rows(desktop) != [(None,)], f"thumbnails:\n{system.printed('thumbnails')[-3000:]}")
    ((address,),) = system.rows(desktop)
    assert address.startswith("file:///thumbnails/instasite/")


def test_every_service_ends_with_ctrl_c(system: System) -> None:
    """Last: it ends the module's processes."""
    system.docker.process.send_signal(signal.SIGINT)
    assert system.docker.process.wait(timeout=60) == 0
    assert set(system.docker.printed().splitlines()) == {f"{name} exited with code 0" for name in LONG_RUNNING}


# -- what the file says ------------------------------------------------------------------------------------------------


def test_every_queue_has_a_worker() -> None:
    commands = [FILE["services"][name]["command"] for name in WORKERS]
    consumed = [queue for command in commands for queue in re.search(r"-Q (\S+)", command)[1].split(",")]  # type: ignore[index]
    ours = [task for task in app.tasks.values() if (task.__module__ or "").startswith("tasks.")]
    assert sorted(consumed) == sorted({task.role.queue for task in ours})
    assert ours


def test_every_service_has_a_health_check_or_ends_by_itself() -> None:
    without = {name for name, service in FILE["services"].items() if "healthcheck" not in service}
    assert without == {"migrate"}


def test_services_wait_for_what_they_need() -> None:
    for name in set(OURS) - {"migrate", "sandbox", "browser"}:
        assert FILE["services"][name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "redis": {"condition": "service_healthy"},
        }
    assert FILE["services"]["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_every_variable_has_a_default_for_local_use() -> None:
    assert "${" not in json.dumps(interpolated(FILE, {}))


def _documented() -> dict[str, str]:
    """The application's settings with their defaults, as the pages' tables have them."""
    pages = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("example", "thumbnails", "stores", "subreddits")]
    rows = re.findall(r"^\| (`[A-Z].*?) \| (.*?) \|", "".join(pages), re.MULTILINE)
    found: dict[str, str] = {}
    for names, defaults in rows:
        listed = re.findall(r"`([A-Z_]+)`", names)
        told = [one.strip() for one in defaults.split(",")]
        found |= dict(zip(listed, told if len(told) == len(listed) else [""] * len(listed), strict=True)) | found
    return found


#: Those of some services alone, and those that the image has settled.
OF_SOME = {"THUMBNAILS_URL": {"thumbnails"}, "THUMBNAILS_PUBLIC_URL": {"thumbnails"},
           "CHROMIUM_SANDBOX": {"browser"}, "BROWSER_ALLOWED_HOSTS": {"browser"}, "CHROMIUM_PATH": set(),
           "BROWSER_TOKEN": {"browser", "thumbnails", "stores", "product-resync"}, "BROWSER_AT_ONCE": {"browser"},
           "BROWSER_LISTEN": set()}  # fmt: skip

#: What is another number here than by default: shared out among its processes; the sandbox's.
OTHERWISE = {"DUDA_REQUESTS_PER_SECOND", "SMTP_PORT"}


@pytest.mark.parametrize("name", _documented())
def test_a_setting_that_the_pages_tell_reaches_the_services(name: str) -> None:
    """With the default that they tell, too. Roles are made of settings, so whoever imports them has all."""
    own = OF_SOME.get(name, set(OURS) - {"sandbox", "browser"})
    chosen, default = interpolated(FILE["services"], {name: "chosen"}), _documented()[name]
    given = {service: chosen[service]["environment"].get(name) for service in own}
    assert set(given.values()) <= {"chosen"}
    if re.fullmatch(r"[\d.]+", default) and name not in OTHERWISE:
        assert {FILE["services"][service]["environment"][name] for service in own} == {f"${{{name}:-{default}}}"}


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in FILE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(interpolated(port, {}).startswith("127.0.0.1:") for port in ports)


def test_every_service_of_ours_has_the_rules_of_the_jail() -> None:
    """In which they have all become healthy and built a site, above."""
    assert {name: {rule: FILE["services"][name].get(rule) for rule in RULES} for name in OURS} == dict.fromkeys(
        OURS, RULES
    )
    assert [name for name in OURS if {"privileged", "cap_add", "user"} & set(FILE["services"][name])] == []
