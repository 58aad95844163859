"""The client of Cloudflare's API against the sandbox, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import sandbox
from celeriac import ConfigurationError
from sandbox.cloudflare import TOKEN
from sandbox.stand_ins import Reply
from tasks.cloudflare import Cloudflare, CloudflareSettings
from tasks.dns_provider import (
    DnsError,
    DnsLockedOut,
    DnsProvider,
    DnsRateLimited,
    DnsRefused,
    DnsUnavailable,
    NoZone,
    provider_of,
)
from tasks.environment import _tell

DOMAIN, TARGET, ZONE = "www.joes.example", "s.multiscreensite.com", "joes.example"


@pytest.fixture
def provider(outside: sandbox.Sandbox) -> Iterator[DnsProvider]:
    """With the environment's token, of an account whose zone is joes.example."""
    outside.cloudflare.open_zone("joes.example")
    with provider_of("cloudflare", None, ZONE) as provider:
        yield provider


def records(outside: sandbox.Sandbox) -> list[tuple[str, str, bool]]:
    return [(r["name"], r["content"], r["proxied"]) for r in outside.cloudflare.describe()["joes.example"]]


def test_a_domain_is_pointed_once_and_then_left_alone(provider: DnsProvider, outside: sandbox.Sandbox) -> None:
    assert [provider.point(DOMAIN, TARGET) for _ in range(2)] == ["created", "unchanged"]
    assert records(outside) == [(DOMAIN, TARGET, False)]
    assert outside.names.describe() == {DOMAIN: TARGET}


def test_case_and_final_dot_of_a_domain_do_not_matter(provider: DnsProvider) -> None:
    assert [provider.point(domain, TARGET) for domain in ("WWW.Joes.Example.", DOMAIN)] == ["created", "unchanged"]


@pytest.mark.parametrize("target", ["S.MultiScreenSite.com.", TARGET])
def test_nor_do_they_of_the_target(provider: DnsProvider, outside: sandbox.Sandbox, target: str) -> None:
    outside.cloudflare.put("joes.example", "CNAME", DOMAIN, "s.multiscreensite.COM.")
    assert provider.point(DOMAIN, target) == "unchanged"


@pytest.mark.parametrize(("content", "proxied"), [("elsewhere.example", False), (TARGET, True)])
@pytest.mark.parametrize(("token", "zone"), [("joe's", None), (None, "Joes.Example.")])
def test_a_cname_that_points_elsewhere_or_is_hidden_is_changed_in_the_account_s_own_zone(
    outside: sandbox.Sandbox, token: str | None, zone: str | None, content: str, proxied: bool
) -> None:
    outside.cloudflare.open_zone("joes.example", token=token or TOKEN)
    outside.cloudflare.put("joes.example", "CNAME", DOMAIN, content, proxied=proxied)
    with provider_of("cloudflare", token, zone) as provider:
        assert provider.point(DOMAIN, TARGET) == "changed"
    assert records(outside) == [(DOMAIN, TARGET, False)]


NOT_THE_ACCOUNT_S = pytest.mark.parametrize("zone", [None, "annas.example", "example", "www.joes.example"])


@NOT_THE_ACCOUNT_S
@pytest.mark.parametrize("before", [None, "shop.joes.example"])
def test_with_the_environment_s_token_no_name_in_another_s_zone_is_taken(
    outside: sandbox.Sandbox, zone: str | None, before: str | None
) -> None:
    outside.cloudflare.open_zone("joes.example")
    if before:
        outside.cloudflare.put("joes.example", "CNAME", DOMAIN, before)
    refusal = r"is in the zone joes\.example, .* set zone to joes\.example, or token"
    with provider_of("cloudflare", None, zone) as provider, pytest.raises(DnsRefused, match=refusal):
        provider.point(DOMAIN, TARGET)
    assert records(outside) == ([(DOMAIN, before, False)] if before else [])


