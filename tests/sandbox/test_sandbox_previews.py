"""Pages of previews beside Duda's API: their own path, no password, the sandbox's faults."""

from __future__ import annotations

import httpx
import pytest

import sandbox


def get(outside: sandbox.Sandbox, path: str, timeout: float = 10) -> httpx.Response:
    return httpx.get(f"{outside.http_url}/preview/{path}", timeout=timeout, trust_env=False)


def test_a_page_needs_no_password_and_names_its_site(outside: sandbox.Sandbox) -> None:
    page = get(outside, "Anna%20%26%20Co")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Anna &amp; Co</h1>" in page.text
    assert get(outside, "Anna%20%26%20Co/picture.svg").headers["content-type"] == "image/svg+xml"
    assert outside.describe()["previews"] == {"Anna & Co": 1}


def test_a_page_fails_or_is_late_on_order(outside: sandbox.Sandbox) -> None:
    assert get(outside, "1?status=503").status_code == 503
    with pytest.raises(httpx.ReadTimeout):
        get(outside, "1?late=20", timeout=0.2)
    outside.faults.order("reset_before", "preview")
    with pytest.raises(httpx.ReadError):
        get(outside, "1")
    assert get(outside, "1").status_code == 200


def test_clearing_forgets_what_was_asked_for(outside: sandbox.Sandbox) -> None:
    get(outside, "1")
    outside.clear()
    assert outside.describe()["previews"] == {}


def test_what_is_no_page_is_refused(outside: sandbox.Sandbox) -> None:
    assert get(outside, "").status_code == 404
    assert httpx.post(f"{outside.http_url}/preview/1", trust_env=False).status_code == 404
