"""CNAME look-ups against the sandbox's name server, over UDP."""

from __future__ import annotations

import pytest

import sandbox
from tasks.domains import DomainLookupFailed, cname_target, nameserver_from_env, points_to

TARGET = "s.multiscreensite.com"


@pytest.fixture(autouse=True)
def _table(outside: sandbox.Sandbox) -> None:
    outside.names.update({"www.joes.example": TARGET, "bare.example": None})


def test_a_cname_is_found_through_the_environment() -> None:
    assert cname_target("www.joes.example") == TARGET


def test_a_cname_is_found_through_given_name_servers(outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNS_NAMESERVER", "malformed, and not looked at")
    host, port = outside.dns
    assert cname_target("www.joes.example", nameservers=[host], port=port) == TARGET


@pytest.mark.parametrize("domain", ["WWW.Joes.Example", "www.joes.example."])
def test_case_and_final_dot_of_the_domain_do_not_matter(domain: str) -> None:
    assert cname_target(domain) == TARGET


def test_the_target_comes_in_lower_case_without_final_dot(outside: sandbox.Sandbox) -> None:
    outside.names.update({"shout.example": "S.MultiScreenSite.COM."})
    assert cname_target("shout.example") == TARGET


@pytest.mark.parametrize("domain", ["nowhere.example", "bare.example"])
def test_no_such_name_and_no_such_record_are_both_none(domain: str) -> None:
    assert cname_target(domain) is None


@pytest.mark.parametrize("domain", ["servfail.example", "silent.example"])
def test_a_server_that_fails_or_stays_silent_tells_nothing(domain: str) -> None:
    with pytest.raises(DomainLookupFailed, match=domain):
        cname_target(domain, timeout=0.4)
    with pytest.raises(DomainLookupFailed):
        points_to(domain, TARGET, timeout=0.4)


@pytest.mark.parametrize("domain", ["", ".", "a..b", "x" * 64 + ".example"])
def test_what_is_no_domain_name_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match="no domain name"):
        cname_target(domain)


def test_points_to_compares_without_case_and_final_dot() -> None:
    assert points_to("www.joes.example", "S.multiscreensite.com.")
    assert not points_to("www.joes.example", "elsewhere.example")
    assert not points_to("nowhere.example", TARGET)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5353", ("127.0.0.1", 5353)),
        ("[::1]:53", ("::1", 53)),
        ("", None),
    ],
)
def test_the_name_server_is_read_from_the_environment(text: str, address: tuple[str, int] | None) -> None:
    assert nameserver_from_env({"DNS_NAMESERVER": text}) == address


@pytest.mark.parametrize("text", ["127.0.0.1", ":53", "127.0.0.1:dns"])
def test_a_malformed_name_server_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="DNS_NAMESERVER"):
        nameserver_from_env({"DNS_NAMESERVER": text})
