"""Operators' actions, each change with its row in `audit`."""

#: Seconds that an operator's call waits for a lock of an open transaction: longer than Postgres takes to detect a
#: deadlock, so that the call can be tried again after one.
PATIENCE = 2.0

#: Maximum seconds of a statement of the API.
LONGEST = 5.0
