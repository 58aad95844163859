"""Alerts: what is watched, what fires, and who is notified.

rules      one list of what is watched, which the page of alerts and Prometheus' rules are made of as well
measure    the values, read in SQL at a cost that does not follow the history
judgement  what is wrong now, the worst first: what doctor, status, overview and alerts have in common
record     what fires, in SQL: since when, and what is to be told
review     a look: beat's sweep, and where none comes in time, a worker's or an API server's
deliver    a webhook, a mail
"""

from celeriac.alerts.rules import Rule

__all__ = ["Rule"]
