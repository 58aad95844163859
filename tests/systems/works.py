"""InstaSites as the tests see them: a worker that builds, and what became of a site."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

import sandbox
from models import Account, DnsAccount, Instasite, Template
from tasks.app import app
from tasks.instasites import build
from tests.processes import until
from tests.systems.stack import Stack

FOLLOW_UPS = ("instasite_analytics", "instasite_dns", "instasite_domain_check", "instasite_ready_mail")

LAST_WAIT = """
SELECT extract(epoch FROM t.scheduled_for - e.at) FROM worker_tasks t JOIN celeriac.task_events e ON e.task = t.id
WHERE t.role = 'instasite_build' AND t.unique_key = :site ORDER BY e.id DESC LIMIT 1
"""

DUE = "UPDATE worker_tasks SET scheduled_for = now() WHERE unique_key = :key AND waits_for = 'time'"


class Works:
    """The builder's worker, which tests may kill and start again, and what they ask of the whole."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.rows, self.outside = stack, stack.rows, stack.outside
        self.builder = stack.worker("instasite_build")

    def restart_builder(self) -> None:
        self.builder = self.stack.worker("instasite_build")

    def site(
        self, *, template: bool = True, at_duda: int = sandbox.TEMPLATES[0], domain: str | None = None,
        dns: bool = False, token: str | None = None, zone: str | None = None,
    ) -> int:  # fmt: skip
        """`at_duda`: what Duda is told to make it from. `dns`: its account has a DNS provider, with that."""
        with Session(app.database.engine) as session, session.begin():
            site = Instasite(
                account=Account(name="Anna", email="anna@example.com"),
                template=Template(name="Bakery", duda_template_id=at_duda) if template else None,
                customisations={"business_data": {"name": "Anna's"}},
                custom_domain=domain,
            )
            session.add(site)
            session.flush()
            if dns:
                session.add(DnsAccount(account_id=site.account_id, provider="cloudflare", token=token, zone=zone))
            return site.id

    def enqueue(self, site: int) -> None:
        assert build.delay(instasite_id=site, account_id=self.account(site)).is_new

    def account(self, site: int) -> int:
        return int(self.number("SELECT account_id FROM instasites WHERE id = :site", site=site))

    def task(self, key: int | str, role: str = "instasite_build") -> dict[str, Any]:
        """The row of a site's task; empty if there is none."""
        wanted = "SELECT to_jsonb(t) FROM worker_tasks t WHERE role = :role AND unique_key = :key"
        found = self.rows(wanted, role=role, key=str(key))
        return found[0][0] if found else {}

    def check(self, site: int, domain: str) -> dict[str, Any]:
        """As `task`, of the check of one of its domains."""
        return self.task(f"{site}:{domain}", "instasite_domain_check")

    def dns(self, site: int, domain: str) -> dict[str, Any]:
        """As `task`, of what sets one of its domains."""
        return self.task(f"{site}:{domain}", "instasite_dns")

    def events_of(self, site: int, domain: str) -> list[str]:
        """What happened to that; empty until there is a row."""
        found = self.dns(site, domain)
        return self._events(found["id"]) if found else []

    def due(self, site: int, domain: str) -> None:
        """The time of whatever waits for that domain has come."""
        self.rows(DUE, key=f"{site}:{domain}")

    def verified(self, site: int) -> object:
        """Its domain that was seen to point to Duda."""
        return self.rows.one("SELECT details ->> 'domain_verified' FROM instasites WHERE id = :id", id=site)

    def move(self, site: int, domain: str | None) -> None:
        """Gives it another domain."""
        self.rows("UPDATE instasites SET custom_domain = :domain WHERE id = :id", id=site, domain=domain)

    def events(self, site: int, role: str = "instasite_build") -> list[str]:
        """What happened to a task that has a row."""
        return self._events(self.task(site, role)["id"])

    def _events(self, row: int) -> list[str]:
        wanted = "SELECT kind FROM celeriac.task_events WHERE task = :row ORDER BY id"
        return [kind for (kind,) in self.rows(wanted, row=row)]

    def waits(self, site: int, *events: str) -> float:
        """Until the build waits for its next attempt after these events; the seconds from the last one to it."""
        until(lambda: self.task(site)["waits_for"] == "time" and self.events(site) == [*events], " ".join(events))
        return self.number(LAST_WAIT, site=str(site))

    def number(self, statement: str, **given: object) -> float:
        return float(str(self.rows.one(statement, **given)))

    def go_on(self, site: int) -> None:
        """Its time has come."""
        self.rows(DUE, key=str(site))

    def are_done_with_duda(self) -> bool:
        """Whether no site will ask it any more; those that wait for another attempt need not wait for long."""
        asks = "role IN ('instasite_build', 'instasite_analytics') AND status IN ('pending', 'claimed', 'running')"
        self.rows(f"UPDATE worker_tasks SET scheduled_for = now() WHERE {asks} AND waits_for = 'time'")
        return not self.rows(f"SELECT FROM worker_tasks WHERE {asks}")

    def published(self, site: int) -> bool:
        return bool(self.rows("SELECT FROM instasites WHERE id = :site AND status = 'PUBLISHED'", site=site))

    def at_duda(self, site: int) -> list[dict[str, Any]]:
        sites = self.outside.describe()["sites"]
        return [found for found in sites if found["external_uid"] == f"instasite-{site}"]

    def mails(self, site: int) -> int:
        return sum(m.message_id == f"<instasite-{site}@celeriac.local>" for m in self.outside.mailbox.messages)

    def followed_up(self, site: int) -> bool:
        return self.task(site, "instasite_analytics").get("status") == "completed" and self.mails(site) > 0
