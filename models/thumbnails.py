"""What has thumbnails: agency websites, and the fields they share with InstaSites.

Field names are those of the stale fixer's document. `details` of a site with a preview:

    {"previews": {"all": "https://…"}, "thumbnails": {"desktop": URL or null, "tablet": …, "mobile": …}}
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, Text, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Dated, Json

NO_DESKTOP = "((details -> 'thumbnails') ->> 'desktop') IS NULL"
IN_PROGRESS = f"thumbnail_build_in_progress AND {NO_DESKTOP}"
MISSING = (
    f"status = 'PUBLISHED' AND ((details -> 'previews') ->> 'all') IS NOT NULL AND {NO_DESKTOP}"
    " AND thumbnail_build_in_progress IS NOT TRUE"
)

#: What a build writes at its end, and the stale fixer: both are unset, as for a site that was never rendered.
NOT_IN_PROGRESS: Mapping[str, Any] = {"thumbnail_build_in_progress": None, "thumbnail_process_started_at": None}


class Thumbnailed:
    """`thumbnail_process_started_at` is when the build that is in progress began.

    Conditions, the same for a query and its index. IN_PROGRESS: what the stale fixer looks at. MISSING: to be enqueued.
    """

    NO_DESKTOP: ClassVar[str] = NO_DESKTOP
    IN_PROGRESS: ClassVar[str]
    MISSING: ClassVar[str] = MISSING

    thumbnail_build_in_progress: Mapped[bool | None]
    thumbnail_process_started_at: Mapped[datetime | None]


def constraints(table: str, in_progress: str) -> tuple[CheckConstraint, Index, Index]:
    """A build in progress without its start could never be found stale."""
    return (
        CheckConstraint(
            "NOT thumbnail_build_in_progress OR thumbnail_process_started_at IS NOT NULL",
            name=f"{table}_thumbnail_in_progress_has_time",
        ),
        Index(f"{table}_thumbnail_in_progress", "thumbnail_process_started_at", postgresql_where=text(in_progress)),
        Index(f"{table}_thumbnail_missing", "id", postgresql_where=text(MISSING)),
    )


class AgencyWebsite(Thumbnailed, Dated, Base):
    """A website an agency made: rendered once it is published and has a preview."""

    __tablename__ = "agency_websites"
    IN_PROGRESS: ClassVar[str] = IN_PROGRESS
    __table_args__ = (
        CheckConstraint("status IN ('DRAFT', 'PUBLISHED')", name="agency_websites_status_known"),
        *constraints("agency_websites", IN_PROGRESS),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    name: Mapped[str] = mapped_column(Text, server_default=text("''"))
    status: Mapped[str] = mapped_column(Text, server_default=text("'DRAFT'"))
    details: Mapped[Json] = mapped_column(server_default="{}")


class ThumbnailCheck(Base):
    """What one run of the stale fixer found stuck of a table, how many of them it reset, and how many were left."""

    __tablename__ = "thumbnail_checks"
    __table_args__ = (Index("thumbnail_checks_by_age", "at"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    sites: Mapped[str] = mapped_column(Text)
    found: Mapped[int] = mapped_column(BigInteger)
    reset: Mapped[int] = mapped_column(BigInteger)
    remaining: Mapped[int] = mapped_column(BigInteger)
