"""Failures: grouped by what they share, since when, how often they come, and messages that became no task."""
