"""Who comes in, what they may do, and what another site can make their browser do: nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import celeriac
from celeriac.dashboard import app as dashboard
from celeriac.dashboard.guard import PERMISSIONS, May
from celeriac.operate.tokens import IMPLIED, READ
from tests.dashboard.pages import ONE, PAGES, filled
from tests.dashboard.site import Served, Site

#: The only form of somebody nobody knows yet.
OPEN = "/sign-in"


#: What changes nothing but what is somebody's own.
ONES_OWN = ("/sign-out", "/looks", "/views/mine", "/forget-view/mine")


def routes() -> Iterator[tuple[str, Any]]:
    """Of all pages and buttons; what else there is are files."""
    for route in (route for router in dashboard.ROUTERS for route in router.routes):
        for method in route.methods - {"HEAD"}:
            yield method, route


def permission(route: Any) -> str | None:
    found = [one.call.permission for one in route.dependant.dependencies if isinstance(one.call, May)]
    assert len(found) <= 1
    return found[0] if found else None


def address(route: Any) -> str:
    return re.sub(r"\{\w+(?::path)?\}", "1", route.path).lstrip("/")


def posts() -> list[tuple[str, str]]:
    """Address and permission of each form but that of signing in."""
    return [
        (address(route), permission(route) or "")
        for method, route in routes()
        if method == "POST" and route.path != OPEN
    ]


def test_every_route_declares_a_permission() -> None:
    for method, route in routes():
        assert method in ("GET", "POST")
        if route.path == OPEN:
            assert permission(route) is None
        else:
            assert permission(route) in PERMISSIONS, f"{method} {route.path}"
        if method == "POST" and route.path not in (OPEN, *ONES_OWN):
            assert PERMISSIONS[permission(route) or ""] != READ, route.path
    assert len(posts()) > 20


def test_a_viewer_may_do_nothing(still: Site) -> None:
    for path, needed in posts():
        if PERMISSIONS[needed] not in IMPLIED[READ]:
            answer = still.post(path, "read")
            assert answer.status_code == 403, path
            assert f"the permission {needed}" in answer.text


def test_a_viewer_is_offered_nothing(full: Site) -> None:
    for path in (*PAGES, *(filled(path, full.ids) for path in ONE if "matching" not in path)):
        text = full.html(path, "read")
        forms = re.findall(r'<form method="post"[^>]*action="([^"]*)"', text)
        assert {form.rpartition("/")[2] for form in forms} <= {"looks", "sign-out", "retry", "mine"}, path
        assert "<button formaction" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {},
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
    ],
)  # fmt: skip
def test_a_form_of_another_site_does_nothing(still: Site, headers: dict[str, str]) -> None:
    for path, _ in [*posts(), ("sign-in", "")]:
        assert still.ask("POST", path, "admin", headers=headers).status_code == 403, path


def test_on_plain_http_the_origin_tells(still: Site) -> None:
    headers = {"Origin": f"http://{still.host}"}
    assert still.ask("POST", "looks", data={"theme": "dark"}, headers=headers).status_code == 303


def test_without_a_session_one_is_sent_to_sign_in(still: Site) -> None:
    for method, route in routes():
        if permission(route) is None:
            continue
        answer = still.ask(method, address(route), None, headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 303, route.path
        assert "sign-in" in answer.headers["location"], route.path
    assert still.get("tasks.json", None).status_code == 401
    assert still.get("tasks", None, headers={"Live": "1"}).status_code == 401


def test_a_token_opens_a_session_and_its_revocation_ends_it(site: Site) -> None:
    token = site.token("mine", "read")
    asked = site.get("tasks?state=failed", None).headers["location"]
    assert asked == "./sign-in?to=tasks%3Fstate%3Dfailed"
    answer = site.post("sign-in", None, token=token, to="tasks?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "./tasks?state=failed")
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Path=/"))
    given = {"Cookie": cookie.partition(";")[0]}
    assert site.get("tasks", None, headers=given).status_code == 200
    site.rows("UPDATE celeriac.api_tokens SET revoked_at = now() WHERE name = 'mine'")
    assert site.get("tasks", None, headers=given).status_code == 303


def test_a_session_is_not_the_token_and_ends_as_one_signs_out_or_after_its_time(site: Site) -> None:
    token, cookies = site.token("mine", "read"), []
    for _ in range(2):
        answer = site.post("sign-in", None, token=token)
        cookies.append({"Cookie": answer.headers["set-cookie"].partition(";")[0], "Sec-Fetch-Site": "same-origin"})
    (first, second), opened = cookies, "SELECT count(*) FROM celeriac.dashboard_sessions"
    assert token[-20:] not in str(cookies)
    assert site.get("tasks", None, headers={"Cookie": f"celeriac={token}"}).status_code == 303
    (stored,) = site.rows("SELECT string_agg(s::text, '') FROM celeriac.dashboard_sessions s")
    assert first["Cookie"].partition("=")[2] not in stored[0]
    assert site.ask("POST", "sign-out", None, headers=first).status_code == 303
    assert [site.get("tasks", None, headers=one).status_code for one in cookies] == [303, 200]
    site.rows("UPDATE celeriac.dashboard_sessions SET expires_at = now()")
    assert site.get("tasks", None, headers=second).status_code == 303
    site.post("sign-in", None, token=token)
    assert site.rows.one(opened) == 1, "those that are over are gone"


def test_a_token_that_only_enqueues_opens_no_page(still: Site) -> None:
    answer = still.post("sign-in", None, token=still.token("submits", "submit"))
    assert (answer.status_code, "only enqueues" in answer.text) == (403, True)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_nowhere_else(still: Site, to: str) -> None:
    answer = still.post("sign-in", None, token=still.tokens["read"], to=to)
    following = httpx.URL(f"{still.url}/sign-in").join(answer.headers["location"])
    assert (following.host, following.path.startswith("/admin/")) == ("127.0.0.1", True)


def test_wrong_tokens_are_throttled(site: Site, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.post("sign-in", None, token="celeriac_x_y").status_code == 401
    throttle = served.state.throttle
    monkeypatch.setattr(throttle, "burst", 0.0)
    monkeypatch.setattr(throttle, "rate", 0.001)
    answer = site.post("sign-in", None, token="celeriac_x_y")
    assert (answer.status_code, "Too many wrong tokens" in answer.text) == (429, True)
    assert site.post("sign-in", None, token=site.tokens["admin"]).status_code == 303


def test_cookies_that_are_no_session_are_throttled(site: Site, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"Cookie": f"celeriac={site.session('read')[:-3]}AAA"}
    assert site.get("tasks", None, headers=wrong).status_code == 303
    monkeypatch.setattr(served.state.throttle, "burst", 0.0)
    monkeypatch.setattr(served.state.throttle, "rate", 0.001)
    answer = site.get("tasks", None, headers=wrong)
    assert (answer.status_code, int(answer.headers["retry-after"]) > 1) == (429, True)
    assert (site.get("tasks").status_code, site.get("tasks", None).status_code) == (200, 303)


def test_a_token_may_ask_so_often(site: Site, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.state.requests, "burst", 0.0)
    answer = site.get("tasks")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_behind_a_proxy_that_ends_tls_the_session_is_of_tls(still: Site) -> None:
    headers = {"Origin": f"https://{still.host}"}
    answer = still.ask("POST", "sign-in", None, data={"token": still.tokens["read"]}, headers=headers)
    cookie = answer.headers["set-cookie"]
    assert (cookie.startswith("__Host-celeriac="), "Secure" in cookie) == (True, True)
    both = cookie.partition(";")[0] + "; celeriac=old"
    assert still.get("tasks", None, headers={"Cookie": both}).status_code == 200
    gone = still.ask("POST", "sign-out", None, headers=headers | {"Cookie": both}).headers.get_list("set-cookie")
    assert sorted(one.partition("=")[0] for one in gone) == ["__Host-celeriac", "celeriac"]
    assert all("Max-Age=0" in one for one in gone)


def test_a_form_is_bounded_most_of_all_that_of_signing_in(still: Site) -> None:
    assert still.post("sign-in", None, token="x" * 5000).status_code == 413
    assert still.post("looks", theme="x" * 5000).status_code == 303
    assert still.post("looks", "read", theme="x" * 2**21).status_code == 413
    many = still.post("looks", **{f"field{n}": "1" for n in range(1001)})
    assert (many.status_code, "1,000 fields" in many.text) == (422, True)


def test_what_is_answered_is_sealed(still: Site) -> None:
    for answer in (
        still.get("tasks"),
        still.get("tasks", None),
        still.get("nothing"),
        still.post("tasks/1/retry", "read"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'; trusted-types celeriac" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_no_template_leaves_anything_unescaped() -> None:
    from tests.processes import ROOT

    for file in (ROOT / "celeriac" / "dashboard").rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|<style|<script>| style=| on\w+=", text), file.name


def contents(site: Site) -> str:
    """A digest of every table of the engine but what says when a token was last used."""
    names = [name for (name,) in site.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac'")]
    found = [
        (name, site.rows(f'SELECT CAST(t AS text) FROM celeriac."{name}" t ORDER BY 1'))
        for name in sorted(names)
        if name != "api_tokens"
    ]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def test_no_look_changes_anything(full: Site) -> None:
    site = full
    site.session("admin")
    before = contents(site)
    for path in (*PAGES, *(filled(path, site.ids) for path in ONE)):
        site.html(path)
    for method, route in routes():
        site.ask("GET", address(route))
        assert method in ("GET", "POST")
    assert contents(site) == before


def test_without_jinja2_the_api_serves_and_the_dashboard_says_what_to_install(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio
    import sys

    from celeriac.api.server import create

    monkeypatch.setattr(celeriac, "dashboard", celeriac.dashboard)  # what is imported anew is forgotten
    for name in [name for name in sys.modules if name.startswith(("celeriac.dashboard", "jinja2"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)

    async def ask() -> list[tuple[int, str]]:
        transport = httpx.ASGITransport(create(served.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return [(a.status_code, a.text) for a in (await http.get("/admin/tasks"), await http.get("/healthz"))]

    (status, said), (health, _) = asyncio.run(ask())
    assert (status, health) == (501, 200)
    assert "pip install 'celeriac[dashboard]'" in said
