"""The load's keys, few, so that tasks meet, and the period (seconds) of its schedule."""

ACCOUNTS, LOCKS, UNIQUES = 7, 6, 4
TICK = 0.5
