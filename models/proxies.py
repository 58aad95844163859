"""The addresses that browser tasks go out by."""

from __future__ import annotations

import uuid
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Identity, Text
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import INET
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Dated

USABLE = r"url ~ '^(https?|socks5)://([^/@\s]+@)?([\w.-]+|\[[\da-fA-F:]+\]):\d+$'"


class Proxy(Dated, Base):
    """`address` is what the outside is to see; null: whatever is not the worker's own.

    `lease` is the task's that uses it now, until `leased_until` at most. `failures` in a row rest it until
    `cooling_until`; a success makes them none.
    """

    __tablename__ = "proxies"
    __table_args__ = (
        CheckConstraint(USABLE, name="proxies_url_usable"),
        CheckConstraint("(lease IS NULL) = (leased_until IS NULL)", name="proxies_lease_has_an_end"),
        CheckConstraint("failures >= 0", name="proxies_failures_not_negative"),
        CheckConstraint("cooling_until IS NULL OR failures > 0", name="proxies_cool_after_failures"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    url: Mapped[str] = mapped_column(Text, unique=True)
    address: Mapped[str | None] = mapped_column(INET)
    lease: Mapped[uuid.UUID | None]
    leased_until: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    failures: Mapped[int] = mapped_column(server_default=sql("0"))
    last_error: Mapped[str | None] = mapped_column(Text)
    cooling_until: Mapped[datetime | None]


#: Adds a proxy, or sets what is there to rights: its address as given, its failures forgotten.
ADD_PROXY = """
CREATE OR REPLACE FUNCTION add_proxy(url text, address inet DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
INSERT INTO proxies AS p (url, address) VALUES (add_proxy.url, add_proxy.address)
ON CONFLICT ON CONSTRAINT proxies_url_key DO UPDATE
SET address = excluded.address, failures = 0, last_error = NULL, cooling_until = NULL, updated_at = clock_timestamp()
RETURNING p.id
$$
"""

#: Whether it was there. The task that uses it goes on with it to its end.
REMOVE_PROXY = """
CREATE OR REPLACE FUNCTION remove_proxy(url text) RETURNS boolean LANGUAGE sql AS $$
WITH gone AS (DELETE FROM proxies p WHERE p.url = remove_proxy.url RETURNING p.id) SELECT count(*) > 0 FROM gone
$$
"""

ROUTINES = (ADD_PROXY, REMOVE_PROXY)
