"""`celeriac up`, with nothing set: the link that it prints signs in, in a browser, once."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from celeriac.cli import main
from celeriac.cli.up import _tell_link, sign_in_code
from celeriac.dashboard import session
from celeriac.local.valkey import free_port
from celeriac.operate import tokens
from tests.dashboard.conftest import silent
from tests.dashboard.site import Site
from tests.processes import ROOT, Running, process, until
from tests.renewed import Renewed

LINK = re.compile(r"http://127\.0\.0\.1:\d+/admin/sign-in\?code=([\w-]{43})")


API = f"{sys.executable} -m celery -A tasks celeriac serve"


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renewed[Running]]:
    shared = Renewed(lambda: project(tmp_path_factory.mktemp("up")))
    yield shared
    shared.close()


@pytest.fixture
def up(stacks: Renewed[Running], request: pytest.FixtureRequest) -> Running:
    return stacks.of(request.node.nodeid)


@contextmanager
def project(folder: Path) -> Iterator[Running]:
    """A stack of a new project, on servers of its own, beside an API: both on ports of their own."""
    done = CliRunner().invoke(main, ["init", str(folder / "shop")])
    assert done.exit_code == 0, done.output
    celeriac = f"exec {sys.executable} -c 'from celeriac.cli import main; main()'"
    up = f"cd {folder / 'shop'} && {celeriac} up --with 'api={API}'"
    environ = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "CELERIAC_API_PORT": str(free_port())}
    with process(["bash", "-c", up], environ, folder / "up.log", alone=True) as running:
        yield running
        running.process.send_signal(signal.SIGINT)
        until(lambda: running.process.poll() is not None, "the stack to end")


def test_the_link_that_celeriac_up_prints_signs_in_once(up: Running, browser: Browser) -> None:
    until(lambda: LINK.search(up.printed()) or up.process.poll() is not None, "the link", patience=120)
    link = LINK.search(up.printed())
    assert link, up.printed()
    with browser.new_context() as context, silent(context) as page:
        page.goto(link[0])
        expect(page.get_by_role("navigation", name="Pages")).to_contain_text("Now")
        expect(page).to_have_url(re.compile("/admin/$"))
        expect(page.locator(".menu summary")).to_have_text(re.compile(r"^celeriac up [0-9a-f]{8} · admin$"))
        expect(page.locator("h1")).to_contain_text("Nothing has run yet: enqueue a task", timeout=60_000)
        expect(page.locator("ol.first pre")).to_have_text(re.compile(r"^celeriac tasks enqueue \w+ "))
    with browser.new_context() as another:
        page = another.new_page()
        page.goto(link[0])
        expect(page.get_by_role("alert")).to_contain_text("This link has been used, or is too old.")
        expect(page.get_by_label("A token of the API")).to_be_visible()
    assert up.printed().count(link[1]) == 1, "no log has it"


def test_beside_an_api_the_dashboard_has_another_port_and_ends_alone(up: Running) -> None:
    """The command that `make up` had in 0.1.0. Last of those that look at this stack: it ends its dashboard."""
    until(lambda: (LINK.search(up.printed()) and len(serving(up)) == 2) or up.process.poll() is not None, "both", 120)
    link = LINK.search(up.printed())
    assert link, up.printed()
    serving(up)[int(link[0].partition("1:")[2].partition("/")[0])].kill()
    line = "dashboard ended by itself with status -9; the others go on"
    until(lambda: line in up.printed() or up.process.poll() is not None, "its end to be printed")
    assert up.process.poll() is None, up.printed()
    assert len(serving(up)) == 1


def serving(up: Running) -> dict[int, psutil.Process]:
    """The stack's servers of HTTP by their ports."""
    children = [child for child in psutil.Process(up.pid).children() if "serve" in child.cmdline()]
    return {one.laddr.port: child for child in children for one in child.net_connections() if one.status == "LISTEN"}


def test_a_code_is_no_session_and_a_session_no_code_and_an_old_one_is_nothing(site: Site) -> None:
    code, theirs = sign_in_code(site.app.database), site.session("read")
    assert site.get("tasks", None, headers={"Cookie": f"celeriac={code}"}).status_code == 303
    assert site.post("sign-in", None, code=theirs).status_code == 401
    site.rows("UPDATE celeriac.dashboard_sessions SET expires_at = now() - interval '1 second'")
    assert site.post("sign-in", None, code=code).status_code == 401


def test_a_code_works_on_this_machine_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOOPBACK", ("::1",))
    code = sign_in_code(site.app.database)
    assert site.post("sign-in", None, code=code).status_code == 401
    monkeypatch.undo()
    assert site.post("sign-in", None, code=code).status_code == 303


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For"])
def test_a_code_works_through_no_proxy_on_this_machine(site: Site, header: str) -> None:
    code = sign_in_code(site.app.database)
    headers = {"Sec-Fetch-Site": "same-origin", header: "for=127.0.0.1" if header == "Forwarded" else "127.0.0.1"}
    assert site.ask("POST", "sign-in", None, data={"code": code}, headers=headers).status_code == 401
    assert site.post("sign-in", None, code=code).status_code == 303


def test_following_a_link_changes_nothing_until_its_form_is_sent(site: Site, browser: Browser) -> None:
    code = sign_in_code(site.app.database)
    assert site.get(f"sign-in?code={code}", None).status_code == 200
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{site.url}/sign-in?code={code}&to=roles")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_have_text("Roles")


def test_what_a_link_opens_ends_with_its_token_for_good(site: Site) -> None:
    answer = site.post("sign-in", None, code=sign_in_code(site.app.database))
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert site.get("tasks", None, headers=cookie).status_code == 200
    ((name,),) = site.rows("SELECT name FROM celeriac.api_tokens WHERE name LIKE 'celeriac up %'")
    with site.app.database.transaction() as connection:
        assert tokens.revoke(connection, name)
    assert site.get("tasks", None, headers=cookie).status_code == 303, "to the form"
    assert site.post("sign-in", None, code=sign_in_code(site.app.database)).status_code == 303, "the next run's link"
    assert site.get("tasks", None, headers=cookie).status_code == 303, "the former session is over"


def test_who_may_make_no_token_reads_how_to_sign_in(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.rows("ALTER TABLE celeriac.api_tokens RENAME TO others")
    port = int(site.url.rpartition(":")[2].partition("/")[0])
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, text=True) as dashboard:
        _tell_link(site.app.database, port, dashboard, threading.Event())
    printed = capsys.readouterr().out
    assert f"dashboard http://127.0.0.1:{port}/admin without a link to sign in by: UndefinedTable" in printed
    assert "celeriac tokens create NAME --scope operate" in printed
