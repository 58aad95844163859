"""InstaSites and what they are built from. Field names follow the build queue's document where it has them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from models.base import Base, Dated, Json
from models.thumbnails import IN_PROGRESS, Thumbnailed, constraints

#: The stale fixer leaves drafts alone: they can wait.
PUBLISHED_IN_PROGRESS = f"status = 'PUBLISHED' AND {IN_PROGRESS}"


class Account(Dated, Base):
    """Whose sites they are: the fairness key of their builds."""

    __tablename__ = "accounts"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    email: Mapped[str] = mapped_column(Text)

    dns: Mapped[DnsAccount | None] = relationship()


class DnsAccount(Dated, Base):
    """Who serves an account's domains.

    `token`: the account's own at that provider. None: the environment's, which sees the zones of all accounts. It makes
    and changes records in `zone` alone, the domain that is the account's there.
    """

    __tablename__ = "dns_accounts"
    __table_args__ = (CheckConstraint("provider IN ('cloudflare')", name="dns_accounts_provider_known"),)

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)
    provider: Mapped[str] = mapped_column(Text)
    token: Mapped[str | None] = mapped_column(Text)
    zone: Mapped[str | None] = mapped_column(Text)

    def __repr__(self) -> str:
        return f"DnsAccount(account_id={self.account_id}, provider={self.provider!r})"  # the token stays secret


class Template(Dated, Base):
    """A Duda template sites are made from."""

    __tablename__ = "templates"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    duda_template_id: Mapped[int] = mapped_column(BigInteger)


class Instasite(Thumbnailed, Dated, Base):
    """A site: DRAFT until its build has published it. `template_id` null: its template is gone."""

    __tablename__ = "instasites"
    IN_PROGRESS: ClassVar[str] = PUBLISHED_IN_PROGRESS
    __table_args__ = (
        CheckConstraint("status IN ('DRAFT', 'PUBLISHED')", name="instasites_status_known"),
        CheckConstraint("status <> 'PUBLISHED' OR published_at IS NOT NULL", name="instasites_published_has_time"),
        *constraints("instasites", PUBLISHED_IN_PROGRESS),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    template_id: Mapped[int | None] = mapped_column(ForeignKey("templates.id", ondelete="SET NULL"))
    customisations: Mapped[Json] = mapped_column(server_default="{}")
    custom_domain: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text, server_default=text("'DRAFT'"))
    details: Mapped[Json] = mapped_column(server_default="{}")
    published_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship()
    template: Mapped[Template | None] = relationship()


class InstasiteAnalytics(Dated, Base):
    """What is known of a published site's standing, from when it was first tracked."""

    __tablename__ = "instasite_analytics"

    instasite_id: Mapped[int] = mapped_column(ForeignKey("instasites.id", ondelete="CASCADE"), primary_key=True)
    snapshot: Mapped[Json] = mapped_column(server_default="{}")
