"""Outcomes → rows."""
