"""The domain of an InstaSite: it is set where its account's zone is, and looked up until its CNAME is right."""

from __future__ import annotations

import pytest
from dns.message import Message
from dns.name import from_text

from tasks.instasites import CNAME_TARGET
from tests.processes import until
from tests.systems.works import Works

pytestmark = pytest.mark.usefixtures("no_faults")


def test_the_check_of_a_domain_waits_until_its_cname_is_right(works: Works) -> None:
    site, domain = works.site(domain="www.berta.example"), "www.berta.example"
    works.outside.names.update({domain: "elsewhere.example"})
    works.enqueue(site)
    looks = """SELECT count(*) FROM celeriac.task_events
        WHERE role = 'instasite_domain_check' AND kind = 'snooze' AND why LIKE :d"""
    until(lambda: works.number(looks, d=f"{domain}%") >= 2, "two looks in vain")
    assert works.check(site, domain)["retry_count"] == 0
    works.outside.names.update({domain: CNAME_TARGET})
    until(lambda: works.check(site, domain)["status"] == "completed", "the look that finds it")
    assert works.verified(site) == domain


def test_a_site_whose_domain_changed_is_checked_for_the_new_one_and_no_more_for_the_old(works: Works) -> None:
    old, new = "www.old.example", "www.new.example"
    works.outside.names.update({old: "elsewhere.example", new: CNAME_TARGET})
    site = works.site(domain=old)
    works.enqueue(site)
    until(lambda: works.check(site, old).get("waits_for") == "time", "a look in vain")
    works.move(site, new)
    works.enqueue(site)
    until(lambda: works.check(site, new).get("status") == "completed", "the new domain's check")
    until(lambda: works.check(site, old)["status"] == "completed", "the end of the old one's")
    assert works.verified(site) == new
    assert works.check(site, old)["result"] == {"skipped": f"{old} is not the site's domain any more"}


def test_a_domain_given_up_while_it_is_looked_up_is_not_recorded(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    site, domain, names = works.site(domain="www.carla.example"), "www.carla.example", works.outside.names
    names.update({domain: CNAME_TARGET})
    answer = names.answer

    def answer_when_it_is_given_up(query: Message) -> Message | None:
        if query.question[0].name == from_text(domain):  # other sites' checks go on
            works.move(site, None)
        return answer(query)

    monkeypatch.setattr(names, "answer", answer_when_it_is_given_up)
    works.enqueue(site)
    until(lambda: works.check(site, domain).get("status") == "completed", "the check")
    assert "skipped" in works.check(site, domain)["result"]
    assert works.verified(site) is None


def test_a_custom_domain_is_set_at_the_account_s_dns_provider(works: Works) -> None:
    works.outside.cloudflare.open_zone("dora.example")
    site, domain = works.site(domain="www.dora.example", dns=True, zone="dora.example"), "www.dora.example"
    works.outside.faults.order("reset_after", "create_record")
    works.enqueue(site)
    until(lambda: works.events_of(site, domain) == ["retry"], "the first attempt, whose answer was lost")
    works.due(site, domain)
    until(lambda: works.dns(site, domain)["status"] == "completed", "the next")
    assert works.dns(site, domain)["result"] == {"domain": domain, "record": "unchanged"}
    (record,) = works.outside.cloudflare.describe()["dora.example"]
    assert (record["type"], record["name"], record["content"]) == ("CNAME", domain, CNAME_TARGET)
    until(lambda: works.verified(site) == domain, "the check that sees it")


def test_a_domain_that_the_account_has_no_zone_of_waits_for_its_owner(works: Works) -> None:
    site, domain = works.site(domain="www.emil.example", dns=True), "www.emil.example"
    works.enqueue(site)
    until(lambda: works.dns(site, domain).get("status") == "completed", "the end")
    assert "no zone of www.emil.example" in works.dns(site, domain)["result"]["skipped"]
    works.outside.names.update({domain: CNAME_TARGET})
    until(lambda: works.verified(site) == domain, "the check that sees it")


def test_a_domain_in_a_zone_of_another_account_is_not_set(works: Works) -> None:
    """The environment's token sees all zones: a customer says what domain it is, an operator whose the zone is."""
    works.outside.cloudflare.open_zone("gabi.example")
    site, domain = works.site(domain="shop.gabi.example", dns=True, zone="hans.example"), "shop.gabi.example"
    works.enqueue(site)
    until(lambda: works.dns(site, domain).get("status") == "failed", "the refusal")
    assert "set zone to gabi.example" in works.dns(site, domain)["error_message"]
    assert works.outside.cloudflare.describe()["gabi.example"] == []


def test_an_account_s_own_token_that_is_wrong_burns_no_attempt(works: Works) -> None:
    works.outside.cloudflare.open_zone("frida.example", token="frida's")
    site, domain = works.site(domain="www.frida.example", dns=True, token="another's"), "www.frida.example"
    works.enqueue(site)
    until(lambda: works.dns(site, domain).get("waits_for") == "time", "a look in vain")
    assert works.events_of(site, domain) == ["snooze"]
    assert "Invalid access token; check the token" in works.dns(site, domain)["error_message"]
    works.rows("UPDATE dns_accounts SET token = 'frida''s' WHERE token = 'another''s'")
    works.due(site, domain)
    until(lambda: works.dns(site, domain)["status"] == "completed", "the record")
    assert works.dns(site, domain)["result"] == {"domain": domain, "record": "created"}
