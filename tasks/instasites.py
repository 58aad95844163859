"""InstaSites: build a site from its template through Duda, publish it, and see to what follows.

The batcher shares the builds out fairly among accounts: 60 every 30 seconds. A build has 5 tries of 5 attempts,
5, 10, 20 and 40 seconds apart. `QM_INSTASITES=false` switches the system off.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from celeriac import ConfigurationError, Permanent, Task, days
from celeriac.signals import pass_finished
from models import DnsAccount, Instasite, InstasiteAnalytics
from models.base import Json
from tasks.app import app
from tasks.dns_provider import DnsError, DnsRefused, NoZone, provider_of
from tasks.domains import DomainLookupFailed, points_to
from tasks.duda import Duda, DudaSettings
from tasks.duda_answers import DudaError, DudaLockedOut, DudaRefused, DudaUnavailable
from tasks.environment import number, tell, whole
from tasks.mail import MailRefused, MailSettings, MailUnavailable, send_site_ready
from tasks.pace import waiting_out_limits

logger = logging.getLogger(__name__)

#: Builds a pass, seconds between passes.
BATCH_SIZE = whole("QM_INSTASITES_BATCH_SIZE", 60, at_least=1)
INTERVAL = number("QM_INSTASITES_INTERVAL_SECONDS", 30, at_least=0.1)

#: Where a custom domain's CNAME has to point, and how long (seconds) until the next look if it does not.
CNAME_TARGET = os.environ.get("DUDA_CNAME_TARGET", "s.multiscreensite.com")
DOMAIN_LOOK_EVERY = number("INSTASITES_DOMAIN_LOOK_SECONDS", 300, at_least=0.1)

#: Below it Duda publishes a site that has no domain of its own; where a site's pages are, its name for `%s`.
SITES_DOMAIN = "multiscreensite.com"
SITE_URL = os.environ.get("DUDA_SITE_URL") or f"https://%s.{SITES_DOMAIN}"

#: Builds in flight at once; the rest waits in SQL, where the order can still change. Of builds that take a minute, 120
#: have to be in flight for 120 a minute.
WINDOW = whole("QM_INSTASITES_WINDOW", BATCH_SIZE, at_least=1)


@app.task(
    bind=True, role="instasite_build", fair_by="account_id", lock_by="instasite_id",
    unique_by="instasite_id", prompt=False, batch_size=BATCH_SIZE, window=WINDOW, every=INTERVAL, chunk=1,
    autoretry_for=(DudaUnavailable, Exception), dont_autoretry_for=(DudaRefused,),
    max_retries=4, retry_backoff=5, retry_backoff_max=40, retry_jitter=False, max_rounds=5,
    timeout=300, stale_after=120, keep=None, enabled_by="QM_INSTASITES",
)  # fmt: skip
def build(self: Task[..., Any], instasite_id: int, account_id: int) -> dict[str, Any]:  # noqa: ARG001 - fair_by
    """Creates the site from its template, publishes it, marks it PUBLISHED and enqueues what follows: all or none.

    Safe to repeat: a site an earlier attempt created is found by its external id.
    """
    wanted = wanted_of(self.session.get(Instasite, instasite_id), instasite_id)
    self.session.rollback()  # no transaction, and no connection, is held while Duda takes its time
    name = publish(self, instasite_id, wanted)
    site = self.session.get_one(Instasite, instasite_id, with_for_update={"key_share": True})
    if wanted_of(site, instasite_id) != wanted:
        raise self.snooze(0, "the site was changed while it was built")
    site.status, site.published_at = "PUBLISHED", func.clock_timestamp()  # now() is when this transaction began
    previews = {"previews": {"all": SITE_URL.replace("%s", name)}}
    site.details = previews | site.details | {"duda_site_name": name}
    follow_up(site)
    return {"site_name": name}


class Wanted(NamedTuple):
    """What Duda is told of a site."""

    template: int
    customisations: Json
    domain: str | None


def wanted_of(site: Instasite | None, instasite_id: int) -> Wanted:
    """Raises Permanent for what cannot be built."""
    if site is None:
        raise Permanent(f"Instasite {instasite_id} not found")
    if site.template is None:
        raise Permanent("Template not found")
    return Wanted(site.template.duda_template_id, site.customisations, site.custom_domain)


@pass_finished.connect(sender="instasite_build", weak=False)
def processed(scheduled: int, pending: int, **_: Any) -> None:
    """The queue master's line of the log."""
    told = {"initiator": "QM/instasites/build", "sitesScheduled": scheduled, "totalPending": pending}
    logger.info("Instasite build service processed. %s", told, extra={"data": told})


def publish(task: Task[..., Any], instasite_id: int, wanted: Wanted) -> str:
    """Duda's name of the published site."""
    with waiting_out_limits(task):
        duda = _duda(os.getpid())
        name = duda.ensure_site(wanted.template, f"instasite-{instasite_id}")
        if wanted.customisations:
            duda.update_content(name, wanted.customisations)
        if wanted.domain:
            duda.set_domain(name, wanted.domain)
        duda.publish(name)
    return name


@cache
def _duda(_pid: int) -> Duda:
    """This process's client: its connections and its pace serve every task that runs here, and no other process.

    Raises DudaLockedOut where it is not set up: as with a wrong password, all wait until an operator has mended it.
    """
    try:
        return Duda(DudaSettings.from_env())
    except ConfigurationError as mistake:
        tell(mistake)
        raise DudaLockedOut(str(mistake)) from mistake


