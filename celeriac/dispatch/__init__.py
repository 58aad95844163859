"""Rows → tickets: select fairly, claim, publish."""
