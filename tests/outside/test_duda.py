"""The client of Duda's API against the sandbox, over real sockets."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

import sandbox
from sandbox.sites import Refused
from tasks.duda import Duda, DudaSettings, domain_prefix_for
from tasks.duda_answers import DudaError, DudaLockedOut, DudaRateLimited, DudaRefused, DudaUnavailable, meaning_of
from tests.processes import until

TEMPLATE = sandbox.TEMPLATES[0]


def settings_for(outside: sandbox.Sandbox, **changes: Any) -> DudaSettings:
    return replace(DudaSettings.from_env(outside.environ()), requests_per_second=1000.0, **changes)


@pytest.fixture
def duda(outside: sandbox.Sandbox) -> Iterator[Duda]:
    with Duda(settings_for(outside)) as client:
        yield client


@pytest.fixture
def impatient(outside: sandbox.Sandbox) -> Iterator[Duda]:
    """Gives up on an answer after 0.3 seconds."""
    with Duda(settings_for(outside, timeout_seconds=0.3)) as client:
        yield client


def sites_of(outside: sandbox.Sandbox, external_id: str) -> list[str]:
    return outside.sites.names_of(external_id)


# The endpoints


def test_a_created_site_is_found_by_its_name_and_by_its_external_id(duda: Duda) -> None:
    name = duda.create_site(TEMPLATE, "job-1", default_domain_prefix="joes-pizza")
    site = duda.get_site(name)
    assert (site["site_name"], site["external_uid"], site["template_id"]) == (name, "job-1", TEMPLATE)
    assert site["site_default_domain"] == "joes-pizza.multiscreensite.com"
    assert duda.find_site("job-1") == name


def test_no_site_with_an_external_id_is_none(duda: Duda) -> None:
    assert duda.find_site("nobody") is None


def test_an_error_that_says_there_is_no_such_site_is_none_too(
    duda: Duda, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[str]:
        raise Refused("ResourceNotExist", "No site has this external id")

    monkeypatch.setattr(outside.sites, "names_of", refuse)
    assert duda.find_site("nobody") is None


@pytest.mark.parametrize("answer", [{"names": []}, [1], "text"])
def test_an_answer_of_another_shape_is_unavailable(
    duda: Duda, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(outside.sites, "names_of", lambda _: answer)
    with pytest.raises(DudaUnavailable, match="no list of site names"):
        duda.find_site("job-1")


@pytest.mark.parametrize("external_id", ["a/b", "a b", "ü", "a?b=c#d", "a%2Fb", "..a", "x" * 45])
def test_any_external_id_survives_the_path(duda: Duda, external_id: str) -> None:
    name = duda.create_site(TEMPLATE, external_id)
    assert duda.find_site(external_id) == name


def test_of_several_sites_with_one_external_id_always_the_same_is_found(
    duda: Duda, caplog: pytest.LogCaptureFixture
) -> None:
    names = {duda.create_site(TEMPLATE, "job-1") for _ in range(3)}
    assert duda.find_site("job-1") == min(names)
    assert "3 sites with external id job-1" in caplog.text


def test_content_domain_and_publish_reach_the_site(duda: Duda, outside: sandbox.Sandbox) -> None:
    name = duda.create_site(TEMPLATE, "job-1")
    duda.update_content(name, {"business_data": {"name": "Joe's"}})
    duda.set_domain(name, "www.joes.example")
    duda.publish(name)
    duda.publish(name)
    site = outside.describe()["sites"][0]
    assert site["content"] == {"business_data": {"name": "Joe's"}}
    assert (site["site_domain"], site["published"]) == ("www.joes.example", 2)
    assert duda.get_site(name)["publish_status"] == "PUBLISHED"


def test_one_connection_serves_many_requests(duda: Duda, outside: sandbox.Sandbox) -> None:
    for _ in range(20):
        duda.find_site("job-1")
    assert outside.describe()["connections"] == 1


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_change_the_path_is_refused_before_asking(
    duda: Duda, outside: sandbox.Sandbox, name: str
) -> None:
    for method in (duda.get_site, duda.publish, duda.find_site):
        with pytest.raises(ValueError, match=r"names no site|must have 1 to 45"):
            method(name)
    assert outside.describe()["requests"] == {}


def test_an_external_id_that_duda_would_not_store_is_refused_before_asking(duda: Duda) -> None:
    with pytest.raises(ValueError, match="1 to 45 characters"):
        duda.ensure_site(TEMPLATE, "x" * 46)


# The errors


def test_wrong_credentials_lock_out_until_they_are_mended_and_are_not_repeated_in_the_message(
    outside: sandbox.Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = replace(settings_for(outside), password="hunter2")
    with Duda(wrong) as duda, pytest.raises(DudaLockedOut, match=r"401 Unauthorized: .*DUDA_API_PASSWORD") as refused:
        duda.ensure_site(TEMPLATE, "job-1")
    assert "check DUDA_API_USER" in caplog.text
    assert "hunter2" not in f"{refused.value} {refused.value!r} {wrong} {duda!r} {caplog.text}"


def test_an_unknown_template_is_refused_with_dudas_code_and_message(duda: Duda) -> None:
    with pytest.raises(DudaRefused) as refused:
        duda.create_site(999, "job-1")
    assert (refused.value.status, refused.value.error_code) == (400, "ResourceNotExist")
    assert str(refused.value).endswith("400 ResourceNotExist: Template with id '999' doesn't exist")


def test_an_unknown_site_is_refused(duda: Duda) -> None:
    for ask in (duda.get_site, duda.publish, lambda name: duda.set_domain(name, "www.joes.example")):
        with pytest.raises(DudaRefused, match="ResourceNotExist"):
            ask("badName")


def test_an_answer_without_an_error_object_asks_for_the_base_url() -> None:
    page = httpx.Response(404, text="<html>", request=httpx.Request("POST", "https://api.duda.co/sites/x"))
    with pytest.raises(DudaUnavailable, match=r"404 Unknown: POST /sites/x: .*does DUDA_BASE_URL end in /api\?"):
        meaning_of(page)


@pytest.mark.parametrize(
    ("statuses", "error"),
    [
        ((400, 402, 404, 405, 406, 410, 413, 415, 422, 451), DudaRefused),
        ((401, 403), DudaLockedOut),
        ((408, 409, 423, 425, 500, 502, 503, 504), DudaUnavailable),
        ((429,), DudaRateLimited),
    ],
)
def test_each_status_is_for_good_or_for_now(statuses: tuple[int, ...], error: type[DudaError]) -> None:
    asked = httpx.Request("POST", "https://api.duda.co/api/sites/x")
    for status in statuses:
        with pytest.raises(DudaError) as raised:
            meaning_of(httpx.Response(status, json={"error_code": "Code", "message": "why"}, request=asked))
        assert type(raised.value) is error, status


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("rate_limited", DudaRateLimited),
        ("server_error", DudaUnavailable),
        ("hang_before", DudaUnavailable),
        ("hang_after", DudaUnavailable),
        ("hang_late", DudaUnavailable),
        ("reset_before", DudaUnavailable),
        ("reset_after", DudaUnavailable),
    ],
)
def test_each_fault_becomes_its_error_and_the_client_does_not_retry(
    impatient: Duda, outside: sandbox.Sandbox, kind: Any, error: type[DudaError]
) -> None:
    outside.faults.order(kind)
    with pytest.raises(error) as raised:
        impatient.find_site("job-1")
    assert type(raised.value) is error
    assert outside.describe()["requests"] == {"find": 1}


def test_a_server_that_is_not_there_is_unavailable(outside: sandbox.Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    settings = replace(settings_for(outside), base_url=f"http://127.0.0.1:{port}/api")
    with Duda(settings) as duda, pytest.raises(DudaUnavailable, match="ConnectError"):
        duda.publish("some-site")


@pytest.mark.parametrize("as_date", [False, True])
def test_a_rate_limit_tells_the_seconds_to_wait(duda: Duda, outside: sandbox.Sandbox, as_date: bool) -> None:
    outside.faults.change({"rates": {"rate_limited": 1}, "retry_after": 30, "retry_after_date": as_date})
    with pytest.raises(DudaRateLimited) as limited:
        duda.publish("some-site")
    assert 20 <= limited.value.retry_after <= 30  # A date has whole seconds, and some pass on the way.


@pytest.mark.parametrize(
    "error",
    [DudaRateLimited(2.5), DudaRefused(400, "Code", "message"), DudaLockedOut("401"), DudaUnavailable("timeout")],
)
def test_errors_survive_the_way_between_processes(error: DudaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# ensure_site


def test_ensure_site_creates_once_and_then_finds(duda: Duda, outside: sandbox.Sandbox) -> None:
    first = duda.ensure_site(TEMPLATE, "job-1")
    assert duda.ensure_site(TEMPLATE, "job-1") == first
    assert outside.describe()["requests"] == {"find": 2, "create": 1}
    assert duda.get_site(first)["site_default_domain"].startswith(domain_prefix_for("job-1"))


@pytest.mark.parametrize("kind", ["reset_after", "hang_after", "reset_before", "hang_before"])
def test_after_a_lost_create_the_repetition_ends_with_exactly_one_site(
    impatient: Duda, outside: sandbox.Sandbox, kind: Any
) -> None:
    outside.faults.order(kind, "create")
    with pytest.raises(DudaUnavailable):
        impatient.ensure_site(TEMPLATE, "job-1")
    name = impatient.ensure_site(TEMPLATE, "job-1")
    assert sites_of(outside, "job-1") == [name]
    assert outside.describe()["creates"] == {"job-1": 1}


def test_a_create_that_takes_effect_after_the_repetition_looked_makes_no_second_site(
    impatient: Duda, outside: sandbox.Sandbox
) -> None:
    outside.faults.order("hang_late", "create")
    with pytest.raises(DudaUnavailable):
        impatient.ensure_site(TEMPLATE, "job-1")
    name = impatient.ensure_site(TEMPLATE, "job-1")
    outside.release()
    until(lambda: outside.describe()["in_flight"] == 0, "the late creation's end")
    assert outside.describe()["requests"]["create"] == 2
    assert sites_of(outside, "job-1") == [name]


def test_a_create_refused_because_an_earlier_one_just_arrived_finds_that_one(
    duda: Duda, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier create takes effect between this repetition's look-up and its create."""
    look_up = Duda.find_site

    def look_up_then_lose_the_race(client: Duda, external_id: str) -> str | None:
        found = look_up(client, external_id)
        monkeypatch.undo()
        client.create_site(TEMPLATE, external_id, default_domain_prefix=domain_prefix_for(external_id))
        return found

    monkeypatch.setattr(Duda, "find_site", look_up_then_lose_the_race)
    name = duda.ensure_site(TEMPLATE, "job-1")
    assert sites_of(outside, "job-1") == [name]


def test_a_create_refused_for_another_reason_stays_refused(duda: Duda) -> None:
    with pytest.raises(DudaRefused, match="Template with id '999'"):
        duda.ensure_site(999, "job-1")
