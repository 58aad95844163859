"""Failures: grouped by what they have in common, since when, how fast they come, and messages that became no task."""
