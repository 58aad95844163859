"""The number of each schedule's last ticks that are kept, however old, and shown as a strip."""

from __future__ import annotations

STRIP = 60
