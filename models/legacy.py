"""The job systems that tasks replaced, as far as the migration reads and stops them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Dated, Json


class JobSchedule(Dated, Base):
    """A job and how often it ran: every `base_interval_minutes`, give or take `jitter_minutes`."""

    __tablename__ = "job_schedules"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    job_name: Mapped[str] = mapped_column(Text, unique=True)
    description: Mapped[str | None] = mapped_column(Text)
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    base_interval_minutes: Mapped[int] = mapped_column(server_default="240")
    jitter_minutes: Mapped[int] = mapped_column(server_default="30")
    job_config: Mapped[Json] = mapped_column(server_default="{}")
    last_run_at: Mapped[datetime | None]
    last_status: Mapped[str | None] = mapped_column(Text)
    next_run_at: Mapped[datetime | None]


class JobRunLog(Base):
    """One run of a scheduled job."""

    __tablename__ = "job_run_logs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    schedule_id: Mapped[int | None] = mapped_column(ForeignKey("job_schedules.id", ondelete="SET NULL"))
    job_name: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    items_processed: Mapped[int] = mapped_column(server_default="0")
    error_message: Mapped[str | None] = mapped_column(Text)


class DispensaryCrawlJob(Dated, Base):
    """A crawl of one store, in the queue before this one."""

    __tablename__ = "dispensary_crawl_jobs"
    __table_args__ = (
        CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed', 'cancelled')",
            name="dispensary_crawl_jobs_status_known",
        ),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    dispensary_id: Mapped[int] = mapped_column(BigInteger)
    job_type: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text, server_default=text("'pending'"))
    priority: Mapped[int] = mapped_column(server_default="0")
    scheduled_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    error_message: Mapped[str | None] = mapped_column(Text)
