"""A workflow's picture: who follows whom stands further right, and nothing covers anything."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from celeriac.dashboard.graph import HIGH, MOST, WIDE, graph
from celeriac.insights.tasks.workflows import Edge, Node


def node(role: str = "price", **counts: int) -> Node:
    return Node(role, None, counts or {"pending": 1}, None)


def test_a_chord_and_its_links_go_from_left_to_right() -> None:
    nodes = [node(completed=2, failed=1, pending=1), node("sum"), node("mail")]
    drawn = graph(nodes, [Edge(0, 1, "members"), Edge(1, 2, "link")])
    assert drawn is not None
    assert [box.x for box in drawn.boxes] == sorted({box.x for box in drawn.boxes})
    assert [(box.label, box.state, box.done, box.total) for box in drawn.boxes] == [
        ("price", "failed", 3, 4), ("sum", "pending", 0, 1), ("mail", "pending", 0, 1)
    ]  # fmt: skip
    assert [line.kind for line in drawn.lines] == ["members", "link"]


def test_a_long_name_is_cut_and_what_is_too_large_is_not_drawn() -> None:
    drawn = graph([node("x" * 100)], [])
    assert drawn is not None
    assert drawn.boxes[0].label.endswith("x…")
    assert graph([node()] * (MOST + 1), []) is None
    assert graph([], []) is None


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Of any edges, those that go round included."""
    nodes = draw(st.integers(1, 12))
    place = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(place, place), max_size=30))
    return nodes, [Edge(a, b, "link") for a, b in pairs if a != b]


@given(shapes())
def test_nothing_covers_anything_and_all_is_in_the_view(shape: tuple[int, list[Edge]]) -> None:
    nodes, edges = shape
    drawn = graph([node() for _ in range(nodes)], edges)
    assert drawn is not None
    assert len(drawn.boxes) == nodes
    assert all(b.x > 0 and b.x + WIDE < drawn.wide and b.y > 0 and b.y + HIGH < drawn.high for b in drawn.boxes)
    assert all(abs(a.x - b.x) >= WIDE or abs(a.y - b.y) >= HIGH for a, b in combinations(drawn.boxes, 2))


@given(shapes())
def test_whoever_follows_stands_further_right(shape: tuple[int, list[Edge]]) -> None:
    nodes, edges = shape
    forward = [edge for edge in edges if edge.source < edge.target]
    drawn = graph([node() for _ in range(nodes)], forward)
    assert drawn is not None
    assert all(drawn.boxes[edge.source].x < drawn.boxes[edge.target].x for edge in forward)