@NOT_THE_ACCOUNT_S
def test_there_what_is_right_is_left_as_it_is(outside: sandbox.Sandbox, zone: str | None) -> None:
    outside.cloudflare.open_zone("joes.example")
    outside.cloudflare.put("joes.example", "CNAME", DOMAIN, TARGET, proxied=True)
    with provider_of("cloudflare", None, zone) as provider:
        assert provider.point(DOMAIN, TARGET) == "unchanged"
    assert records(outside) == [(DOMAIN, TARGET, True)]


def test_settings_that_are_wrong_lock_out_until_they_are_mended(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once for each: what waits has not failed, so nobody would look for it."""
    _tell.cache_clear()
    for environ in ({}, {"CLOUDFLARE_API_TOKEN": "general", "CLOUDFLARE_BASE_URL": "nowhere"}) * 2:
        with pytest.raises(DnsLockedOut, match="CLOUDFLARE_"):
            provider_of("cloudflare", None, None, environ)
    told = [record.getMessage().partition(": ") for record in caplog.records]
    assert [begins for begins, _, _ in told] == ["tasks wait until this is mended"] * 2
    assert all("CLOUDFLARE_" in mistake for _, _, mistake in told)


def test_a_zone_may_be_opened_while_the_zones_are_listed(outside: sandbox.Sandbox) -> None:
    class Opening(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            outside.cloudflare.open_zone(f"{default}.example")
            return super().get(name, default)

    outside.cloudflare.open_zone("joes.example")
    listed = outside.cloudflare._list_zones(TOKEN, Opening())
    assert [zone["name"] for zone in listed.document["result"]] == ["joes.example"]


def test_an_address_that_bars_the_cname_is_left_and_told_of(provider: DnsProvider, outside: sandbox.Sandbox) -> None:
    outside.cloudflare.put("joes.example", "A", DOMAIN, "192.0.2.1")
    with pytest.raises(DnsRefused, match=r"www\.joes\.example has a record of type A: remove it"):
        provider.point(DOMAIN, TARGET)
    assert records(outside) == [(DOMAIN, "192.0.2.1", False)]


def test_the_closest_zone_is_taken(provider: DnsProvider, outside: sandbox.Sandbox) -> None:
    outside.cloudflare.open_zone("shop.joes.example")
    with provider_of("cloudflare", None, "shop.joes.example") as of_the_shop:
        of_the_shop.point("www.shop.joes.example", TARGET)
    assert records(outside) == []
    assert provider.point("joes.example", TARGET) == "created", "a zone's own name"


def test_a_domain_served_elsewhere_has_no_zone(provider: DnsProvider) -> None:
    with pytest.raises(NoZone, match=r"no zone of www\.annas\.example"):
        provider.point("www.annas.example", TARGET)


def test_another_account_s_zones_are_not_seen(outside: sandbox.Sandbox) -> None:
    outside.cloudflare.open_zone("joes.example", token="theirs")
    outside.cloudflare.open_zone("annas.example", token="ours")
    with provider_of("cloudflare", "ours") as ours, pytest.raises(NoZone):
        ours.point(DOMAIN, TARGET)
    with provider_of("cloudflare", "theirs") as theirs:
        assert theirs.point(DOMAIN, TARGET) == "created"


@pytest.mark.parametrize("fault", ["reset_after", "hang_after"])
def test_a_record_whose_creation_nobody_heard_of_is_found(
    provider: DnsProvider, outside: sandbox.Sandbox, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDFLARE_TIMEOUT_SECONDS", "0.3")
    outside.faults.order(fault, "create_record")
    with provider_of("cloudflare", None, ZONE) as impatient:
        with pytest.raises(DnsUnavailable, match="POST zones/"):
            impatient.point(DOMAIN, TARGET)
        outside.release()
        assert impatient.point(DOMAIN, TARGET) == "unchanged"


def test_a_record_that_came_meanwhile_is_looked_for_again(
    provider: DnsProvider, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside.cloudflare.put("joes.example", "CNAME", DOMAIN, TARGET)
    empty = Reply(200, {"success": True, "errors": [], "messages": [], "result": []})
    monkeypatch.setattr(outside.cloudflare, "_list_records", lambda *_: empty)
    with pytest.raises(DnsUnavailable, match="81053 An A, AAAA, or CNAME record with that host already exists"):
        provider.point(DOMAIN, TARGET)


def test_a_rate_limit_says_for_how_long(provider: DnsProvider, outside: sandbox.Sandbox) -> None:
    outside.faults.change({"retry_after": 77, "orders": [{"kind": "rate_limited", "operation": "zones"}]})
    with pytest.raises(DnsRateLimited, match="the DNS provider's rate limit is reached: try again in 77 s"):
        provider.point(DOMAIN, TARGET)


def test_an_error_of_the_server_is_unavailable(provider: DnsProvider, outside: sandbox.Sandbox) -> None:
    outside.faults.order("server_error", "records")
    with pytest.raises(DnsUnavailable, match="Cloudflare answered 50"):
        provider.point(DOMAIN, TARGET)


ERRORS = [
    (403, [{"code": 9109, "message": "Invalid access token"}], DnsLockedOut),
    (400, [{"code": 6003, "message": "Invalid request headers"}], DnsLockedOut),
    (400, [{"code": 9005, "message": "Content is invalid"}], DnsRefused),
    (404, [], DnsRefused),
    (409, [], DnsUnavailable),
    (200, [{"code": 1, "message": "no success"}], DnsRefused),
]


@pytest.mark.parametrize(("status", "errors", "kind"), ERRORS)
def test_what_an_error_means(
    provider: DnsProvider, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch, status: int, errors: Any,
    kind: type[DnsError],
) -> None:  # fmt: skip
    refusal = Reply(status, {"success": False, "errors": errors, "messages": [], "result": None})
    monkeypatch.setattr(outside.cloudflare, "answer", lambda _: refusal)
    with pytest.raises(DnsError) as raised:
        provider.point(DOMAIN, TARGET)
    assert type(raised.value) is kind


@pytest.mark.parametrize("body", [{"result": []}, [], {"success": True, "result": {"id": 1}}])
def test_an_answer_that_is_not_cloudflare_s_is_unavailable(
    provider: DnsProvider, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    monkeypatch.setattr(outside.cloudflare, "answer", lambda _: Reply(200, body))
    with pytest.raises(DnsUnavailable):
        provider.point(DOMAIN, TARGET)


def test_the_settings_are_read_from_the_environment_and_the_token_stays_secret() -> None:
    environ = {"CLOUDFLARE_API_TOKEN": "general", "CLOUDFLARE_TIMEOUT_SECONDS": "3"}
    assert CloudflareSettings.from_env(None, None, environ).token == "general"
    own = CloudflareSettings.from_env("own", None, environ)
    assert (own.token, own.timeout_seconds) == ("own", 3)
    assert "'own'" not in repr(own)
    for token in ("", "no token\n", "schlüssel"):
        with pytest.raises(ConfigurationError, match="CLOUDFLARE_API_TOKEN"):
            CloudflareSettings.from_env(None, None, {"CLOUDFLARE_API_TOKEN": token})


def test_the_token_is_asked_for_as_a_bearer(outside: sandbox.Sandbox) -> None:
    environ = outside.environ()
    headers = {"Authorization": f"Bearer {environ['CLOUDFLARE_API_TOKEN']}"}
    url = f"{environ['CLOUDFLARE_BASE_URL']}/zones"
    assert httpx.get(url, headers=headers, trust_env=False).json()["success"] is True
    assert httpx.get(url, trust_env=False).status_code == 403


def test_a_client_is_closed_with_its_block(outside: sandbox.Sandbox) -> None:
    with Cloudflare(CloudflareSettings.from_env(None)) as provider:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        provider.point(DOMAIN, TARGET)
