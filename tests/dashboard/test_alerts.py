"""The page of alerts: all that is watched, also what is quiet."""

from __future__ import annotations

import re

from celeriac.alerts.rules import RULES
from tests.dashboard.site import Site


def watched(site: Site, name: str) -> str:
    """What stands in the rule's row."""
    (row,) = re.findall(rf'<tr id="rule-{name}">(.*?)</tr>', site.html("alerts"))
    return re.sub("<[^>]*>", "|", row)


def test_all_that_is_watched_is_told_with_its_limit(site: Site) -> None:
    assert re.findall(r'id="rule-([a-z_]+)"', site.html("alerts")) == [rule.name for rule in RULES]
    told = watched(site, "queue_depth")
    for what in ("|quiet|", "|1\u202f000|", "|10 m|", "CELERIAC_ALERT_QUEUE_DEPTH"):
        assert what in told
    assert "|1 h|" in watched(site, "long_running")
    assert "|10.0 %|" in watched(site, "failed_rate")
    assert "|5 s|" in watched(site, "held_lock")


def test_a_rule_says_whether_it_fires(site: Site) -> None:
    site.rows("INSERT INTO celeriac.alerts_pending (name, subject, since) VALUES ('queue_depth', 'crawl', now())")
    assert "not yet for long enough" in watched(site, "queue_depth")
    site.rows("INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('queue_depth', 'crawl', 2, 1)")
    assert "fires for 1" in watched(site, "queue_depth")
    assert "quiet" in watched(site, "long_running")
