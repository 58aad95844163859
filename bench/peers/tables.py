"""What was measured, as tables of Markdown: medians of the rounds, and the medians of the rounds' ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from bench.peers.latency import RATES, SHARES
from bench.peers.peer import Figures

Rounds = Mapping[str, Sequence[Figures]]

#: A column: its head, and its figure of a peer's round, beside Celeriac's of the same; None where there is none.
Column = tuple[str, Callable[[Figures, Figures], "float | None"], str]


def plain(head: str, name: str, form: str = ",.0f") -> Column:
    return head, lambda one, _: one.get(name), form


def to_celeriac(head: str, name: str) -> Column:
    return head, lambda one, celeriac: one[name] / celeriac[name] if name in one else None, ".2f"


def to_clean(head: str, name: str) -> Column:
    return head, lambda one, _: one[name] / one["drain"] if name in one else None, ".2f"


TABLES: Mapping[str, Sequence[Column]] = {
    "No-op tasks: a drain, and beside an old transaction, long readers, and the removal of what has finished": (
        plain("drain/s", "drain"), to_celeriac("to Celeriac", "drain"),
        plain("old", "old"), to_clean("old/clean", "old"),
        plain("readers", "readers"), to_clean("readers/clean", "readers"), plain("retention", "retention"),
        to_clean("retention/clean", "retention"),
    ),
    "Enqueues a second": (
        plain("bulk", "bulk"), to_celeriac("to Celeriac", "bulk"), plain("one by one", "single"),
        to_celeriac("to Celeriac", "single"), plain("with a caller's row", "within"),
        to_celeriac("to Celeriac", "within"),
    ),
    "What a task of the drain costs": (
        plain("workers, us", "worker"), plain("servers, us", "postgres"), plain("workers' memory, MiB", "memory"),
        plain("log, bytes", "wal_bytes"), plain("rows written", "rows", ".1f"), plain("rows that die", "dead", ".1f"),
    ),
    "Tasks a second of other tasks": (
        plain("a kilobyte of arguments", "kilobyte"), to_celeriac("to Celeriac", "kilobyte"),
        plain("sleeps 1 ms", "sleeps"), to_celeriac("to Celeriac", "sleeps"), plain("computes 10 ms", "computes"),
        to_celeriac("to Celeriac", "computes"),
    ),
    "Start latency, ms": tuple(
        plain(f"{rate}/s p{share}", f"{rate}/s p{share}", ",.1f") for rate in RATES for share in SHARES
    ),
}  # fmt: skip


def written(rounds: Rounds) -> str:
    return "\n\n".join(f"{title}:\n\n" + "\n".join(_lines(rounds, columns)) for title, columns in TABLES.items())


def _lines(rounds: Rounds, columns: Sequence[Column]) -> list[str]:
    first = next(iter(rounds.values()))
    lines = [_row(["", *(head for head, _, _ in columns)]), _row(["---", *("---:" for _ in columns)])]
    for name, figures in rounds.items():
        cells = []
        for _, figure, form in columns:
            values = [value for one, celeriac in zip(figures, first, strict=True)
                if (value := figure(one, celeriac)) is not None]  # fmt: skip
            cells.append(format(median(values), form) if values else "")
        lines.append(_row([name, *cells]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
