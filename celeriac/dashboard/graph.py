"""A workflow's shape: columns of nodes, each to the right of all nodes that it follows. Lengths are in SVG's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celeriac.insights.tasks.workflows import Edge, Node

#: Maximum number of nodes that are drawn; a larger workflow is shown as a table only.
MOST = 60

#: A node's width and height, and the distances between two of them.
WIDE, HIGH, ACROSS, DOWN = 170, 44, 50, 16

#: Number of letters of a role's name that fit into a node.
LETTERS = 24


@dataclass(frozen=True, slots=True)
class Box:
    """A drawn node. `state`: the most important state among its parts."""

    x: int
    y: int
    label: str
    state: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Graph:
    wide: int
    high: int
    boxes: list[Box]
    lines: list[Line]


def graph(nodes: Sequence[Node], edges: Sequence[Edge]) -> Graph | None:
    """Return the drawing; None if there are too many nodes."""
    if not 0 < len(nodes) <= MOST:
        return None
    columns = _columns(len(nodes), edges)
    rows: dict[int, int] = {}
    boxes = []
    for n, node in enumerate(nodes):
        row = rows[columns[n]] = rows.get(columns[n], -1) + 1
        boxes.append(_box(node, 1 + columns[n] * (WIDE + ACROSS), 1 + row * (HIGH + DOWN)))
    lines = [Line(_path(boxes[edge.source], boxes[edge.target]), edge.kind) for edge in edges]
    wide = (max(columns) + 1) * (WIDE + ACROSS) - ACROSS + 2
    return Graph(wide, (max(rows.values()) + 1) * (HIGH + DOWN) - DOWN + 2, boxes, lines)


def _columns(nodes: int, edges: Sequence[Edge]) -> list[int]:
    """Return each node's column: the length of the longest path to it. In a cycle, such as a role whose task enqueues
    its own kind, that is at most the number of nodes.
    """
    columns = [0] * nodes
    for _ in range(nodes):
        moved = False
        for edge in edges:
            least = min(columns[edge.source] + 1, nodes - 1)
            if edge.source != edge.target and columns[edge.target] < least:
                columns[edge.target], moved = least, True
        if not moved:
            break
    dense = {column: n for n, column in enumerate(sorted(set(columns)))}
    return [dense[column] for column in columns]


def _box(node: Node, x: int, y: int) -> Box:
    state = next(
        (one for one in ("failed", "running", "claimed", "pending", "cancelled") if node.counts.get(one)), "completed"
    )
    done = sum(n for status, n in node.counts.items() if status in ("completed", "failed", "cancelled"))
    label = node.role if len(node.role) <= LETTERS else f"{node.role[: LETTERS - 1]}…"
    return Box(x, y, label, state, done, sum(node.counts.values()))


def _path(source: Box, target: Box) -> str:
    x1, y1, x2, y2 = source.x + WIDE, source.y + HIGH // 2, target.x, target.y + HIGH // 2
    return f"M{x1} {y1}C{x1 + ACROSS // 2} {y1} {x2 - ACROSS // 2} {y2} {x2} {y2}"
