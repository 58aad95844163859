"""The stand-in speaks Duda's documented paths, shapes and error bodies."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import sandbox

TEMPLATE = sandbox.TEMPLATES[0]
SITES = "/api/sites/multiscreen"


def create(api: httpx.Client, external_uid: str = "job-1", **more: Any) -> httpx.Response:
    body = {"template_id": TEMPLATE, "site_data": {"external_uid": external_uid}, **more}
    return api.post(f"{SITES}/create", json=body)


def created_name(api: httpx.Client, external_uid: str = "job-1", **more: Any) -> str:
    return str(create(api, external_uid, **more).json()["site_name"])


def test_create_answers_with_nothing_but_the_site_name(api: httpx.Client) -> None:
    answer = create(api)
    assert (answer.status_code, list(answer.json())) == (200, ["site_name"])


def test_a_site_shows_only_properties_that_have_a_value(api: httpx.Client) -> None:
    name = created_name(api, default_domain_prefix="joes-pizza", lang="en")
    site = api.get(f"{SITES}/{name}").json()
    assert site["site_default_domain"] == "joes-pizza.multiscreensite.com"
    assert (site["template_id"], site["lang"], site["external_uid"]) == (TEMPLATE, "en", "job-1")
    assert site["publish_status"] == "NOT_PUBLISHED_YET"
    assert not {"site_domain", "first_published_date"} & set(site)


def test_an_external_id_may_belong_to_several_sites_and_each_create_is_counted(
    api: httpx.Client, outside: sandbox.Sandbox
) -> None:
    names = [created_name(api), created_name(api)]
    assert api.get(f"{SITES}/byexternalid/job-1").json() == names
    assert api.get("/_sandbox/state").json()["creates"] == {"job-1": 2}
    assert outside.sites.names_of("job-2") == []


def test_an_external_id_is_found_under_its_new_value_only(api: httpx.Client) -> None:
    name = created_name(api, "old")
    assert api.post(f"{SITES}/update/{name}", json={"external_uid": "new"}).status_code == 204
    assert api.get(f"{SITES}/byexternalid/old").json() == []
    assert api.get(f"{SITES}/byexternalid/new").json() == [name]


def test_update_content_and_publish_answer_204_without_a_body(api: httpx.Client) -> None:
    name = created_name(api)
    answers = [
        api.post(f"{SITES}/update/{name}", json={"site_domain": "www.joes.example"}),
        api.post(f"{SITES}/{name}/content", json={"business_data": {"name": "Joe's"}}),
        api.post(f"{SITES}/publish/{name}"),
    ]
    assert [(a.status_code, a.content) for a in answers] == [(204, b"")] * 3


def test_the_state_shows_domain_content_and_number_of_publishes(api: httpx.Client) -> None:
    name = created_name(api)
    api.post(f"{SITES}/update/{name}", json={"site_domain": "www.joes.example"})
    api.post(f"{SITES}/{name}/content", json={"a": 1})
    api.post(f"{SITES}/{name}/content", json={"b": 2})
    api.post(f"{SITES}/publish/{name}")
    api.post(f"{SITES}/publish/{name}")
    state = api.get("/_sandbox/state").json()
    assert state["requests"] == {"create": 1, "update": 1, "content": 2, "publish": 2}
    assert state["sites"] == [
        {
            "site_name": name,
            "external_uid": "job-1",
            "template_id": TEMPLATE,
            "site_domain": "www.joes.example",
            "content": {"a": 1, "b": 2},
            "published": 2,
        }
    ]
    assert api.get(f"{SITES}/{name}/content").json() == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("change", "error_code"),
    [
        ({"template_id": 999}, "ResourceNotExist"),
        ({"template_id": None}, "ResourceNotExist"),
        ({"default_domain_prefix": "abc"}, "InvalidInput"),
        ({"default_domain_prefix": "taken"}, "ResourceAlreadyExist"),
        ({"site_data": {"external_uid": "x" * 46}}, "InvalidInput"),
        ({"site_data": {"site_domain": "no domain"}}, "InvalidInput"),
        ({"site_data": {"site_domain": "www.taken.example"}}, "ResourceAlreadyExist"),
        ({"site_data": "text"}, "InvalidInput"),
    ],
)
def test_what_duda_would_not_create_gets_a_400_with_its_error_object(
    api: httpx.Client, outside: sandbox.Sandbox, change: dict[str, Any], error_code: str
) -> None:
    taken = {"external_uid": "first", "site_domain": "www.taken.example"}
    create(api, default_domain_prefix="taken", site_data=taken)
    answer = create(api, **change)
    assert (answer.status_code, answer.json()["error_code"]) == (400, error_code)
    assert set(answer.json()) == {"error_code", "message"}
    assert list(outside.describe()["creates"]) == ["first"]


def test_an_unknown_site_gets_the_documented_error(api: httpx.Client) -> None:
    answer = api.get(f"{SITES}/badName")
    assert answer.status_code == 400
    assert answer.json() == {
        "error_code": "ResourceNotExist",
        "message": "Site with alias 'badName' doesn't exist",
    }


def test_a_site_may_keep_its_own_domain_but_not_take_another_sites(api: httpx.Client) -> None:
    first, second = created_name(api, "one"), created_name(api, "two")
    for _ in range(2):
        assert api.post(f"{SITES}/update/{first}", json={"site_domain": "www.a.example"}).status_code == 204
    assert api.post(f"{SITES}/update/{second}", json={"site_domain": "www.a.example"}).status_code == 400


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"'])
def test_a_body_that_is_no_json_object_is_refused(api: httpx.Client, body: bytes) -> None:
    assert api.post(f"{SITES}/create", content=body).status_code == 400


def test_wrong_credentials_get_401_and_reach_nothing(api: httpx.Client, outside: sandbox.Sandbox) -> None:
    body = {"template_id": TEMPLATE}
    for credentials in (("sandbox", "wrong"), ("wrong", "sandbox-password"), ("é", "ü")):
        assert api.post(f"{SITES}/create", json=body, auth=credentials).status_code == 401
    assert outside.describe()["sites"] == []


def test_an_unknown_path_gets_404_with_an_error_object(api: httpx.Client) -> None:
    answer = api.get("/api/nowhere")
    assert (answer.status_code, set(answer.json())) == (404, {"error_code", "message"})


def test_two_hundred_connections_are_served_at_once(outside: sandbox.Sandbox) -> None:
    """Each connection is open before the first request is sent, and stays open for a second one."""
    address = (outside.http_url.removeprefix("http://").split(":")[0], int(outside.http_url.split(":")[-1]))
    connections = [socket.create_connection(address, timeout=20) for _ in range(200)]
    try:
        for _ in range(2):
            for connection in connections:
                connection.sendall(b"GET /_sandbox/mail HTTP/1.1\r\nHost: x\r\n\r\n")
            with ThreadPoolExecutor(8) as pool:
                assert set(pool.map(_whole_answer, connections)) == {b"HTTP/1.1 200 OK"}
    finally:
        for connection in connections:
            connection.close()


def _whole_answer(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\r\n\r\n[]"):
        received += connection.recv(4096) or pytest.fail("closed")
    return received.partition(b"\r\n")[0]


def test_clear_forgets_sites_and_counts(api: httpx.Client) -> None:
    create(api)
    assert api.post("/_sandbox/clear").status_code == 200
    state = api.get("/_sandbox/state").json()
    assert (state["sites"], state["creates"], state["requests"]) == ([], {}, {})


def test_stop_frees_the_ports() -> None:
    with sandbox.start() as first:
        ports = (int(first.http_url.split(":")[-1]), first.smtp[1], first.dns[1])
    with sandbox.start(http_port=ports[0], smtp_port=ports[1], dns_port=ports[2]) as second:
        assert second.http_url == first.http_url


def test_a_taken_port_is_an_error_and_leaves_nothing_running() -> None:
    with sandbox.start() as first:
        free = int(first.http_url.split(":")[-1])
    with sandbox.start() as running, pytest.raises(OSError, match="in use"):
        sandbox.start(http_port=free, dns_port=running.dns[1])
    sandbox.start(http_port=free).stop()
