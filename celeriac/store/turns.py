"""Turns: the accounts of a role that have something ready, by name from a cursor on and around to it."""

# INVARIANT of `onward`, `around`: each step is one descent into `ready_in_order`, to the next account with an entry.
# `around` is read only if `onward` ran out of accounts first.
TURNS = """
WITH RECURSIVE onward AS (
    (SELECT account FROM celeriac.ready WHERE role = :role AND account > :cursor ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM onward, LATERAL (
        SELECT account FROM celeriac.ready
        WHERE role = :role AND account > onward.account ORDER BY account LIMIT 1) AS next
), around AS (
    (SELECT account FROM celeriac.ready WHERE role = :role AND account <= :cursor ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM around, LATERAL (
        SELECT account FROM celeriac.ready
        WHERE role = :role AND account > around.account AND account <= :cursor ORDER BY account LIMIT 1) AS next
)"""
