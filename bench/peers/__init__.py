"""Celeriac beside what else runs tasks, on the same servers in one run: `make bench-peers`."""
