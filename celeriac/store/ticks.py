"""How many of each schedule's last ticks are kept, however old, and shown as a strip."""

from __future__ import annotations

STRIP = 60
