"""What a statement costs: which plan Postgres chose, and how many pages it touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, TextClause

from celeriac.store.prepared import driver_rows, for_cursor

# What this transaction has read so far: as pg_stat_xact_all_tables has it, at a tenth of its cost.
SCANNED = """
SELECT relname, pg_stat_get_xact_tuples_returned(oid) FROM pg_class
WHERE relnamespace = CAST('celeriac' AS regnamespace) AND relkind = 'r' AND pg_stat_get_xact_tuples_returned(oid) > 0
"""


@dataclass(frozen=True)
class Plan:
    """A plan that was run. `pages`: shared buffers hit and read, planning not counted.

    `read`: rows that were read from end to end, by table, within functions as well.
    """

    root: Mapping[str, Any]
    read: Mapping[str, int]

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        return list(_nodes(self.root))

    @property
    def pages(self) -> int:
        """What CTEs that only write touch comes after the root has ended, and is not in its figure."""
        writes = [n for n in self.nodes if n["Node Type"] == "ModifyTable" and n is not self.root]
        return sum(_pages(node) for node in [self.root, *writes])

    @property
    def scanned(self) -> set[str]:
        """Tables that were read from end to end."""
        return {node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"}

    def __str__(self) -> str:
        return "\n".join(_lines(self.root, 0))


def explain(connection: Connection, statement: TextClause, **given: Any) -> Plan:
    """Runs the statement."""
    before = _scanned(connection)
    explained = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {_for_cursor(statement)}"
    root = connection.exec_driver_sql(explained, given).scalar_one()[0]["Plan"]
    after = _scanned(connection)
    return Plan(root, {table: n - before.get(table, 0) for table, n in after.items()})


#: Compiled once.
_for_cursor = cache(for_cursor)


def _scanned(connection: Connection) -> dict[str, int]:
    return dict(driver_rows(connection.exec_driver_sql(SCANNED)))


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _pages(node: Mapping[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _lines(node: Mapping[str, Any], depth: int) -> Iterator[str]:
    what = " ".join(str(node[k]) for k in ("Node Type", "Relation Name", "Index Name", "Subplan Name") if k in node)
    conditions = " ".join(f"{k}={node[k]}" for k in ("Index Cond", "Filter", "Recheck Cond") if k in node)
    counts = f"rows={node['Actual Rows']} loops={node['Actual Loops']} pages={_pages(node)}"
    yield f"{'  ' * depth}{what} [{counts}] {conditions}"
    for child in node.get("Plans", []):
        yield from _lines(child, depth + 1)
