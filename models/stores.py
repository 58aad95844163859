"""Stores, what they sell and for how much, and what is made of it. Field names follow the worker tasks' document."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, Numeric, Text, UniqueConstraint, func
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Dated, Json

#: Which stores take part in resyncs.
TAKES_PART = "crawl_enabled AND platform_dispensary_id IS NOT NULL"


class Dispensary(Dated, Base):
    """A store's menu on a platform. `platform_dispensary_id` null: not resolved yet; `state` is a code such as AZ."""

    __tablename__ = "dispensaries"
    __table_args__ = (
        UniqueConstraint("platform", "menu_url", name="dispensaries_one_per_menu"),
        UniqueConstraint("platform", "platform_dispensary_id", name="dispensaries_one_per_platform_id"),
        Index("dispensaries_to_resync", "id", postgresql_where=sql(TAKES_PART)),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    platform: Mapped[str] = mapped_column(Text)
    menu_url: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    city: Mapped[str | None] = mapped_column(Text)
    state: Mapped[str | None] = mapped_column(Text)
    platform_dispensary_id: Mapped[str | None] = mapped_column(Text)
    crawl_enabled: Mapped[bool] = mapped_column(server_default=sql("true"))
    details: Mapped[Json] = mapped_column(server_default="{}")
    last_resync_at: Mapped[datetime | None]


class Product(Dated, Base):
    """What a store sells. Off the menu, it stays, without stock. `price`, `stock` null: the menu does not say."""

    __tablename__ = "products"
    __table_args__ = (
        UniqueConstraint("dispensary_id", "platform_product_id", name="products_one_per_store"),
        CheckConstraint("price >= 0", name="products_price_not_negative"),
        CheckConstraint("stock >= 0", name="products_stock_not_negative"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    dispensary_id: Mapped[int] = mapped_column(ForeignKey("dispensaries.id", ondelete="CASCADE"))
    platform_product_id: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    brand: Mapped[str | None] = mapped_column(Text)
    category: Mapped[str | None] = mapped_column(Text)
    price: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    stock: Mapped[int | None]
    on_menu: Mapped[bool] = mapped_column(server_default=sql("true"))
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ProductChange(Base):
    """A product's price and stock from `at` on: a row when it first appears and whenever one of them changes."""

    __tablename__ = "product_changes"
    __table_args__ = (Index("product_changes_of_product", "product_id", "at"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("products.id", ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    price: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    stock: Mapped[int | None]


STORE_ANALYTICS = """
CREATE MATERIALIZED VIEW store_analytics AS
SELECT d.id AS dispensary_id, d.state, d.last_resync_at,
    count(p.id) FILTER (WHERE p.on_menu) AS products,
    count(p.id) FILTER (WHERE p.on_menu AND p.stock > 0) AS in_stock,
    round(avg(p.price) FILTER (WHERE p.on_menu), 2) AS average_price,
    min(p.price) FILTER (WHERE p.on_menu) AS lowest_price,
    max(p.price) FILTER (WHERE p.on_menu) AS highest_price
FROM dispensaries d LEFT JOIN products p ON p.dispensary_id = d.id
GROUP BY d.id
"""

BRAND_ANALYTICS = """
CREATE MATERIALIZED VIEW brand_analytics AS
SELECT p.brand, coalesce(d.state, '') AS state, count(DISTINCT d.id) AS stores, count(*) AS products,
    count(*) FILTER (WHERE p.stock > 0) AS in_stock, round(avg(p.price), 2) AS average_price
FROM products p JOIN dispensaries d ON d.id = p.dispensary_id
WHERE p.on_menu AND p.brand IS NOT NULL
GROUP BY p.brand, coalesce(d.state, '')
"""

#: What `analytics_refresh` refreshes. CONCURRENTLY asks for a unique index on each.
ANALYTICS = ("store_analytics", "brand_analytics")

#: One resync for each store that takes part: store i in batch i mod `batches`, batch b `lasts` * b / `batches` after
#: `starts`. Returns how many are new. A store has one a period, which its task's id names, whatever became of it; and
#: none while another is unfinished that is due now or within the period: what is planned for another time takes no
#: place. In the keys' own order, as all bulks.
STAGGER_RESYNCS = """
CREATE OR REPLACE FUNCTION stagger_resyncs(batches integer, starts timestamptz, lasts interval)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF batches IS NULL OR batches < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = concat('batches is ', batches, ': give a number from 1 on');
    END IF;
    RETURN (
        SELECT count(*) FILTER (WHERE task.is_new)
        FROM (
            SELECT id, due FROM (
                SELECT id, starts + lasts * mod(row_number() OVER (ORDER BY id) - 1, batches) / batches AS due
                FROM dispensaries WHERE crawl_enabled AND platform_dispensary_id IS NOT NULL
            ) AS dealt
            WHERE NOT EXISTS (
                SELECT FROM celeriac.tasks t
                WHERE t.role = 'product_resync' AND t.lock_key = concat('dispensary_id:', dealt.id)
                    AND (t.scheduled_for BETWEEN starts AND starts + lasts - interval '1 microsecond'
                        OR t.scheduled_for <= statement_timestamp()))
            ORDER BY id::text OFFSET 0
        ) AS store
        CROSS JOIN LATERAL celeriac.enqueue(
            'product_resync', jsonb_build_object('dispensary_id', store.id), scheduled_for => store.due,
            task_id => concat('resync ', store.id, ' of ', to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24MI')),
            enqueued_by => 'stagger_resyncs'
        ) AS task
    );
END $$
"""

#: A day's (UTC) resyncs: `SELECT generate_resync_tasks(6, '2025-01-10')`. What is past is due at once.
GENERATE_RESYNC_TASKS = """
CREATE OR REPLACE FUNCTION generate_resync_tasks(
    batches integer DEFAULT 6, day date DEFAULT (statement_timestamp() AT TIME ZONE 'UTC')::date
)
RETURNS integer LANGUAGE sql AS $$
SELECT stagger_resyncs(batches, day::timestamp AT TIME ZONE 'UTC', interval '24 hours')
$$
"""

ROUTINES = (
    STORE_ANALYTICS,
    "CREATE UNIQUE INDEX store_analytics_key ON store_analytics (dispensary_id)",
    BRAND_ANALYTICS,
    "CREATE UNIQUE INDEX brand_analytics_key ON brand_analytics (brand, state)",
    STAGGER_RESYNCS,
    GENERATE_RESYNC_TASKS,
)
