"""Operators' actions, each change with its row in `audit`."""

#: How long (seconds) an operator's call waits for a lock of somebody's open transaction: longer than Postgres takes to
#: detect a deadlock, so that the call can be tried again after one.
PATIENCE = 2.0

#: How long (seconds) a statement of the API may take.
LONGEST = 5.0