def follow_up(site: Instasite) -> None:
    """Enqueued with the build's outcome, in its transaction."""
    account, domain = str(site.account_id), site.custom_domain
    analytics.using(account=account).delay(site.id)
    site_ready_mail.using(account=account).delay(site.id)
    if domain:
        is_ours = site.account.dns is not None
        if is_ours:
            update_dns.using(account=account).delay(site.id, domain)
        check_domain.using(account=account, countdown=DOMAIN_LOOK_EVERY * is_ours).delay(site.id, domain)


@app.task(
    bind=True, role="instasite_analytics", unique_by="instasite_id", autoretry_for=(DudaError,),
    dont_autoretry_for=(DudaRefused,), max_retries=5, retry_backoff=10, timeout=60, keep=days(7),
    enabled_by="QM_INSTASITES",
)  # fmt: skip
def analytics(self: Task[..., Any], instasite_id: int) -> None:
    """Starts tracking a published site with what Duda tells of it."""
    session: Session = self.session
    site = session.get_one(Instasite, instasite_id)
    with waiting_out_limits(self):
        snapshot = _duda(os.getpid()).get_site(site.details["duda_site_name"])
    session.merge(InstasiteAnalytics(instasite_id=instasite_id, snapshot=dict(snapshot)))


@app.task(
    bind=True, role="instasite_dns", unique_by="{instasite_id}:{domain}",
    autoretry_for=(DnsError,), dont_autoretry_for=(DnsRefused,), max_retries=8, retry_backoff=10, timeout=60,
    keep=days(7), enabled_by="QM_INSTASITES",
)  # fmt: skip
def update_dns(self: Task[..., Any], instasite_id: int, domain: str) -> dict[str, str]:
    """Points the custom domain to Duda, where the account's DNS provider serves it. `check_domain` sees the effect."""
    found = _served_by(self.session, instasite_id, domain)
    if found is None:
        return {"skipped": f"{domain} is not the site's domain any more, or its account's DNS is not ours any more"}
    with waiting_out_limits(self), provider_of(*found) as provider:
        try:
            return {"domain": domain, "record": provider.point(domain, CNAME_TARGET)}
        except NoZone as elsewhere:
            return {"skipped": str(elsewhere)}


def _served_by(session: Session, instasite_id: int, domain: str) -> tuple[str, str | None, str | None] | None:
    """The site's account's DNS provider, and its token and zone there. Ends its transaction, as `_is_domain_of`."""
    of_site = Instasite.account_id == DnsAccount.account_id, Instasite.id == instasite_id
    wanted = select(DnsAccount.provider, DnsAccount.token, DnsAccount.zone)
    wanted = wanted.where(*of_site, Instasite.custom_domain == domain)
    found = session.execute(wanted).one_or_none()
    session.rollback()
    return None if found is None else found.tuple()


@app.task(
    bind=True, role="instasite_domain_check", unique_by="{instasite_id}:{domain}",
    autoretry_for=(DomainLookupFailed,), max_retries=10, retry_backoff=10, timeout=60, keep=days(7),
    enabled_by="QM_INSTASITES",
)  # fmt: skip
def check_domain(self: Task[..., Any], instasite_id: int, domain: str) -> dict[str, str]:
    """Waits, snoozing, until the custom domain points to Duda. Ends once the site has another one, or none."""
    given_up = {"skipped": f"{domain} is not the site's domain any more"}
    if not _is_domain_of(self.session, instasite_id, domain):
        return given_up
    if not points_to(domain, CNAME_TARGET):
        raise self.snooze(DOMAIN_LOOK_EVERY, f"{domain} does not point to {CNAME_TARGET} yet")
    return {"domain": domain} if _record(self.session, instasite_id, domain) else given_up


def _is_domain_of(session: Session, instasite_id: int, domain: str) -> bool:
    """Ends its transaction: none is open while name servers take their time."""
    site = session.scalar(select(Instasite.id).filter_by(id=instasite_id, custom_domain=domain))
    session.rollback()
    return site is not None


def _record(session: Session, instasite_id: int, domain: str) -> bool:
    """False: it stopped being the site's while it was looked up."""
    verified = Instasite.details.concat({"domain_verified": domain})
    recorded = update(Instasite).filter_by(id=instasite_id, custom_domain=domain).values(details=verified)
    return session.scalar(recorded.returning(Instasite.id)) is not None


@app.task(
    bind=True, role="instasite_ready_mail", unique_by="instasite_id", autoretry_for=(MailUnavailable,),
    dont_autoretry_for=(MailRefused,), max_retries=8, retry_backoff=10, timeout=60, keep=days(7),
    enabled_by="QM_INSTASITES",
)  # fmt: skip
def site_ready_mail(self: Task[..., Any], instasite_id: int) -> None:
    """Tells the account's owner. A repeated mail carries the same Message-ID."""
    site = self.session.get_one(Instasite, instasite_id)
    address = site.custom_domain or f"{site.details['duda_site_name']}.{SITES_DOMAIN}"
    message_id = f"<instasite-{instasite_id}@celeriac.local>"
    send_site_ready(MailSettings.from_env(), site.account.email, f"https://{address}", message_id)
