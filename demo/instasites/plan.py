"""What the demo builds: one large account ahead of four quiet ones, and a site whose template is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.orm import Session

from demo.size import sized
from models import Account, DnsAccount, Instasite, Template

Kind = Literal["large", "quiet", "broken"]

DUDA_TEMPLATE = 20012

#: Whose domains are set for them, at their DNS provider; the others set theirs by hand.
SERVED = "large"

#: Every so many sites, one has a custom domain.
DOMAIN_EVERY = 10


@dataclass(frozen=True)
class Customer:
    name: str
    kind: Kind
    sites: int


CUSTOMERS = (
    Customer("large", "large", sized(200, 20)),
    *(Customer(f"quiet {n}", "quiet", sized(15, 2)) for n in range(1, 5)),
    Customer("broken", "broken", 1),
)
BUILDS = sum(customer.sites for customer in CUSTOMERS)


def create(session: Session) -> dict[int, Customer]:
    """Accounts, sites and their builds, in the caller's transaction: all or none. The customer of each account id.

    The large account comes first: in order of arrival, everybody else would wait for it.
    """
    template = Template(name="Bakery", duda_template_id=DUDA_TEMPLATE)
    created = {_account(session, customer): customer for customer in CUSTOMERS}
    for account, customer in created.items():
        session.add_all(_sites(account, customer, template))
    session.flush()
    _enqueue(session, list(created))
    return {account.id: customer for account, customer in created.items()}


def _account(session: Session, customer: Customer) -> Account:
    account = Account(name=customer.name, email=f"owner@{label(customer)}.example")
    session.add(account)
    session.flush()
    if customer.kind == SERVED:
        session.add(DnsAccount(account_id=account.id, provider="cloudflare", zone=zone(customer)))
    return account


def _sites(account: Account, customer: Customer, template: Template) -> Iterator[Instasite]:
    for n in range(customer.sites):
        yield Instasite(
            account=account,
            template=None if customer.kind == "broken" else template,
            customisations={"business_data": {"name": f"{customer.name}, branch {n}"}},
            custom_domain=f"www.branch-{n}.{label(customer)}.example" if n % DOMAIN_EVERY == 3 else None,
        )


def zone(customer: Customer) -> str:
    """At the DNS provider, if it is theirs."""
    return f"{label(customer)}.example"


def label(customer: Customer) -> str:
    return customer.name.replace(" ", "-")


def _enqueue(session: Session, accounts: list[Account]) -> None:
    from tasks.instasites import build

    for account in accounts:
        for site in session.query(Instasite).filter_by(account_id=account.id).order_by(Instasite.id):
            build.using(session=session).delay(instasite_id=site.id, account_id=account.id)
