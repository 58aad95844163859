"""Reads what happened: from the tables, from the witness's notes and from what the sandbox was asked to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from demo.instasites.plan import Customer
from demo.instasites.verdicts import Evidence, Run, Site
from sandbox import Sandbox

#: Time counts from the first pass that gave something.
SITES = text("""
SELECT i.id, i.account_id, extract(epoch FROM i.published_at - first_pass.at)::float AS published_at,
    build.status AS build, build.error_message AS error, i.custom_domain AS domain,
    coalesce(i.details ->> 'domain_verified' = i.custom_domain, false) AS domain_verified,
    EXISTS (SELECT FROM instasite_analytics n WHERE n.instasite_id = i.id) AS analytics
FROM instasites i
CROSS JOIN (SELECT min(at) AS at FROM celeriac.passes WHERE role = 'instasite_build' AND given <> '{}') AS first_pass
LEFT JOIN worker_tasks build ON build.role = 'instasite_build' AND build.unique_key = CAST(i.id AS text)
WHERE i.account_id = ANY(:accounts)
ORDER BY i.id
""")

#: The witness writes it.
RUNS_TABLE = text("""
CREATE TABLE demo_runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, site bigint NOT NULL, pid integer NOT NULL,
    began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz
)
""")

RUNS = text(
    "SELECT site, extract(epoch FROM began)::float, extract(epoch FROM ended)::float FROM demo_runs ORDER BY id"
)

BATCHES = text("SELECT given FROM celeriac.passes WHERE role = 'instasite_build' AND given <> '{}' ORDER BY id")

# INVARIANT of `unfinished`: it counts follow-ups too; when it is 0, nothing is left that could change anything.
PROGRESS = text("""
SELECT
    (SELECT count(*) FROM instasites WHERE account_id = ANY(:large) AND status = 'PUBLISHED') AS large,
    (SELECT count(*) FROM instasites WHERE account_id = ANY(:quiet) AND status = 'PUBLISHED') AS quiet,
    count(*) FILTER (WHERE build AND status = 'running') AS running,
    count(*) FILTER (WHERE build AND status IN ('pending', 'claimed') AND waits_for IS NULL) AS waiting,
    count(*) FILTER (WHERE build AND waits_for = 'time') AS retrying,
    count(*) FILTER (WHERE build AND status = 'failed') AS failed,
    count(*) FILTER (WHERE NOT build AND status = 'completed') AS followed_up,
    count(*) FILTER (WHERE status IN ('pending', 'claimed', 'running')) AS unfinished
FROM (SELECT status, waits_for, role = 'instasite_build' AS build FROM demo_tasks) AS task
""")


@dataclass(frozen=True)
class Progress:
    large: int
    quiet: int
    running: int
    waiting: int
    retrying: int
    failed: int
    followed_up: int
    unfinished: int


def progress(connection: Connection, customers: Mapping[int, Customer]) -> Progress:
    kinds = {kind: [i for i, c in customers.items() if c.kind == kind] for kind in ("large", "quiet")}
    return Progress(*connection.execute(PROGRESS, kinds).one())


def gather(connection: Connection, outside: Sandbox, customers: Mapping[int, Customer]) -> Evidence:
    rows = connection.execute(SITES, {"accounts": list(customers)}).mappings()
    found = outside.describe()
    at_duda = Counter(site["external_uid"] for site in found["sites"])
    mails = Counter(mail["message_id"] for mail in found["mail"])
    records = {record["name"] for zone in found["cloudflare"].values() for record in zone}
    return Evidence(
        sites=[_site(row, customers[row["account_id"]], at_duda, mails, records) for row in rows],
        runs=[Run(*row) for row in connection.execute(RUNS)],
        batches=[_by_name(given, customers) for given in connection.execute(BATCHES).scalars()],
    )


def _site(
    row: Mapping[Any, Any], customer: Customer, at_duda: Counter[str], mails: Counter[str], records: Collection[str]
) -> Site:
    own = {name: value for name, value in row.items() if name != "account_id"}
    return Site(
        account=customer.name, kind=customer.kind, at_duda=at_duda[f"instasite-{row['id']}"],
        mails=mails[f"<instasite-{row['id']}@celeriac.local>"], domain_set=row["domain"] in records, **own,
    )  # fmt: skip


def _by_name(given: Mapping[str, int], customers: Mapping[int, Customer]) -> dict[str, int]:
    return {customers[int(account)].name: slots for account, slots in given.items()}


def domains(connection: Connection, accounts: Collection[int]) -> list[str]:
    """The custom domains of these accounts' sites."""
    wanted = text(
        "SELECT custom_domain FROM instasites WHERE account_id = ANY(:accounts) AND custom_domain IS NOT NULL"
    )
    return list(connection.execute(wanted, {"accounts": list(accounts)}).scalars())


def early_looks(connection: Connection) -> int:
    """How often a domain was looked up before its CNAME was there."""
    looks = text("SELECT count(*) FROM celeriac.task_events WHERE role = 'instasite_domain_check' AND kind = 'snooze'")
    return int(connection.execute(looks).scalar_one())
