"""Ticket → outcomes: start, keep the lease, run, watch."""
