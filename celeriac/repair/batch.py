"""Sweeps work in bounded batches."""

from __future__ import annotations

#: Rows a transaction: few enough that whoever meets its locks hardly waits.
BATCH = 200
