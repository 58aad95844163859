"""Explain why a task has not started: the checks in their order, what has to happen first, and which transaction blocks
it.
"""
