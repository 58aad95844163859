"""What the stores' tasks write: stores as they are found, products with price and stock as they change.

In the caller's transaction, in bounded batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from tasks.platforms import ProductFound, StoreFound

#: Rows a statement.
BATCH = 500

REMEMBER = text("""
INSERT INTO dispensaries (platform, menu_url, name, city, state)
SELECT :platform, menu_url, name, city, state
FROM jsonb_to_recordset(CAST(:stores AS jsonb)) AS (menu_url text, name text, city text, state text)
ORDER BY menu_url
ON CONFLICT (platform, menu_url) DO UPDATE
SET name = excluded.name, city = excluded.city, state = excluded.state, updated_at = clock_timestamp()
WHERE (dispensaries.name, dispensaries.city, dispensaries.state)
    IS DISTINCT FROM (excluded.name, excluded.city, excluded.state)
RETURNING xmax = 0 AS is_new
""")

UNRESOLVED = text("""
SELECT id FROM dispensaries
WHERE platform = :platform AND menu_url = ANY(:menus) AND platform_dispensary_id IS NULL AND crawl_enabled
ORDER BY id
""")

# INVARIANT of `before`: it is what was there before `stored`, as a statement sees its own writes nowhere but in
# RETURNING. `changed` is what is new, or has another price or stock; each becomes a row of the history.
STOCK = text("""
WITH given AS (
    SELECT * FROM jsonb_to_recordset(CAST(:products AS jsonb)) AS (
        platform_product_id text, name text, brand text, category text, price numeric(10, 2), stock integer)
), before AS (
    SELECT p.id, p.price, p.stock FROM products p JOIN given USING (platform_product_id) WHERE p.dispensary_id = :store
), stored AS (
    INSERT INTO products (dispensary_id, platform_product_id, name, brand, category, price, stock)
    SELECT :store, platform_product_id, name, brand, category, price, stock FROM given
    ON CONFLICT (dispensary_id, platform_product_id) DO UPDATE
    SET name = excluded.name, brand = excluded.brand, category = excluded.category, price = excluded.price,
        stock = excluded.stock, on_menu = true, last_seen_at = clock_timestamp(), updated_at = clock_timestamp()
    RETURNING id, price, stock
), changed AS (
    SELECT s.id, s.price, s.stock FROM stored s LEFT JOIN before b USING (id)
    WHERE b.id IS NULL OR (b.price, b.stock) IS DISTINCT FROM (s.price, s.stock)
)
INSERT INTO product_changes (product_id, price, stock) SELECT id, price, stock FROM changed
""")

GONE = text("""
WITH gone AS (
    UPDATE products SET on_menu = false, stock = 0, updated_at = clock_timestamp()
    WHERE dispensary_id = :store AND on_menu AND platform_product_id <> ALL(:seen)
    RETURNING id, price
)
INSERT INTO product_changes (product_id, price, stock) SELECT id, price, 0 FROM gone
""")

RESYNCED = text("UPDATE dispensaries SET last_resync_at = clock_timestamp() WHERE id = :store")


@dataclass(frozen=True)
class Stocktake:
    """`changes`: products that are new, or gone, or have another price or stock."""

    products: int
    changes: int


def remember_stores(session: Session, platform: str, stores: Sequence[StoreFound]) -> int:
    """Adds the new ones and corrects the others; how many are new."""
    connection, new = session.connection(), 0
    for batch in _batches(stores):
        rows = connection.execute(REMEMBER, {"platform": platform, "stores": _as_json(batch)})
        new += sum(rows.scalars())
    return new


def unresolved(session: Session, platform: str, menu_urls: Sequence[str]) -> list[int]:
    """Which of the stores with these menus have no platform id yet."""
    rows = session.connection().execute(UNRESOLVED, {"platform": platform, "menus": list(menu_urls)})
    return list(rows.scalars())


def take_stock(session: Session, store: int, menu: Iterable[ProductFound]) -> Stocktake:
    """Makes the store's products what its menu says; what is not on it any more stays, without stock."""
    products = {product.platform_product_id: product for product in menu}
    connection = session.connection()
    changes = sum(_stocked(connection, store, batch) for batch in _batches([*products.values()]))
    changes += connection.execute(GONE, {"store": store, "seen": list(products)}).rowcount
    connection.execute(RESYNCED, {"store": store})
    return Stocktake(len(products), changes)


def _stocked(connection: Connection, store: int, products: Sequence[ProductFound]) -> int:
    return connection.execute(STOCK, {"store": store, "products": _as_json(products)}).rowcount


def _batches(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def _as_json(rows: Sequence[StoreFound | ProductFound]) -> str:
    return json.dumps([asdict(row) for row in rows], default=str)
