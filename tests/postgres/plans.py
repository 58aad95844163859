"""What a statement costs: which plan Postgres chose, and how many pages it touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, TextClause, text

# What this transaction has read so far.
SCANNED = text("SELECT relname, seq_tup_read FROM pg_stat_xact_all_tables WHERE schemaname = 'celeriac'")


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
    explained = text(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement.text}")
    before = _scanned(connection)
    root = connection.execute(explained, given).scalar_one()[0]["Plan"]
    after = _scanned(connection)
    return Plan(root, {table: after[table] - before.get(table, 0) for table in after})


def _scanned(connection: Connection) -> dict[str, int]:
    return {row.relname: row.seq_tup_read for row in connection.execute(SCANNED)}


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
