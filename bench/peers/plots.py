"""The figures as bars, in SVG: one file a figure, in the colours of the page that shows it."""

from __future__ import annotations

from html import escape
from pathlib import Path
from statistics import median

from bench.peers.tables import Rounds

#: What is drawn, by file, and its title.
FIGURES = {
    "drain": "No-op tasks drained a second",
    "old": "The same beside an old transaction",
    "single": "Enqueues a second, one by one",
    "500/s p95": "Start latency at 500 a second, 95th of 100, ms",
}

#: In pixels: a line a peer, the names, the longest bar, and room for its figure.
LINE, NAMES, BARS, FIGURE = 24, 230, 380, 90


def draw(rounds: Rounds, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, title in FIGURES.items():
        values = {peer: median(one[name] for one in figures) for peer, figures in rounds.items() if name in figures[0]}
        (folder / f"{name.replace('/s ', '-')}.svg").write_text(bars(title, values))


def bars(title: str, values: dict[str, float]) -> str:
    most = max(values.values(), default=0.0) or 1.0
    width, height = NAMES + BARS + FIGURE, LINE * (len(values) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="13" fill="currentColor">',
        "<style>svg { color: #222 } @media (prefers-color-scheme: dark) { svg { color: #ddd } }</style>",
        f'<text x="0" y="{LINE - 8}" font-weight="bold">{escape(title)}</text>',
    ]
    for n, (peer, value) in enumerate(values.items(), start=1):
        y, length = LINE * n, BARS * value / most
        colour = "#2e7d32" if peer.startswith("Celeriac") else "#8a8f98"
        lines += [
            f'<text x="0" y="{y + LINE - 8}">{escape(peer)}</text>',
            f'<rect x="{NAMES}" y="{y + 4}" width="{length:.1f}" height="{LINE - 8}" fill="{colour}"/>',
            f'<text x="{NAMES + length + 6:.1f}" y="{y + LINE - 8}">{value:,.{0 if value >= 100 else 1}f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
