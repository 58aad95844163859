"""The table of a run."""

from __future__ import annotations

from collections.abc import Sequence

from faults.rounds import Row

HEAD = (
    "fault", "accepted", "finished", "unknown", "lost", "failed", "again", "overlap", "keys", "frozen", "stale",
    "back s", "before/s", "during/s", "after/s",
)  # fmt: skip


def head() -> str:
    return "| " + " | ".join(HEAD) + " |\n|" + " --- |" + " ---: |" * (len(HEAD) - 1)


def line(row: Row) -> str:
    if row.verdict is None:
        return f"| {row.name} | not tried: {row.skipped} |"
    v = row.verdict
    counts = (v.accepted, v.finished, v.unknown, v.lost, v.failed, v.again, v.overlapped, v.keys_overlapped, v.paused)
    rates = (row.before, row.during, row.after)
    cells = [*map(str, counts), str(v.stale), f"{row.recovered:.1f}", *(f"{rate:.0f}" for rate in rates)]
    told = "".join(f"\n    NOT HELD: {problem}" for problem in row.problems)
    told += "".join(f"\n        {example}" for example in v.examples if row.problems)
    told += "".join(f"\n    (known: {problem.splitlines()[0][:100]})" for problem in row.allowed)
    told += f"\n    ({v.wiped} plain Celery messages were in the Redis that lost its memory)" if v.wiped else ""
    return "| " + " | ".join([row.name, *cells]) + " |" + told


def totals(rows: Sequence[Row]) -> str:
    tried = [row for row in rows if row.verdict is not None]
    figures = [row.verdict for row in tried if row.verdict is not None]
    held = sum(row.holds for row in tried)
    return (
        f"{held} of {len(tried)} faults held; accepted {sum(v.accepted for v in figures)}, "
        f"finished {sum(v.finished for v in figures)}, lost {sum(v.lost for v in figures)}, "
        f"wrongly failed {sum(v.failed for v in figures)}, ran again {sum(v.again for v in figures)}, "
        f"overlapped {sum(v.overlapped + v.keys_overlapped for v in figures)}, "
        f"stale accepted {sum(v.stale for v in figures)}"
    )
