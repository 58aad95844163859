"""Explain why a task has not started: the checks in order, what has to happen first, which transaction blocks it."""
